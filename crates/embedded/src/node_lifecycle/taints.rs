//! Which taints follow from a node's conditions, as the node lifecycle controller keeps them.

use serde_json::{Value, json};

use crate::object;
use crate::workloads::condition;

/// Condition, its status, the key, and whether Pods that do not tolerate it have to leave.
const RULES: [(&str, &str, &str, bool); 5] = [
    ("Ready", "False", "node.kubernetes.io/not-ready", true),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable", true),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure", false),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure", false),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure", false),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The taints that the node should have: the user's own, and those of its state. `None` when it has them.
pub(super) fn desired(node: &Value, now: &str) -> Option<Value> {
    let current = node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
    let ours = |taint: &Value| {
        let key = object::text(taint, "/key");
        key == UNSCHEDULABLE || RULES.iter().any(|(_, _, known, _)| *known == key)
    };
    let mut wanted: Vec<Value> = Vec::new();
    let cordoned = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    if cordoned {
        wanted.push(json!({"key": UNSCHEDULABLE, "effect": "NoSchedule"}));
    }
    for (kind, status, key, evicts) in RULES {
        if !is(node, kind, status) {
            continue;
        }
        wanted.push(json!({"key": key, "effect": "NoSchedule"}));
        if evicts {
            wanted.push(json!({"key": key, "effect": "NoExecute"}));
        }
    }
    // One that is there keeps the time since when it is.
    for taint in &mut wanted {
        let known = current.iter().find(|it| it["key"] == taint["key"] && it["effect"] == taint["effect"]);
        match known {
            Some(known) => *taint = known.clone(),
            None => taint["timeAdded"] = json!(now),
        }
    }
    let mut all: Vec<Value> = current.iter().filter(|taint| !ours(taint)).cloned().collect();
    all.extend(wanted);
    // A taint that a user put under one of these keys stays as long as nothing is known of the condition.
    let unknown =
        |taint: &&Value| ours(taint) && !all.contains(taint) && !is_decided(node, object::text(taint, "/key"));
    let kept: Vec<Value> = current.iter().filter(unknown).cloned().collect();
    all.extend(kept);
    let same = all.len() == current.len() && all.iter().all(|taint| current.contains(taint));
    (!same).then(|| json!(all))
}

fn is(node: &Value, kind: &str, status: &str) -> bool {
    let found = node.get("status").and_then(|it| condition::find(it, kind));
    found.is_some_and(|condition| object::text(condition, "/status") == status)
}

/// Whether the node has the condition that speaks about this key.
fn is_decided(node: &Value, key: &str) -> bool {
    let kind = RULES.iter().find(|(_, _, known, _)| *known == key).map(|(kind, ..)| *kind);
    kind.is_none_or(|kind| node.get("status").and_then(|status| condition::find(status, kind)).is_some())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    /// `key:effect` of the taints that a node should have; `as it is` where nothing is to be written.
    fn shown(spec: Value, conditions: &[(&str, &str)]) -> String {
        let conditions: Vec<Value> =
            conditions.iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
        let node = json!({"spec": spec, "status": {"conditions": conditions}});
        let Some(taints) = desired(&node, NOW) else { return "as it is".to_owned() };
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
    #[case::well(json!({}), &[("Ready", "True")], "as it is")]
    #[case::not_ready(json!({}), &[("Ready", "False")], "not-ready:NoSchedule not-ready:NoExecute")]
    #[case::lost(json!({}), &[("Ready", "Unknown")], "unreachable:NoSchedule unreachable:NoExecute")]
    #[case::still_lost(unreachable(), &[("Ready", "Unknown")], "as it is")]
    #[case::back(unreachable(), &[("Ready", "True")], "mine:NoExecute")]
    #[case::cordoned(json!({"unschedulable": true}), &[("Ready", "True")], "unschedulable:NoSchedule")]
    #[case::uncordoned(json!({"taints": [{"key": UNSCHEDULABLE, "effect": "NoSchedule"}]}), &[("Ready", "True")], "")]
    #[case::full(json!({}), &[("Ready", "True"), ("DiskPressure", "True")], "disk-pressure:NoSchedule")]
    fn taints(#[case] spec: Value, #[case] conditions: &[(&str, &str)], #[case] expect: &str) {
        assert_eq!(shown(spec, conditions), expect);
    }
}
