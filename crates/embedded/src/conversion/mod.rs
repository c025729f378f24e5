//! Kinds with two versions whose fields differ: each is kept in one of them.

pub(crate) mod autoscaling;
mod event;

use serde_json::Value;

use crate::resources::Resource;

/// From what clients of this version write to what is kept.
pub(crate) fn to_kept(resource: &Resource, object: Value) -> Value {
    match (resource.group.as_str(), is_first_scaler(resource)) {
        ("events.k8s.io", _) => event::to_core(&object),
        (_, true) => autoscaling::to_v2(object),
        _ => object,
    }
}

/// From what is kept to what this version shows; `None` where both are the same.
pub(crate) fn shown(resource: &Resource, kept: &Value) -> Option<Value> {
    match (resource.group.as_str(), is_first_scaler(resource)) {
        ("events.k8s.io", _) => Some(event::from_core(kept)),
        (_, true) => Some(autoscaling::from_v2(kept)),
        _ => None,
    }
}

/// Group, version and plural of the resource that is kept, where it is another one.
pub(crate) fn kept_as(resource: &Resource) -> Option<(&'static str, &'static str, &'static str)> {
    match (resource.group.as_str(), is_first_scaler(resource)) {
        ("events.k8s.io", _) => Some(("", "v1", "events")),
        (_, true) => Some(("autoscaling", "v2", "horizontalpodautoscalers")),
        _ => None,
    }
}

fn is_first_scaler(resource: &Resource) -> bool {
    resource.storage == autoscaling::STORAGE && resource.version == "v1"
}
