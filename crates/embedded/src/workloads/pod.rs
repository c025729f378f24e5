//! Properties of Pods that controllers use.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::condition;
use crate::object;

/// Whether the Pod is neither finished nor being deleted: only such Pods count as replicas (`IsPodActive`).
pub(crate) fn is_active(pod: &Value) -> bool {
    !object::is_deleting(pod) && !matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether the condition `Ready` is `True`.
pub(crate) fn is_ready(pod: &Value) -> bool {
    condition::is_true(pod, "Ready")
}

/// Returns the QoS class according to the requests and limits of the containers: `Guaranteed`, `Burstable` or
/// `BestEffort`.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let containers = || {
        ["/spec/containers", "/spec/initContainers"]
            .into_iter()
            .filter_map(|list| pod.pointer(list).and_then(Value::as_array))
            .flatten()
    };
    let resources = ["cpu", "memory"];
    let value =
        |container: &Value, list: &str, name: &str| container.pointer(&format!("/resources/{list}/{name}")).cloned();
    let has_resources = containers().any(|container| {
        resources
            .iter()
            .any(|name| value(container, "requests", name).is_some() || value(container, "limits", name).is_some())
    });
    if !has_resources {
        return "BestEffort";
    }
    let is_guaranteed = containers().all(|container| {
        resources.iter().all(|name| {
            let limit = value(container, "limits", name);
            limit.is_some() && value(container, "requests", name).is_none_or(|request| Some(request) == limit)
        })
    });
    if is_guaranteed { "Guaranteed" } else { "Burstable" }
}

/// Returns when the Pod becomes available (`minReadySeconds` after it became ready); the time may be in the future.
/// `None` when the Pod is not ready.
pub(crate) fn available_from(pod: &Value, min_ready_seconds: i64) -> Option<Timestamp> {
    let ready = condition::find(pod.get("status")?, "Ready")?;
    if object::text(ready, "/status") != "True" {
        return None;
    }
    let transition_time: Timestamp = object::text(ready, "/lastTransitionTime").parse().ok()?;
    transition_time.checked_add(SignedDuration::from_secs(min_ready_seconds)).ok()
}

/// Returns a Pod with the metadata and spec of a Pod template.
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

/// Sorts Pods in the order in which a ReplicaSet deletes them (`controller.ActivePods`): unassigned, then pending,
/// then not ready, then the youngest, then by name.
pub(crate) fn sort_for_deletion(pods: &mut [Arc<Value>]) {
    let deletion_order = |pod: &Arc<Value>| {
        (
            !object::text(pod, "/spec/nodeName").is_empty(),
            object::text(pod, "/status/phase") == "Running",
            is_ready(pod),
            std::cmp::Reverse(object::text(pod, "/metadata/creationTimestamp").to_owned()),
            object::name(pod).to_owned(),
        )
    };
    pods.sort_by_cached_key(deletion_order);
}
