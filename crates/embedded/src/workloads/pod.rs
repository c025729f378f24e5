//! What controllers need to know of Pods.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::condition;
use crate::object;

/// Neither finished nor being deleted: it counts as a replica.
pub(crate) fn is_active(pod: &Value) -> bool {
    !object::is_deleting(pod) && !matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed")
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    condition::is_true(pod, "Ready")
}

/// The class of quality of service: `Guaranteed`, `Burstable` or `BestEffort`, by the requests and limits of the containers.
pub(crate) fn quality(pod: &Value) -> &'static str {
    let containers = || {
        ["/spec/containers", "/spec/initContainers"]
            .into_iter()
            .filter_map(|list| pod.pointer(list).and_then(Value::as_array))
            .flatten()
    };
    let counted = ["cpu", "memory"];
    let value =
        |container: &Value, part: &str, name: &str| container.pointer(&format!("/resources/{part}/{name}")).cloned();
    let any = containers().any(|container| {
        counted
            .iter()
            .any(|name| value(container, "requests", name).is_some() || value(container, "limits", name).is_some())
    });
    if !any {
        return "BestEffort";
    }
    let guaranteed = containers().all(|container| {
        counted.iter().all(|name| {
            let limit = value(container, "limits", name);
            limit.is_some() && value(container, "requests", name).is_none_or(|request| Some(request) == limit)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

/// Since when a Pod counts as available (`minReadySeconds` after it became ready); may be in the future.
pub(crate) fn available_from(pod: &Value, min_ready_seconds: i64) -> Option<Timestamp> {
    let ready = condition::find(pod.get("status")?, "Ready")?;
    if object::text(ready, "/status") != "True" {
        return None;
    }
    let since: Timestamp = object::text(ready, "/lastTransitionTime").parse().ok()?;
    since.checked_add(SignedDuration::from_secs(min_ready_seconds)).ok()
}

/// A Pod from a template, before its name: metadata of the template and the spec word by word.
pub(crate) fn from_template(template: &Value, namespace: &str, name: &str, owner: Value) -> Value {
    let mut metadata = json!({"name": name, "namespace": namespace, "ownerReferences": [owner]});
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.pointer(&format!("/metadata/{field}")) {
            metadata[field] = value.clone();
        }
    }
    let spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// The order in which a ReplicaSet gives Pods up (`controller.ActivePods`): unassigned, then pending, then not ready,
/// then the youngest; names decide the rest.
pub(crate) fn cheapest_first(pods: &mut [Arc<Value>]) {
    let cost = |pod: &Arc<Value>| {
        (
            !object::text(pod, "/spec/nodeName").is_empty(),
            object::text(pod, "/status/phase") == "Running",
            is_ready(pod),
            std::cmp::Reverse(object::text(pod, "/metadata/creationTimestamp").to_owned()),
            object::name(pod).to_owned(),
        )
    };
    pods.sort_by_cached_key(cost);
}
