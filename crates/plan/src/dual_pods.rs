//! Dual pods (seed 004): converts the Pod template of an engine into that of its requester. The requester has the accelerators
//! and the placement of the engine; its annotation `server-patch` derives the provider, which runs the engine. The controller in
//! crate `actuation` puts the engine to sleep when the requester is deleted, and wakes it for the next one.

use std::collections::BTreeMap;

use api::dual_pods::{CONTAINER, DUAL_PODS, PROVIDER_ROLE, REQUESTER_ROLE, UserAnnotation};
use api::is_accelerator_resource;
use decide::{Origin, Setting, SettingField};
use serde_json::{Map, Value, json};

use crate::code;
use crate::labels::{self, Labels};
use crate::launch;
use crate::launch::variables;
use crate::owner::Owner;
use crate::plan_error::PlanError;
use crate::pod;
use crate::probe;
use crate::replicas::Scaler;
use crate::role::{Requesters, Role};

/// Flag and variable without which vLLM has no routes of sleep mode (docs.vllm.ai, Sleep Mode).
const SLEEP_FLAG: &str = "--enable-sleep-mode";
const SLEEP_VARIABLE: &str = "VLLM_SERVER_DEV_MODE";
const PROBES_PORT: u16 = 8081;
const SPI_PORT: u16 = 8082;
/// Default of `terminationGracePeriodSeconds`, and of the requester's flag.
const GRACE_PERIOD: u64 = 30;

/// Fields of the engine's spec that requesters have, too. They determine the node, or the scheduler, the kubelet and admission
/// apply them to every Pod. Providers inherit those that a Pod on a given node can have.
const REQUESTER_FIELDS: [&str; 16] = [
    "affinity",
    "imagePullSecrets",
    "nodeName",
    "nodeSelector",
    "os",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "securityContext",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
];

/// Labels that LeaderWorkerSet adds to its Pods, and by which it and its StatefulSets would adopt the provider.
const LEADER_WORKER_SET_LABELS: [&str; 5] = [
    labels::LEADER_WORKER_SET_NAME,
    labels::GROUP_INDEX,
    labels::WORKER_INDEX,
    "leaderworkerset.sigs.k8s.io/group-key",
    "leaderworkerset.sigs.k8s.io/template-revision-hash",
];
/// Labels by which Kueue would wait for quota for the provider, which uses that of its requester.
const KUEUE_LABELS: [&str; 2] = [labels::KUEUE_QUEUE, "kueue.x-k8s.io/managed"];

/// How a kind of service requests dual pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DualPods<'a> {
    /// Key of the annotation of the service, and of the label of its Pods.
    pub key: &'static str,
    /// Image of requesters: ostler.
    pub image: &'a str,
    /// Returns the index of the engine's container.
    pub engine_index: fn(&Value) -> usize,
}

/// An engine whose requester is rendered.
struct Engine<'a> {
    role: &'a Role,
    container: Value,
    index: usize,
}

/// Returns whether the annotation `key` of a service requests dual pods.
pub(crate) fn is_requested(owner: &Owner, key: &str) -> bool {
    owner.annotations.get(key).is_some_and(|value| value == DUAL_PODS)
}

// === impl DualPods ===

