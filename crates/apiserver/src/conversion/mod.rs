//! Conversion of built-in kinds whose versions have different fields.

pub(crate) mod autoscaling;
mod event;

use serde_json::Value;

use crate::resources::Resource;

/// Converts an object from the version of `resource` to the storage version.
pub(crate) fn to_storage(resource: &Resource, object: Value) -> Value {
    match (resource.group.as_str(), is_autoscaling_v1(resource)) {
        ("events.k8s.io", _) => event::to_core(&object),
        (_, true) => autoscaling::to_v2(object),
        _ => object,
    }
}

/// Converts an object from the storage version to the version of `resource`. Returns `None` if no conversion is needed.
pub(crate) fn from_storage(resource: &Resource, stored: &Value) -> Option<Value> {
    match (resource.group.as_str(), is_autoscaling_v1(resource)) {
        ("events.k8s.io", _) => Some(event::from_core(stored)),
        (_, true) => Some(autoscaling::from_v2(stored)),
        _ => None,
    }
}

/// Returns the group, version and plural name of the storage version if it differs from the version of `resource`.
pub(crate) fn storage_resource(resource: &Resource) -> Option<(&'static str, &'static str, &'static str)> {
    match (resource.group.as_str(), is_autoscaling_v1(resource)) {
        ("events.k8s.io", _) => Some(("", "v1", "events")),
        (_, true) => Some(("autoscaling", "v2", "horizontalpodautoscalers")),
        _ => None,
    }
}

fn is_autoscaling_v1(resource: &Resource) -> bool {
    resource.storage == autoscaling::STORAGE && resource.version == "v1"
}
