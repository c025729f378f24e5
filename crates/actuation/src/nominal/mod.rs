//! Derives the nominal provider of a requester: the Pod that would run its engine.
//!
//! Layers, from low to high: `patch` and `accelerators`, `owner`, `inherited`, `launcher`; [`nominal_provider`] calls them.

mod accelerators;
mod inherited;
mod launcher;
mod owner;
mod patch;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use api::dual_pods::{CONTAINER, UserAnnotation, annotation};
use apimachinery::LabelSelector;
use apimachinery::object::{self, items};
use serde_json::{Value, json};

use crate::gpu_map::GpuMap;
use crate::identity::{IdentityInput, identity};
use crate::problem::Problem;
use crate::settings::{Mode, Settings};
pub(crate) use launcher::LAUNCHER_PORT;
use launcher::LauncherInput;
pub use launcher::NominalInstance;
use patch::Patch;
pub use patch::PatchError;

/// Label of a Node by which Pods select it; its value can differ from the Node's name.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// What a nominal provider is derived from.
#[derive(Clone, Copy, Debug)]
pub struct Derivation<'a> {
    /// The requester Pod.
    pub requester: &'a Value,
    /// Name of its Node.
    pub node: &'a str,
    /// Value of the Node's label `kubernetes.io/hostname`.
    pub hostname: &'a str,
    /// UUIDs of the accelerators that are assigned to the requester.
    pub accelerators: &'a BTreeSet<String>,
    /// The ConfigMap `gpu-map`, if it exists.
    pub gpu_map: Option<&'a GpuMap>,
    /// The set that controls the requester, if its selector is known.
    pub owner: Option<&'a Owner>,
    /// Settings of the controller.
    pub settings: &'a Settings,
}

/// A set of Pods, such as a ReplicaSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Kind and name.
    pub name: String,
    /// Selector of its Pods.
    pub selector: LabelSelector,
}

/// The Pod that would run the engine of a requester, without the fields that depend on the binding.
#[derive(Clone, Debug, PartialEq)]
pub struct NominalProvider {
    /// Namespace of requester and provider.
    pub namespace: String,
    /// Name of the Node.
    pub node: String,
    /// Spec of the Pod. In launcher mode, it is that of the launcher.
    pub spec: Value,
    /// The engine in launcher mode; `None` in direct mode.
    pub instance: Option<NominalInstance>,
    /// Labels that the provider has while it is bound, without `pool_labels`.
    pub labels: BTreeMap<String, String>,
    /// Labels that the patch sets: pools select the provider by them, so that it has them only while its engine is awake.
    pub pool_labels: BTreeMap<String, String>,
    /// Annotations that the patch sets.
    pub annotations: BTreeMap<String, String>,
    /// Owner reference to the object with which Kubernetes deletes the provider.
    pub owner: Option<Value>,
    /// UUIDs of the accelerators.
    pub accelerators: BTreeSet<String>,
    /// Hash of what makes an engine suitable; in launcher mode also the id of the instance.
    pub identity: String,
    /// Port of the engine.
    pub port: u16,
}

