//! Reconciles one claim: protection while in use, binding and provisioning.

use std::path::Path;
use std::sync::Arc;

use apimachinery::{object, persistent_volume, pod};
use serde_json::{Value, json};

use super::{BindingState, FinalizerState};
use super::{
    binding_state, claim_names, default_class, has_host_path_provisioner, matches, refers_to, storage_class,
    storage_size, with_finalizer,
};
use crate::workloads::action::{Action, Plan};

const PROTECTION_FINALIZER: &str = "kubernetes.io/pvc-protection";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// Reconciles one claim. `pods` are the Pods in the namespace of the claim. Volumes are provisioned below
/// `volumes_dir`.
pub(crate) fn plan(
    claim: &Value,
    volumes: &[Arc<Value>],
    classes: &[Arc<Value>],
    pods: &[Arc<Value>],
    volumes_dir: Option<&Path>,
) -> Plan {
    let mut plan = Plan::default();
    let consumers: Vec<&Arc<Value>> = pods.iter().filter(|pod| is_consumer(pod, claim)).collect();
    if object::is_deleting(claim) {
        let released =
            with_finalizer(claim, PROTECTION_FINALIZER, FinalizerState::Absent).filter(|_| consumers.is_empty());
        plan.actions.extend(released.map(|object| Action::Update { resource: persistent_volume::CLAIMS, object }));
        return plan;
    }
    if let Some(updated) = with_defaults(claim, classes) {
        // The claim is reconciled again after this update.
        plan.push(Action::Update { resource: persistent_volume::CLAIMS, object: updated });
        return plan;
    }
    if is_bound(claim) {
        sync_bound_claim(&mut plan, claim, volumes);
        return plan;
    }
    let has_node = |pod: &&Arc<Value>| !object::text(pod, "/spec/nodeName").is_empty();
    if matches!(binding_state(claim, classes), BindingState::WaitForFirstConsumer { .. })
        && !consumers.iter().any(has_node)
    {
        let message = "waiting for first consumer to be created before binding".to_owned();
        plan.normal_event(claim, "WaitForFirstConsumer", message);
        return plan;
    }
    let node = consumers.iter().find(|pod| has_node(pod)).map(|pod| object::text(pod, "/spec/nodeName"));
    match best_match(claim, volumes) {
        Some(volume) => bind(&mut plan, claim, volume),
        None => provision(&mut plan, claim, storage_class(claim, classes), volumes_dir, node),
    }
    plan
}

/// Whether the Pod uses the claim. A finished Pod uses no claims.
fn is_consumer(pod: &Value, claim: &Value) -> bool {
    !pod::is_finished(pod) && claim_names(pod).any(|name| name == object::name(claim))
}

/// Returns the claim with the protection finalizer and, if it is unbound and has no class, the default class. `None`
/// when nothing changes.
fn with_defaults(claim: &Value, classes: &[Arc<Value>]) -> Option<Value> {
    let protected = with_finalizer(claim, PROTECTION_FINALIZER, FinalizerState::Present);
    let without_class = claim.pointer("/spec/storageClassName").is_none();
    let class = default_class(classes).filter(|_| without_class && !is_bound(claim));
    let mut updated = protected.or_else(|| class.map(|_| claim.clone()))?;
    if let Some(class) = class {
        updated["spec"]["storageClassName"] = json!(object::name(class));
    }
    Some(updated)
}

/// Whether binding has completed.
fn is_bound(claim: &Value) -> bool {
    claim.pointer("/metadata/annotations").is_some_and(|all| all.get(BIND_COMPLETED).is_some())
}

/// Updates the status of a bound claim: `Lost` when its volume does not exist.
fn sync_bound_claim(plan: &mut Plan, claim: &Value, volumes: &[Arc<Value>]) {
    let name = object::text(claim, "/spec/volumeName");
    match volumes.iter().find(|volume| object::name(volume) == name) {
        Some(volume) => plan.update_status(persistent_volume::CLAIMS, claim, bound_status(claim, volume)),
        None if object::text(claim, "/status/phase") == "Lost" => {}
        None => {
            plan.update_status(persistent_volume::CLAIMS, claim, json!({"phase": "Lost"}));
            let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!".to_owned();
            plan.push(Action::Event { involved_object: claim.clone(), type_: "Warning", reason: "ClaimLost", message });
        }
    }
}

/// Returns the volume that is reserved for the claim, or else the smallest matching volume.
fn best_match<'a>(claim: &Value, volumes: &'a [Arc<Value>]) -> Option<&'a Value> {
    let reserved =
        |volume: &Value| volume.pointer("/spec/claimRef").is_some_and(|reference| refers_to(reference, claim));
    let matching = volumes.iter().filter(|volume| matches(claim, volume));
    let smallest = matching
        .min_by_key(|volume| (!reserved(volume), storage_size(volume, "/spec/capacity/storage"), object::name(volume)));
    smallest.map(Arc::as_ref)
}

