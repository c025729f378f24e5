//! Taints that a Pod does not tolerate (`TaintToleration`, `NodeUnschedulable`).

use serde_json::{Value, json};

use super::reason::Reason;
use crate::object;

pub(super) fn unschedulable(pod: &Value, node: &Value) -> Option<Reason> {
    let taint = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    (node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) && !tolerated(pod, &taint))
        .then_some(Reason::Unschedulable)
}

pub(super) fn tainted(pod: &Value, node: &Value) -> Option<Reason> {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array)?;
    let hard = |taint: &&Value| matches!(object::text(taint, "/effect"), "NoSchedule" | "NoExecute");
    let taint = taints.iter().filter(hard).find(|taint| !tolerated(pod, taint))?;
    let part = |pointer: &str| object::text(taint, pointer).to_owned();
    Some(Reason::UntoleratedTaint { key: part("/key"), value: part("/value") })
}

/// Whether any toleration of the Pod covers the taint.
pub(crate) fn tolerated(pod: &Value, taint: &Value) -> bool {
    let tolerations = pod.pointer("/spec/tolerations").and_then(Value::as_array);
    tolerations.into_iter().flatten().any(|toleration| tolerates(toleration, taint))
}

/// Whether one toleration covers the taint.
pub(crate) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (object::text(toleration, "/key"), object::text(toleration, "/effect"));
    let exists = object::text(toleration, "/operator") == "Exists";
    (effect.is_empty() || effect == object::text(taint, "/effect"))
        && (key == object::text(taint, "/key") || key.is_empty() && exists)
        && (exists || object::text(toleration, "/value") == object::text(taint, "/value"))
}
