//! Taints and cordoned nodes: the `TaintToleration` and `NodeUnschedulable` plugins.

use apimachinery::object;
use serde_json::{Value, json};

use super::reason::UnschedulableReason;
use crate::toleration::is_tolerated;

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