/// Binds claim and volume. The volume is written first, so a bound claim always has a volume that refers to it.
fn bind(plan: &mut Plan, claim: &Value, volume: &Value) {
    let mut bound_volume = volume.clone();
    let reference = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "namespace": object::namespace(claim), "name": object::name(claim), "uid": object::uid(claim),
        "resourceVersion": object::text(claim, "/metadata/resourceVersion"),
    });
    let refers_to_claim = |reference: &Value| object::text(reference, "/uid") == object::uid(claim);
    if !volume.pointer("/spec/claimRef").is_some_and(refers_to_claim) {
        bound_volume["spec"]["claimRef"] = reference;
        annotate(&mut bound_volume, BOUND_BY_CONTROLLER);
        plan.push(Action::Update { resource: persistent_volume::VOLUMES, object: bound_volume });
    }
    let mut bound_claim = claim.clone();
    if object::text(claim, "/spec/volumeName").is_empty() {
        bound_claim["spec"]["volumeName"] = json!(object::name(volume));
        annotate(&mut bound_claim, BOUND_BY_CONTROLLER);
    }
    annotate(&mut bound_claim, BIND_COMPLETED);
    plan.push(Action::Update { resource: persistent_volume::CLAIMS, object: bound_claim });
}

/// Sets an annotation to `yes`.
fn annotate(object: &mut Value, key: &str) {
    let mut annotations = object.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
    object::members(&mut annotations).insert(key.to_owned(), json!("yes"));
    object::set_metadata_field(object, "annotations", Some(annotations));
}

/// Returns the status of a bound claim.
fn bound_status(claim: &Value, volume: &Value) -> Value {
    let mut status = claim.get("status").cloned().unwrap_or_else(|| json!({}));
    status["phase"] = json!("Bound");
    status["accessModes"] = volume["spec"]["accessModes"].clone();
    status["capacity"] = volume["spec"]["capacity"].clone();
    status
}

/// Provisions a volume, or records an Event with the reason why the claim remains pending.
fn provision(plan: &mut Plan, claim: &Value, class: Option<&Value>, volumes_dir: Option<&Path>, node: Option<&str>) {
    let requested_volume = object::text(claim, "/spec/volumeName");
    let class_name = object::text(claim, "/spec/storageClassName");
    let (type_, reason, message) = match (class, volumes_dir) {
        _ if !requested_volume.is_empty() => (
            "Normal",
            "FailedBinding",
            format!("volume \"{requested_volume}\" does not exist or does not match the claim"),
        ),
        (Some(class), Some(volumes_dir)) if has_host_path_provisioner(class) => {
            plan.push(Action::Create {
                resource: persistent_volume::VOLUMES,
                object: new_volume(claim, class, volumes_dir, node),
            });
            let message = format!("Successfully provisioned volume {}", volume_name(claim));
            ("Normal", "ProvisioningSucceeded", message)
        }
        (Some(class), _) => {
            let provisioner = object::text(class, "/provisioner");
            let message = format!(
                "waiting for a volume to be created by the external provisioner \"{provisioner}\" or manually; this cluster only runs the provisioner \"{}\": use a StorageClass of that provisioner or create a PersistentVolume",
                persistent_volume::PROVISIONER
            );
            ("Normal", "ExternalProvisioning", message)
        }
        (None, _) if !class_name.is_empty() => {
            ("Warning", "ProvisioningFailed", format!("storageclass.storage.k8s.io \"{class_name}\" not found"))
        }
        (None, _) => {
            let message = "no persistent volumes available for this claim and no storage class is set".to_owned();
            ("Normal", "FailedBinding", message)
        }
    };
    plan.push(Action::Event { involved_object: claim.clone(), type_, reason, message });
}

/// Returns the name of the provisioned volume of a claim.
fn volume_name(claim: &Value) -> String {
    format!("pvc-{}", object::uid(claim))
}

/// Returns a new `hostPath` volume. If the binding mode of the class is `WaitForFirstConsumer`, the volume has node
/// affinity for the node of the first consumer.
fn new_volume(claim: &Value, class: &Value, volumes_dir: &Path, node: Option<&str>) -> Value {
    let name = volume_name(claim);
    let policy = match object::text(class, "/reclaimPolicy") {
        "" => "Delete",
        policy => policy,
    };
    let mut spec = json!({
        "accessModes": claim["spec"]["accessModes"],
        "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
        "claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "namespace": object::namespace(claim), "name": object::name(claim), "uid": object::uid(claim),
        },
        "hostPath": {"path": volumes_dir.join(&name).display().to_string(), "type": "DirectoryOrCreate"},
        "persistentVolumeReclaimPolicy": policy,
        "storageClassName": object::name(class),
        "volumeMode": claim["spec"].get("volumeMode").cloned().unwrap_or_else(|| json!("Filesystem")),
    });
    let waits_for_consumer = object::text(class, "/volumeBindingMode") == "WaitForFirstConsumer";
    if let Some(node) = node.filter(|_| waits_for_consumer) {
        let node_selector = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
        spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchFields": node_selector}]}});
    }
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {persistent_volume::PROVISIONED_BY: persistent_volume::PROVISIONER}},
        "spec": spec,
    })
}
