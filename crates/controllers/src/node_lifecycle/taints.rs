//! Taints derived from the conditions of a node, as in the node lifecycle controller of Kubernetes.

use apimachinery::{condition, object};
use serde_json::{Value, json};

/// Condition type, its status, the taint key, and whether Pods without a toleration are evicted.
const CONDITION_TAINTS: [(&str, &str, &str, bool); 5] = [
    ("Ready", "False", "node.kubernetes.io/not-ready", true),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable", true),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure", false),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure", false),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure", false),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Returns the desired taints of the node: those set by users and those derived from its conditions. `None` when they
/// are up to date.
pub(super) fn desired_taints(node: &Value, now: &str) -> Option<Value> {
    let current = node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_managed = |taint: &Value| {
        let key = object::text(taint, "/key");
        key == UNSCHEDULABLE || CONDITION_TAINTS.iter().any(|(_, _, existing, _)| *existing == key)
    };
    let mut condition_taints: Vec<Value> = Vec::new();
    let is_cordoned = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    if is_cordoned {
        condition_taints.push(json!({"key": UNSCHEDULABLE, "effect": "NoSchedule"}));
    }
    for (type_, status, key, evicts_pods) in CONDITION_TAINTS {
        if !has_condition(node, type_, status) {
            continue;
        }
        condition_taints.push(json!({"key": key, "effect": "NoSchedule"}));
        if evicts_pods {
            condition_taints.push(json!({"key": key, "effect": "NoExecute"}));
        }
    }
    // An existing taint keeps its `timeAdded`.
    for taint in &mut condition_taints {
        let existing = current
            .iter()
            .find(|current_taint| current_taint["key"] == taint["key"] && current_taint["effect"] == taint["effect"]);
        match existing {
            Some(existing) => *taint = existing.clone(),
            None => taint["timeAdded"] = json!(now),
        }
    }
    let mut taints: Vec<Value> = current.iter().filter(|taint| !is_managed(taint)).cloned().collect();
    taints.extend(condition_taints);
    // A taint that a user added with a managed key is retained while the node does not report the corresponding
    // condition.
    let is_retained = |taint: &&Value| {
        is_managed(taint) && !taints.contains(taint) && !has_condition_of_taint(node, object::text(taint, "/key"))
    };
    let retained_taints: Vec<Value> = current.iter().filter(is_retained).cloned().collect();
    taints.extend(retained_taints);
    let is_unchanged = taints.len() == current.len() && taints.iter().all(|taint| current.contains(taint));
    (!is_unchanged).then(|| json!(taints))
}

/// Whether the node has a condition with this status.
fn has_condition(node: &Value, type_: &str, status: &str) -> bool {
    let condition = node.get("status").and_then(|status| condition::find(status, type_));
    condition.is_some_and(|condition| object::text(condition, "/status") == status)
}

/// Whether the node has the condition of this taint key.
fn has_condition_of_taint(node: &Value, key: &str) -> bool {
    let type_ = CONDITION_TAINTS.iter().find(|(_, _, known, _)| *known == key).map(|(type_, ..)| *type_);
    type_.is_none_or(|type_| node.get("status").and_then(|status| condition::find(status, type_)).is_some())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    /// Returns `key:effect` of the desired taints; `unchanged` when nothing has to be written.
    fn desired_keys_and_effects(spec: Value, conditions: &[(&str, &str)]) -> String {
        let conditions: Vec<Value> =
            conditions.iter().map(|(type_, status)| json!({"type": type_, "status": status})).collect();
        let node = json!({"spec": spec, "status": {"conditions": conditions}});
        let Some(taints) = desired_taints(&node, NOW) else { return "unchanged".to_owned() };
        let taint = |taint: &Value| {
            let key = object::text(taint, "/key").rsplit('/').next().unwrap_or_default().to_owned();
            format!("{key}:{}", object::text(taint, "/effect"))
        };
        taints.as_array().unwrap().iter().map(taint).collect::<Vec<_>>().join(" ")
    }

    fn unreachable() -> Value {
        json!({"taints": [
            {"key": "mine", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule", "timeAdded": "earlier"},
            {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "earlier"},
        ]})
    }

    #[rstest]
    #[case::ready(json!({}), &[("Ready", "True")], "unchanged")]
    #[case::not_ready(json!({}), &[("Ready", "False")], "not-ready:NoSchedule not-ready:NoExecute")]
    #[case::unreachable_node(json!({}), &[("Ready", "Unknown")], "unreachable:NoSchedule unreachable:NoExecute")]
    #[case::still_unreachable(unreachable(), &[("Ready", "Unknown")], "unchanged")]
    #[case::reachable_again(unreachable(), &[("Ready", "True")], "mine:NoExecute")]
    #[case::cordoned(json!({"unschedulable": true}), &[("Ready", "True")], "unschedulable:NoSchedule")]
    #[case::uncordoned(json!({"taints": [{"key": UNSCHEDULABLE, "effect": "NoSchedule"}]}), &[("Ready", "True")], "")]
    #[case::disk_pressure(json!({}), &[("Ready", "True"), ("DiskPressure", "True")], "disk-pressure:NoSchedule")]
    fn computes_taints(#[case] spec: Value, #[case] conditions: &[(&str, &str)], #[case] expect: &str) {
        assert_eq!(desired_keys_and_effects(spec, conditions), expect);
    }
}
