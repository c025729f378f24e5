//! Taints and cordoned nodes: the `TaintToleration` and `NodeUnschedulable` plugins.

use apimachinery::object;
use serde_json::{Value, json};

use super::reason::UnschedulableReason;

/// Returns a reason if the node is cordoned and the Pod does not tolerate the `unschedulable` taint.
pub(super) fn node_unschedulable(pod: &Value, node: &Value) -> Option<UnschedulableReason> {
    let taint = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    (node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) && !is_tolerated(pod, &taint))
        .then_some(UnschedulableReason::Unschedulable)
}

/// Returns the first `NoSchedule` or `NoExecute` taint that the Pod does not tolerate.
pub(super) fn untolerated_taint(pod: &Value, node: &Value) -> Option<UnschedulableReason> {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array)?;
    let prevents_scheduling = |taint: &&Value| matches!(object::text(taint, "/effect"), "NoSchedule" | "NoExecute");
    let taint = taints.iter().filter(prevents_scheduling).find(|taint| !is_tolerated(pod, taint))?;
    let text = |pointer: &str| object::text(taint, pointer).to_owned();
    Some(UnschedulableReason::UntoleratedTaint { key: text("/key"), value: text("/value") })
}

/// Whether the Pod has a toleration that matches the taint.
pub(crate) fn is_tolerated(pod: &Value, taint: &Value) -> bool {
    let tolerations = pod.pointer("/spec/tolerations").and_then(Value::as_array);
    tolerations.into_iter().flatten().any(|toleration| tolerates(toleration, taint))
}

/// Whether the toleration matches the taint.
pub(crate) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (object::text(toleration, "/key"), object::text(toleration, "/effect"));
    let exists = object::text(toleration, "/operator") == "Exists";
    (effect.is_empty() || effect == object::text(taint, "/effect"))
        && (key == object::text(taint, "/key") || key.is_empty() && exists)
        && (exists || object::text(toleration, "/value") == object::text(taint, "/value"))
}
