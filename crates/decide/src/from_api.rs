//! From API objects to what `decide` works on. A value that cannot be understood is an error with its field path, never a zero.

mod class;
mod runtime;
mod service;

use std::collections::BTreeMap;

use api::ComputeCapability;
use api::Version;
use api::ome::{
    AcceleratorCapabilities, AcceleratorConfiguration, Component as ComponentSpec, NodeGroup, VersionedName,
};
use serde_json::Value;

use crate::demand::{Capabilities, CustomContainer, NamedVersion, Performance};
use crate::merge::{ClassConfiguration, args};
use crate::role_placement::{RolePlacement, RolePlacements};

/// A field that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {cause}")]
pub struct FieldError {
    /// Such as `spec.modelFormat.version` or `metadata.annotations[ome.io/cost-threshold]`.
    pub path: String,
    pub cause: String,
}

impl FieldError {
    pub(crate) fn new(path: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Self { path: path.into(), cause: format!("{cause}") }
    }
}

fn named(path: &str, versioned: &VersionedName) -> Result<NamedVersion, FieldError> {
    let parse =
        |text: &String| text.parse::<Version>().map_err(|error| FieldError::new(format!("{path}.version"), error));
    Ok(NamedVersion { name: versioned.name.clone(), version: versioned.version.as_ref().map(parse).transpose()? })
}

fn compute_capability(path: &str, text: Option<&String>) -> Result<Option<ComputeCapability>, FieldError> {
    text.map(|text| text.parse().map_err(|error| FieldError::new(path, error))).transpose()
}

fn capabilities(path: &str, stated: &AcceleratorCapabilities) -> Result<Capabilities, FieldError> {
    let performance = stated.performance.clone().unwrap_or_default();
    Ok(Capabilities {
        memory: stated.memory.map(|memory| memory.0),
        max_memory: None,
        compute_capability: compute_capability(
            &format!("{path}.computeCapability"),
            stated.compute_capability.as_ref(),
        )?,
        features: stated.features.iter().map(|feature| feature.to_lowercase()).collect(),
        bandwidth: stated.memory_bandwidth.as_ref().map(apimachinery::Quantity::as_f64),
        performance: Performance {
            fp8: performance.fp8,
            fp16: performance.fp16,
            fp32: performance.fp32,
            int8: performance.int8,
            int4: performance.int4,
        },
    })
}

fn configurations(stated: &[AcceleratorConfiguration]) -> Vec<ClassConfiguration> {
    let read = |one: &AcceleratorConfiguration| ClassConfiguration {
        class: one.selector.accelerator_class.clone(),
        env: one.env.clone(),
        resources: one.resources.clone().unwrap_or(Value::Null),
        runner: one.runner.as_ref().and_then(Value::as_object).cloned().unwrap_or_default(),
    };
    stated.iter().map(read).collect()
}

/// The container that a component runs: `runner`, else the leader's, else the first of `containers`.
fn runner(component: &ComponentSpec) -> Option<&Value> {
    let leader = component.leader.as_ref().and_then(|leader| leader.runner.as_ref());
    component.runner.as_ref().or(leader).or_else(|| component.pod.get("containers")?.get(0))
}

fn own_container(component: &ComponentSpec) -> CustomContainer {
    let Some(runner) = runner(component) else { return CustomContainer::None };
    let started =
        ["command", "args"].iter().any(|field| runner[*field].as_array().is_some_and(|line| !line.is_empty()));
    match runner["image"].as_str() {
        None | Some("") => CustomContainer::None,
        Some(_) if started => CustomContainer::Complete,
        Some(_) => CustomContainer::ImageOnly,
    }
}

fn multi_node(component: &ComponentSpec) -> bool {
    component.leader.is_some() && component.worker.is_some()
}

/// Text that says nothing counts as unstated.
fn stated(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty()).cloned()
}

/// Accelerators and the like that the component asks for, wherever it writes them.
fn resources(component: &ComponentSpec) -> BTreeMap<String, u32> {
    let of_workers = component.worker.as_ref().and_then(|worker| worker.runner.as_ref());
    let runners = runner(component).into_iter().chain(of_workers).filter_map(|runner| runner.get("resources"));
    let mut most: BTreeMap<String, u32> = BTreeMap::new();
    for (name, units) in runners.chain(&component.resources).flat_map(crate::units::extended_resources) {
        let known = most.entry(name).or_default();
        *known = units.max(*known);
    }
    most
}

/// What the component states for leader and workers alone.
fn groups(component: &ComponentSpec) -> RolePlacements {
    let starts = |runner: &Value| ["command", "args"].iter().any(|line| !runner[*line].is_null());
    let group = |stated: &NodeGroup| RolePlacement {
        node_selector: stated.node_selector.clone(),
        affinity: stated.affinity.clone(),
        has_command: stated.runner.as_ref().is_some_and(starts),
    };
    RolePlacements { leader: component.leader.as_ref().map(group), worker: component.worker.as_ref().map(group) }
}

/// Tensor × pipeline parallelism that the component's launch line or environment states.
fn parallelism(component: &ComponentSpec) -> Option<u32> {
    let runner = runner(component)?;
    let words = ["command", "args"].iter().flat_map(|field| runner[*field].as_array().into_iter().flatten());
    let env = runner["env"].as_array().map(Vec::as_slice).unwrap_or_default();
    args::args_parallelism(words.filter_map(Value::as_str)).or_else(|| crate::merge::env::env_parallelism(env))
}

/// Pods of one replica, where leader and worker state them.
fn nodes(component: &ComponentSpec) -> Option<u32> {
    let size = component.worker.as_ref()?.size?;
    u32::try_from(size).ok()?.checked_add(1)
}

fn count(replicas: Option<i32>) -> Option<u32> {
    replicas.and_then(|replicas| u32::try_from(replicas).ok())
}
