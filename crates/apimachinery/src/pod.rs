//! The state of Pods: phase, readiness, scheduling gates and QoS class.

use jiff::Timestamp;
use serde_json::Value;

use crate::condition::{self, Condition};
use crate::{object, time};

/// `PodScheduled` condition of a Pod with scheduling gates.
pub const SCHEDULING_GATED: Condition<'static> = Condition {
    type_: "PodScheduled",
    status: false,
    reason: "SchedulingGated",
    message: "Scheduling is blocked due to non-empty scheduling gates",
};

/// Whether the phase of the Pod is `Succeeded` or `Failed`.
pub fn is_finished(pod: &Value) -> bool {
    matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether the Pod is neither finished nor being deleted: only such Pods count as replicas (`IsPodActive`).
pub fn is_active(pod: &Value) -> bool {
    !object::is_deleting(pod) && !is_finished(pod)
}

/// Whether the condition `Ready` is `True`.
pub fn is_ready(pod: &Value) -> bool {
    condition::is_true(pod, "Ready")
}

/// Returns when the Pod becomes available (`minReadySeconds` after it became ready); the time may be in the future.
/// `None` when the Pod is not ready. Without `minReadySeconds`, a ready Pod is available whatever the clocks say
/// (`IsPodAvailable`).
pub fn available_from(pod: &Value, min_ready_seconds: i64) -> Option<Timestamp> {
    let ready = condition::find(pod.get("status")?, "Ready")?;
    if object::text(ready, "/status") != "True" {
        return None;
    }
    if min_ready_seconds == 0 {
        return Some(Timestamp::MIN);
    }
    let transition_time: Timestamp = object::text(ready, "/lastTransitionTime").parse().ok()?;
    Some(time::add_seconds(transition_time, min_ready_seconds))
}

/// Reports whether the Pod has scheduling gates.
pub fn is_gated(pod: &Value) -> bool {
    pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty())
}

/// Returns the QoS class according to the requests and limits of the containers: `Guaranteed`, `Burstable` or
/// `BestEffort`.
pub fn qos_class(pod: &Value) -> &'static str {
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
