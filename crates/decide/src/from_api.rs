//! Converts API objects to the input of a decision. An invalid value is an error with its field path.

mod class;
mod quantization_config;
mod runtime;
mod service;

use std::collections::BTreeMap;

use api::ComputeCapability;
use api::Version;
use api::ome::{
    AcceleratorCapabilities, AcceleratorConfiguration, Component as ComponentSpec, NodeGroup, VersionedName,
};
use serde_json::Value;

use crate::compute_request::{PodRequests, ReplicaRequests};
use crate::configuration::ClassConfiguration;
use crate::demand::{Capabilities, CustomContainer, NamedVersion, Performance};
use crate::engine::{Engine, EngineSettings};
use crate::merge::parallelism::ParallelismSettings;
use crate::role_placement::{RolePlacement, RolePlacements};
use crate::taint::Toleration;
use crate::vendor;

/// A field with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {cause}")]
pub struct FieldError {
    /// Path of the field, such as `spec.modelFormat.version` or `metadata.annotations[ome.io/cost-threshold]`.
    pub path: String,
    /// Why the value is invalid.
    pub cause: String,
    /// What the path refers to.
    pub kind: FieldKind,
}

/// What a field path refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A field of the spec.
    Spec,
    /// An annotation.
    Annotation,
}

// === impl FieldError ===

impl FieldError {
    /// Creates an error about a field of the spec.
    pub(crate) fn new(path: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Self { path: path.into(), cause: format!("{cause}"), kind: FieldKind::Spec }
    }

    /// Creates an error about an annotation.
    pub(crate) fn annotation(path: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Self { kind: FieldKind::Annotation, ..Self::new(path, cause) }
    }
}

fn named_version(path: &str, versioned: &VersionedName) -> Result<NamedVersion, FieldError> {
    let parse =
        |text: &String| text.parse::<Version>().map_err(|error| FieldError::new(format!("{path}.version"), error));
    Ok(NamedVersion { name: versioned.name.clone(), version: versioned.version.as_ref().map(parse).transpose()? })
}

fn compute_capability(path: &str, text: Option<&String>) -> Result<Option<ComputeCapability>, FieldError> {
    text.map(|text| text.parse().map_err(|error| FieldError::new(path, error))).transpose()
}

fn capabilities(path: &str, spec: &AcceleratorCapabilities) -> Result<Capabilities, FieldError> {
    let performance = spec.performance.clone().unwrap_or_default();
    Ok(Capabilities {
        memory: spec.memory.map(|memory| memory.0),
        max_memory: None,
        compute_capability: compute_capability(&format!("{path}.computeCapability"), spec.compute_capability.as_ref())?,
        features: spec.features.iter().map(|feature| feature.to_lowercase()).collect(),
        bandwidth: spec.memory_bandwidth.as_ref().map(apimachinery::Quantity::as_f64),
        performance: Performance {
            fp8: performance.fp8,
            fp16: performance.fp16,
            fp32: performance.fp32,
            int8: performance.int8,
            int4: performance.int4,
        },
    })
}

fn configurations(entries: &[AcceleratorConfiguration]) -> Vec<ClassConfiguration> {
    let configuration = |entry: &AcceleratorConfiguration| ClassConfiguration {
        class: entry.selector.accelerator_class.clone(),
        env: entry.env.clone(),
        resources: entry.resources.clone().unwrap_or(Value::Null),
        runner: entry.runner.as_ref().and_then(Value::as_object).cloned().unwrap_or_default(),
    };
    entries.iter().map(configuration).collect()
}

/// Returns the engine container of a component: `runner`, else the runner of the leader, else the first of `containers`.
fn engine_container(component: &ComponentSpec) -> Option<&Value> {
    let leader = component.leader.as_ref().and_then(|leader| leader.runner.as_ref());
    component.runner.as_ref().or(leader).or_else(|| component.pod.get("containers")?.get(0))
}

fn custom_container(component: &ComponentSpec) -> CustomContainer {
    let Some(runner) = engine_container(component) else { return CustomContainer::None };
    let has_command =
        ["command", "args"].iter().any(|field| runner[*field].as_array().is_some_and(|line| !line.is_empty()));
    let command = runner["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let engine = Engine::detect("", command.flat_map(str::split_whitespace));
    match runner["image"].as_str() {
        // The shipped image of the engine is used.
        None | Some("") if matches!(engine, Some(Engine::Vllm | Engine::Sglang)) => CustomContainer::Complete,
        None | Some("") => CustomContainer::None,
        Some(_) if has_command => CustomContainer::Complete,
        Some(_) => CustomContainer::ImageOnly,
    }
}

fn is_multi_node(component: &ComponentSpec) -> bool {
    component.leader.is_some() && component.worker.is_some()
}

/// Returns the text unless it is blank.
fn non_blank(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty()).cloned()
}

