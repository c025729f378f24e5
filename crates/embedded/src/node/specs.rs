//! The containers of a Pod as its spec names them, before any of them runs.

use serde_json::Value;

use super::status::{Container, Phase, Role};
use crate::object;

/// Init containers first, in order, then the others.
pub(super) fn container_specs(pod: &Value) -> Vec<(Role, Value)> {
    let list = |field: &str| pod.pointer(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let init = list("/spec/initContainers").into_iter().map(|spec| {
        let sidecar = object::text(&spec, "/restartPolicy") == "Always";
        (if sidecar { Role::Sidecar } else { Role::Init }, spec)
    });
    init.chain(list("/spec/containers").into_iter().map(|spec| (Role::Main, spec))).collect()
}

pub(super) fn main_count(pod: &Value) -> usize {
    pod.pointer("/spec/containers").and_then(Value::as_array).map_or(0, Vec::len)
}

pub(super) fn waiting(role: Role, spec: &Value, has_init: bool) -> Container {
    let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
    Container {
        name: object::text(spec, "/name").to_owned(),
        image: object::text(spec, "/image").to_owned(),
        role,
        phase: Phase::Waiting { reason: reason.to_owned(), message: String::new() },
        last: None,
        restarts: 0,
        started: false,
        ready: false,
        done: false,
    }
}