impl DualPods<'_> {
    /// Adds requesters to the engines of a service whose annotation requests dual pods.
    ///
    /// # Errors
    /// The annotation has another value, or the first reason why an engine cannot run in dual pods.
    pub(crate) fn add_requesters(&self, owner: &Owner, roles: &mut [Role]) -> Result<(), PlanError> {
        match owner.annotations.get(self.key).map(String::as_str) {
            None => return Ok(()),
            Some(DUAL_PODS) => {}
            Some(value) => {
                let message =
                    format!("metadata.annotations[{}]: invalid value \"{value}\": must be {DUAL_PODS}", self.key);
                return Err(PlanError::new(code::error::INVALID_ANNOTATION, message));
            }
        }
        for role in roles {
            role.requesters = Some(self.requesters(owner, role)?);
            if !role.settings.is_empty() {
                let settings = [
                    Setting::new(SettingField::Flag(SLEEP_FLAG.to_owned()), "", Origin::Ostler),
                    Setting::new(SettingField::Env(SLEEP_VARIABLE.into()), "1", Origin::Ostler),
                ];
                let is_new = |setting: &Setting| !role.settings.iter().any(|other| other.field == setting.field);
                let settings: Vec<Setting> = settings.into_iter().filter(is_new).collect();
                role.settings.extend(settings);
            }
        }
        Ok(())
    }

    fn requesters(&self, owner: &Owner, role: &Role) -> Result<Requesters, PlanError> {
        check_replicas(role)?;
        let engine = Engine::of_role(role, (self.engine_index)(&role.template))?;
        let patch = engine.patch(owner, self.key);
        let annotations = self.annotations(owner, role, &patch);
        let metadata = json!({"labels": self.labels(role), "annotations": annotations});
        let mut spec = requester_fields(&role.template["spec"]);
        spec.insert("containers".to_owned(), json!([self.container(&engine)]));
        Ok(Requesters { label: self.key, template: json!({"metadata": metadata, "spec": spec}) })
    }

    /// Returns the labels of requesters: only those that select them, because pools must not. The provider has the others.
    fn labels(&self, role: &Role) -> Labels {
        let mut labels = retained_labels(role);
        labels.insert(self.key.to_owned(), REQUESTER_ROLE.to_owned());
        labels
    }

    /// Returns the annotations of requesters. Those of the engine are retained for admission webhooks and autoscalers of nodes,
    /// except those by which Prometheus would scrape the requester.
    fn annotations(&self, owner: &Owner, role: &Role, patch: &Value) -> Labels {
        let mut annotations = crate::owner::string_map(role.template.pointer("/metadata/annotations"));
        annotations.retain(|key, _| !key.starts_with("prometheus.io/"));
        // Providers are derived per node, so that the text is the same for all replicas.
        let patch = serde_json::to_string_pretty(patch).unwrap_or_default();
        annotations.insert(UserAnnotation::ServerPatch.key(), patch);
        annotations.insert(UserAnnotation::AdminPort.key(), SPI_PORT.to_string());
        annotations.extend(owner.reference().map(|owner| (UserAnnotation::ProviderOwner.key(), owner.to_string())));
        annotations
    }

    fn container(&self, engine: &Engine) -> Value {
        let grace_period = engine.role.template["spec"]["terminationGracePeriodSeconds"].as_u64();
        let flag = grace_period.filter(|seconds| *seconds != GRACE_PERIOD);
        let mut args =
            vec!["requester".to_owned(), format!("--probes-port={PROBES_PORT}"), format!("--spi-port={SPI_PORT}")];
        args.extend(flag.map(|seconds| format!("--grace-period={seconds}")));
        let mut resources = json!({"limits": {"cpu": "200m", "memory": "250Mi"}});
        for (name, amount) in accelerators(&engine.container) {
            resources["limits"][name] = amount.clone();
        }
        json!({
            "name": CONTAINER,
            "image": self.image,
            "args": args,
            // Readiness of the engine is relayed to the requester, whose probe delays it.
            "readinessProbe": {"httpGet": {"path": "/ready", "port": PROBES_PORT}, "periodSeconds": 1},
            "resources": resources,
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        })
    }
}

// === impl Engine ===