/// Returns the extended resources that the component requests: those of its runners, the greater of several, and of `resources` what no
/// runner requests.
fn resources(component: &ComponentSpec) -> BTreeMap<String, u32> {
    let worker_runner = component.worker.as_ref().and_then(|worker| worker.runner.as_ref());
    let runners =
        engine_container(component).into_iter().chain(worker_runner).filter_map(|runner| runner.get("resources"));
    let mut units_by_name: BTreeMap<String, u32> = BTreeMap::new();
    for (name, units) in runners.flat_map(crate::units::extended_resources) {
        let max = units_by_name.entry(name).or_default();
        *max = units.max(*max);
    }
    for (name, units) in component.resources.iter().flat_map(crate::units::extended_resources) {
        units_by_name.entry(name).or_insert(units);
    }
    units_by_name
}

/// Returns the placement that applies only to the leader or only to the workers.
fn role_placements(component: &ComponentSpec) -> RolePlacements {
    let has_command = |runner: &Value| ["command", "args"].iter().any(|field| !runner[*field].is_null());
    let placement = |group: &NodeGroup| RolePlacement {
        node_selector: group.node_selector.clone(),
        affinity: group.affinity.clone(),
        tolerations: Toleration::read_all(&group.tolerations),
        has_command: group.runner.as_ref().is_some_and(has_command),
    };
    RolePlacements {
        leader: component.leader.as_ref().map(placement),
        worker: component.worker.as_ref().map(placement),
    }
}

/// Returns what the engine container of the component states about parallelism.
fn parallelism(component: &ComponentSpec) -> ParallelismSettings {
    engine_container(component).map(ParallelismSettings::of_container).unwrap_or_default()
}

/// Returns what the Pods of the component request.
fn replica_requests(component: &ComponentSpec) -> ReplicaRequests {
    let (leader, worker) = (component.leader.as_ref(), component.worker.as_ref());
    let has_command = |runner: &Value| ["command", "args"].iter().any(|field| !runner[*field].is_null());
    ReplicaRequests {
        leader: pod_requests(component, &[leader]),
        worker_like_leader: pod_requests(component, &[leader, worker]),
        separate_worker: pod_requests(component, &[worker]),
        has_worker: worker.is_some(),
        has_worker_command: worker.and_then(|worker| worker.runner.as_ref()).is_some_and(has_command),
    }
}

/// Returns what the containers of a Pod request to which `groups` apply, weakest first. Amounts of the engine container take precedence
/// over `resources`.
fn pod_requests(component: &ComponentSpec, groups: &[Option<&NodeGroup>]) -> PodRequests {
    let groups = || groups.iter().copied().flatten();
    let pods = || std::iter::once(&component.pod).chain(groups().map(|group| &group.pod));
    let runners = component.runner.iter().chain(groups().filter_map(|group| group.runner.as_ref()));
    let runners: Vec<&Value> = match runners.collect::<Vec<_>>() {
        runners if runners.is_empty() => {
            component.pod.get("containers").and_then(|list| list.get(0)).into_iter().collect()
        }
        runners => runners,
    };
    let resources = component.resources.iter().chain(runners.iter().filter_map(|runner| runner.get("resources")));
    let list = |field: &'static str| pods().filter_map(move |pod| pod.get(field)?.as_array()).flatten();
    let is_engine = |container: &&Value| {
        runners.iter().any(|runner| std::ptr::eq(*runner, *container) || runner["name"] == container["name"])
    };
    PodRequests::new(resources, list("containers").filter(|container| !is_engine(container)), list("initContainers"))
}

/// Returns the vendor that the image of the engine container names.
fn image_vendor(component: &ComponentSpec) -> Option<&'static str> {
    vendor::of_image(engine_container(component)?["image"].as_str()?)
}

/// Returns the vendors whose accelerators the component requests, otherwise the one that its image names.
fn vendors(component: &ComponentSpec) -> Vec<&'static str> {
    let requested = resources(component).into_iter().filter(|(_, count)| *count > 0);
    let mut vendors: Vec<&'static str> = requested.filter_map(|(name, _)| vendor::of_resource(&name)).collect();
    if vendors.is_empty() {
        vendors.extend(image_vendor(component));
    }
    vendors
}

/// Returns the settings of the component's engine that determine its memory.
fn engine_settings(component: &ComponentSpec) -> EngineSettings {
    engine_container(component).map(EngineSettings::of_container).unwrap_or_default()
}

/// Returns the Pods of one replica, if the worker has a size.
fn nodes(component: &ComponentSpec) -> Option<u32> {
    let size = component.worker.as_ref()?.size?;
    u32::try_from(size).ok()?.checked_add(1)
}

fn non_negative(replicas: Option<i32>) -> Option<u32> {
    replicas.and_then(|replicas| u32::try_from(replicas).ok())
}
