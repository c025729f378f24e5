//! The properties of Pods that the scheduler reads.

use std::sync::Arc;

use apimachinery::{object, pod};
use serde_json::Value;

/// Pod annotation that names the PodGroup of the Pod.
pub(super) const GROUP_NAME: &str = "scheduling.k8s.io/group-name";

/// Whether the Pod has a node and has not finished.
pub(super) fn is_bound(pod: &Value) -> bool {
    !object::text(pod, "/spec/nodeName").is_empty() && !pod::is_finished(pod)
}

/// Whether this scheduler is responsible for the Pod and the Pod has no node yet.
pub(super) fn is_pending(pod: &Value) -> bool {
    object::text(pod, "/spec/nodeName").is_empty()
        && !object::is_deleting(pod)
        && !pod::is_finished(pod)
        && matches!(object::text(pod, "/spec/schedulerName"), "" | "default-scheduler" | "volcano")
}

/// Returns the namespace and name of the Volcano PodGroup of a Pod.
pub(super) fn pod_group_of(pod: &Value) -> Option<(String, String)> {
    if object::text(pod, "/spec/schedulerName") != "volcano" {
        return None;
    }
    let name = pod.pointer("/metadata/annotations")?.get(GROUP_NAME)?.as_str()?;
    Some((object::namespace(pod).to_owned(), name.to_owned()))
}

/// Returns the Pods of a PodGroup that are bound to a node.
pub(super) fn bound_members(group: &(String, String), pods: &[Arc<Value>]) -> Vec<Arc<Value>> {
    pods.iter().filter(|pod| is_bound(pod) && pod_group_of(pod).as_ref() == Some(group)).cloned().collect()
}

/// Returns `spec.priority`, or 0 if it is absent.
pub(super) fn priority(pod: &Value) -> i64 {
    pod.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or(0)
}