impl Engine<'_> {
    /// Returns the engine of `role` with sleep mode and a readiness probe.
    ///
    /// # Errors
    /// The engine cannot sleep, uses no accelerators, or its readiness is not an HTTP route.
    fn of_role(role: &Role, index: usize) -> Result<Engine<'_>, PlanError> {
        let mut container = role.template["spec"]["containers"][index].clone();
        check_accelerators(role, &container, index)?;
        enable_sleep_mode(&role.name, &mut container)?;
        let port = role.port;
        match container.get("readinessProbe") {
            None => container["readinessProbe"] = probe::health(port),
            Some(probe) if probe["httpGet"].is_object() => {}
            Some(_) => {
                let message = format!(
                    "{}, containers[{index}].readinessProbe: must be httpGet for dual pods, because the controller waits for the \
                     health route of the engine; remove the probe, or use httpGet",
                    role.name
                );
                return Err(PlanError::new(code::error::DUAL_PODS_ENGINE, message));
            }
        }
        container["name"] = json!(CONTAINER);
        Ok(Engine { role, container, index })
    }

    /// Returns the strategic merge patch that derives the engine's Pod from the requester.
    fn patch(&self, owner: &Owner, key: &'static str) -> Value {
        let metadata = &self.role.template["metadata"];
        let mut labels: BTreeMap<String, Value> = self.removed_labels(owner).map(|key| (key, Value::Null)).collect();
        let retained = retained_labels(self.role);
        let engine_labels = crate::owner::string_map(metadata.get("labels")).into_iter();
        labels.extend(engine_labels.filter(|(key, _)| !retained.contains_key(key)).map(|(key, v)| (key, json!(v))));
        labels.insert(key.to_owned(), json!(PROVIDER_ROLE));
        let mut patch = json!({"metadata": {"labels": labels}, "spec": self.spec()});
        if let Some(annotations) = metadata.get("annotations") {
            patch["metadata"]["annotations"] = annotations.clone();
        }
        patch
    }

    /// Returns the labels that workload controllers add to requesters, and that providers must not have.
    fn removed_labels(&self, owner: &Owner) -> impl Iterator<Item = String> {
        let is_deployment = self.role.workload == crate::role::Workload::Deployment;
        let group = LEADER_WORKER_SET_LABELS.into_iter().filter(move |_| !is_deployment);
        let queue = KUEUE_LABELS.into_iter().filter(|_| owner.queue_label().is_some());
        group.chain(queue).map(str::to_owned)
    }

    /// Returns the spec of the patch. The list of containers replaces that of the requester, which would otherwise be merged into it.
    fn spec(&self) -> Value {
        let mut spec = self.role.template["spec"].as_object().cloned().unwrap_or_default();
        // Providers must not restart: a restarted engine would be awake although it is not bound.
        spec.retain(|field, _| !REQUESTER_FIELDS.contains(&field.as_str()) && field != "restartPolicy");
        let mut container = self.container.clone();
        for list in ["limits", "requests"] {
            let amounts = container.pointer_mut(&format!("/resources/{list}")).and_then(Value::as_object_mut);
            let used = amounts.into_iter().flatten().filter(|(name, _)| is_accelerator_resource(name));
            used.for_each(|(_, amount)| *amount = json!("0"));
        }
        if let Some(containers) = spec.get_mut("containers").and_then(Value::as_array_mut) {
            containers[self.index] = container;
            containers.insert(0, json!({"$patch": "replace"}));
        }
        Value::Object(spec)
    }
}

/// Returns the labels of the engine that its requester has, too: those by which its set and its service select it.
fn retained_labels(role: &Role) -> Labels {
    let labels = crate::owner::string_map(role.template.pointer("/metadata/labels"));
    let is_selected = |key: &str| role.selector.contains_key(key) || role.labels.contains_key(key);
    labels.into_iter().filter(|(key, _)| is_selected(key)).collect()
}

fn requester_fields(spec: &Value) -> Map<String, Value> {
    let fields = spec.as_object().into_iter().flatten();
    let inherited = fields.filter(|(field, _)| REQUESTER_FIELDS.contains(&field.as_str()));
    inherited.map(|(field, value)| (field.clone(), value.clone())).collect()
}

/// Returns the accelerators that a container requests.
fn accelerators(container: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let amounts = |list: &str| container["resources"][list].as_object().into_iter().flatten();
    let amounts: BTreeMap<&str, &Value> = ["requests", "limits"]
        .into_iter()
        .flat_map(amounts)
        .filter(|(name, amount)| is_accelerator_resource(name) && **amount != json!("0") && **amount != json!(0))
        .map(|(name, amount)| (name.as_str(), amount))
        .collect();
    amounts.into_iter()
}