/// Returns the nominal provider.
///
/// # Errors
/// The first problem of the requester's annotations, its Pod or `gpu-map`.
pub fn nominal_provider(derivation: &Derivation) -> Result<NominalProvider, Problem> {
    let requester = derivation.requester;
    check_resource_claims(requester)?;
    let owner = owner::provider_owner(requester)?;
    let patch = annotation(requester, UserAnnotation::ServerPatch).unwrap_or_default();
    let patch = Patch::parse(patch, derivation.node).map_err(Problem::InvalidPatch)?;
    let mut pod = patch.apply(&inherited::base_pod(requester, &patch)).map_err(Problem::InvalidPatch)?;
    let index = engine_index(&pod).map_err(Problem::InvalidPatch)?;
    let port = engine_port(&pod, index).map_err(Problem::InvalidPatch)?;
    let mode = mode(requester, derivation.settings)?;
    let spec = &mut pod["spec"];
    accelerators::request_none(spec);
    if mode == Mode::Direct {
        let map = derivation.gpu_map.ok_or(Problem::GpuMapUnavailable)?;
        let indexes = map.indexes(derivation.node, derivation.accelerators)?;
        accelerators::set_visible_devices(&mut spec["containers"][index], &indexes);
    }
    object::members(&mut spec["nodeSelector"]).insert(HOSTNAME_LABEL.to_owned(), json!(derivation.hostname));
    object::members(spec).remove("nodeName");
    let pool_labels = patch.labels();
    let all_labels = object::labels(&pod);
    let annotations = object::string_map(pod.pointer("/metadata/annotations"));
    let mut labels = all_labels.clone();
    labels.retain(|key, _| !pool_labels.contains_key(key));
    check_selector(derivation.owner, [&all_labels, &labels])?;
    let namespace = object::namespace(requester);
    let mut spec = pod["spec"].take();
    let identity = identity(&IdentityInput {
        spec: &spec,
        annotations: &annotations,
        accelerators: derivation.accelerators,
        node: derivation.node,
        namespace,
    });
    let launcher = &derivation.settings.launcher;
    let input = LauncherInput { annotations: &annotations, node: derivation.node, namespace, port, settings: launcher };
    let instance = match mode {
        Mode::Direct => None,
        Mode::Launcher => Some(launcher::run_in_launcher(&mut spec, index, &input).map_err(Problem::InvalidPatch)?),
    };
    Ok(NominalProvider {
        namespace: namespace.to_owned(),
        node: derivation.node.to_owned(),
        spec,
        instance,
        labels,
        pool_labels,
        annotations,
        owner,
        accelerators: derivation.accelerators.clone(),
        identity,
        port,
    })
}

/// Returns the mode of a requester.
fn mode(requester: &Value, settings: &Settings) -> Result<Mode, Problem> {
    let Some(text) = annotation(requester, UserAnnotation::Mode) else { return Ok(settings.mode) };
    text.parse().map_err(|message| Problem::InvalidAnnotation { annotation: UserAnnotation::Mode, message })
}

fn check_resource_claims(requester: &Value) -> Result<(), Problem> {
    if items(requester.pointer("/spec/resourceClaims")).next().is_some() {
        return Err(Problem::ResourceClaims { field: "spec.resourceClaims" });
    }
    let mut containers = items(requester.pointer("/spec/containers"));
    match containers.any(|container| items(container.pointer("/resources/claims")).next().is_some()) {
        true => Err(Problem::ResourceClaims { field: "spec.containers[*].resources.claims" }),
        false => Ok(()),
    }
}

/// Returns the index of the engine's container.
fn engine_index(pod: &Value) -> Result<usize, PatchError> {
    let mut containers = items(pod.pointer("/spec/containers"));
    containers.position(|container| container["name"] == CONTAINER).ok_or(PatchError::ContainerMissing)
}

/// Returns the port of the engine, which is that of its readiness probe.
fn engine_port(pod: &Value, index: usize) -> Result<u16, PatchError> {
    let container = &pod["spec"]["containers"][index];
    let probe = container.get("readinessProbe").filter(|probe| probe.is_object());
    let probe = probe.ok_or(PatchError::ProbeMissing(index))?;
    let http_get = probe.get("httpGet").filter(|probe| probe.is_object()).ok_or(PatchError::ProbeNotHttp(index))?;
    let port = &http_get["port"];
    let number = match port.as_str() {
        Some(name) => {
            let mut ports = items(container.get("ports"));
            let declared = ports.find(|port| port["name"] == name).and_then(|port| port["containerPort"].as_u64());
            declared.or_else(|| name.parse().ok())
        }
        None => port.as_u64(),
    };
    let number = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
    number.ok_or_else(|| PatchError::UnsupportedPort { port: port.to_string(), container: index })
}

/// Checks that the set does not adopt the provider, neither awake nor asleep.
fn check_selector(owner: Option<&Owner>, label_sets: [&BTreeMap<String, String>; 2]) -> Result<(), Problem> {
    let Some(owner) = owner else { return Ok(()) };
    let matches = label_sets.into_iter().any(|labels| owner.selector.matches(labels));
    match matches {
        true => Err(Problem::SelectorMatches { owner: owner.name.clone(), selector: owner.selector.to_string() }),
        false => Ok(()),
    }
}
