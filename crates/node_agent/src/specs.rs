//! The container specs of a Pod and the initial status of its containers.

use std::collections::BTreeMap;

use apimachinery::object;
use serde_json::Value;

use crate::status::{ContainerRole, ContainerState, ContainerStatus};

/// Returns the init containers in order, then the main containers.
pub(crate) fn container_specs(pod: &Value) -> Vec<(ContainerRole, Value)> {
    let list = |field: &str| pod.pointer(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let init = list("/spec/initContainers").into_iter().map(|spec| {
        let is_sidecar = object::text(&spec, "/restartPolicy") == "Always";
        (if is_sidecar { ContainerRole::Sidecar } else { ContainerRole::Init }, spec)
    });
    init.chain(list("/spec/containers").into_iter().map(|spec| (ContainerRole::Main, spec))).collect()
}

/// Returns the number of main containers.
pub(crate) fn main_container_count(pod: &Value) -> usize {
    pod.pointer("/spec/containers").and_then(Value::as_array).map_or(0, Vec::len)
}

/// Returns the status of a container that has not started yet.
pub(crate) fn waiting_status(role: ContainerRole, spec: &Value, has_init: bool) -> ContainerStatus {
    let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
    ContainerStatus {
        name: object::text(spec, "/name").to_owned(),
        image: object::text(spec, "/image").to_owned(),
        role,
        state: ContainerState::Waiting { reason: reason.to_owned(), message: String::new() },
        last_termination: None,
        restart_count: 0,
        devices: BTreeMap::new(),
        started: false,
        ready: false,
        done: false,
    }
}