/// Checks that each replica is one Pod, and that its requester does not determine the number of replicas.
fn check_replicas(role: &Role) -> Result<(), PlanError> {
    let name = &role.name;
    if role.nodes > 1 || role.worker_template.is_some() {
        let message = format!(
            "{name}: a replica has {} nodes, but dual pods run each engine on one node; use accelerators with more memory, or \
             remove the annotation",
            role.nodes
        );
        return Err(PlanError::new(code::error::DUAL_PODS_NODES, message));
    }
    if role.replicas.has_autoscaler() && matches!(role.replicas.scaler, Scaler::Utilization { .. }) {
        let message = format!(
            "{name}: the autoscaler measures CPU or memory of requesters, which do not run the engine; set scaleMetric to \
             concurrency or rps, or the same minReplicas and maxReplicas"
        );
        return Err(PlanError::new(code::error::DUAL_PODS_AUTOSCALER, message));
    }
    Ok(())
}

/// Checks that the engine requests accelerators as extended resources, and that no other container does.
fn check_accelerators(role: &Role, container: &Value, index: usize) -> Result<(), PlanError> {
    let error =
        |cause: String| Err(PlanError::new(code::error::DUAL_PODS_ACCELERATORS, format!("{}, {cause}", role.name)));
    let spec = &role.template["spec"];
    if spec["resourceClaims"].as_array().is_some_and(|claims| !claims.is_empty()) {
        return error(
            "resourceClaims: dual pods do not support resource claims; request the accelerators in resources.limits"
                .to_owned(),
        );
    }
    if accelerators(container).next().is_none() {
        return error(format!(
            "containers[{index}].resources: the engine requests no accelerators that dual pods can share; request them in limits, such as nvidia.com/gpu"
        ));
    }
    let containers = spec["containers"].as_array().into_iter().flatten().enumerate();
    let mut others = containers.filter(|(other, _)| *other != index);
    if let Some((other, _)) = others.clone().find(|(_, other)| accelerators(other).next().is_some()) {
        return error(format!(
            "containers[{other}].resources: only the engine can request accelerators in dual pods; remove them from the other container"
        ));
    }
    match others.find(|(_, other)| other["name"] == CONTAINER) {
        Some((other, _)) => error(format!(
            "containers[{other}].name: {CONTAINER} is the name of the engine in dual pods; rename the other container"
        )),
        None => Ok(()),
    }
}

/// Adds the flag and the variable of sleep mode.
///
/// # Errors
/// The engine is not vLLM, its command is a script, or it disables sleep mode.
fn enable_sleep_mode(name: &str, container: &mut Value) -> Result<(), PlanError> {
    let error = |cause: String| Err(PlanError::new(code::error::DUAL_PODS_ENGINE, format!("{name}: {cause}")));
    match launch::inspect(container).engine {
        Some("vllm") => {}
        Some(engine) => return error(format!("{engine} cannot sleep; dual pods need vLLM")),
        None => {
            return error("the command does not start vLLM, and dual pods need an engine that can sleep".to_owned());
        }
    }
    if launch::mentions(container, "--no-enable-sleep-mode") {
        return error("the command disables sleep mode; remove --no-enable-sleep-mode".to_owned());
    }
    if !launch::mentions(container, SLEEP_FLAG) {
        if launch::flag_recipient(container) != Some("vllm") {
            return error(format!(
                "the command is a script, to which {SLEEP_FLAG} cannot be added; add it to the command"
            ));
        }
        launch::append_args(container, [SLEEP_FLAG]);
    }
    let entries = container["env"].as_array().into_iter().flatten();
    let is_disabled = |entry: &Value| entry["name"] == SLEEP_VARIABLE && entry["value"] != "1";
    if entries.clone().any(is_disabled) {
        return error(format!(
            "env {SLEEP_VARIABLE} must be \"1\", or the engine has no routes of sleep mode; remove the variable"
        ));
    }
    if !variables::is_defined(container, SLEEP_VARIABLE) {
        pod::add_if_absent(container, "env", "name", json!({"name": SLEEP_VARIABLE, "value": "1"}));
    }
    Ok(())
}
