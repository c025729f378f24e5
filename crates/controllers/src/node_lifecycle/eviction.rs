//! Taint-based eviction: decides which Pods are evicted from a node with `NoExecute` taints, and when.

use apimachinery::{object, time};
use jiff::Timestamp;
use serde_json::Value;

use crate::toleration::tolerates;

/// The result of checking a Pod against the taints of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TolerationStatus {
    /// The Pod may stay.
    Tolerated,
    /// The Pod may stay until this time.
    TemporarilyTolerated(Timestamp),
    /// The Pod has to be evicted.
    NotTolerated,
}

/// Returns whether the Pod may stay: every `NoExecute` taint must be tolerated, and the shortest `tolerationSeconds`
/// since the taint was added applies.
pub(super) fn check_toleration(pod: &Value, node: &Value, now: Timestamp) -> TolerationStatus {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    let mut earliest_expiry: Option<Timestamp> = None;
    for taint in taints.filter(|taint| object::text(taint, "/effect") == "NoExecute") {
        let tolerations = pod.pointer("/spec/tolerations").and_then(Value::as_array).into_iter().flatten();
        let mut matching = tolerations.filter(|toleration| tolerates(toleration, taint)).peekable();
        if matching.peek().is_none() {
            return TolerationStatus::NotTolerated;
        }
        let seconds = matching.filter_map(|toleration| toleration.get("tolerationSeconds")?.as_i64()).min();
        let Some(seconds) = seconds else { continue };
        let added_at = object::text(taint, "/timeAdded").parse().unwrap_or(now);
        let expires_at = time::add_seconds(added_at, seconds.max(0));
        earliest_expiry = Some(earliest_expiry.map_or(expires_at, |earliest| earliest.min(expires_at)));
    }
    match earliest_expiry {
        None => TolerationStatus::Tolerated,
        Some(expires_at) if expires_at <= now => TolerationStatus::NotTolerated,
        Some(expires_at) => TolerationStatus::TemporarilyTolerated(expires_at),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-01T00:10:00Z";

    fn taint_added_at(minute: u32) -> Value {
        json!({"key": "lost", "effect": "NoExecute", "timeAdded": format!("2026-01-01T00:{minute:02}:00Z")})
    }

    fn tolerated_until(minute: u32) -> TolerationStatus {
        TolerationStatus::TemporarilyTolerated(format!("2026-01-01T00:{minute:02}:00Z").parse().unwrap())
    }

    #[rstest]
    #[case::no_taint(json!([]), json!([]), TolerationStatus::Tolerated)]
    #[case::other_effect(json!([{"key": "lost", "effect": "NoSchedule"}]), json!([]), TolerationStatus::Tolerated)]
    #[case::not_tolerated(json!([taint_added_at(9)]), json!([]), TolerationStatus::NotTolerated)]
    #[case::without_limit(json!([taint_added_at(9)]), json!([{"key": "lost", "operator": "Exists"}]), TolerationStatus::Tolerated)]
    #[case::temporarily(json!([taint_added_at(9)]), json!([{"key": "lost", "operator": "Exists", "tolerationSeconds": 300}]), tolerated_until(14))]
    #[case::longest(
        json!([taint_added_at(9)]),
        json!([{"key": "lost", "operator": "Exists", "tolerationSeconds": i64::MAX}]),
        TolerationStatus::TemporarilyTolerated(Timestamp::MAX)
    )]
    #[case::expired(json!([taint_added_at(1)]), json!([{"key": "lost", "operator": "Exists", "tolerationSeconds": 300}]), TolerationStatus::NotTolerated)]
    #[case::shortest_toleration(
        json!([taint_added_at(9), {"key": "more", "effect": "NoExecute", "timeAdded": NOW}]),
        json!([{"operator": "Exists", "tolerationSeconds": 600}, {"key": "more", "operator": "Exists", "tolerationSeconds": 60}]),
        tolerated_until(11)
    )]
    #[case::one_of_two_tolerated(json!([taint_added_at(9), {"key": "more", "effect": "NoExecute"}]), json!([{"key": "lost", "operator": "Exists"}]), TolerationStatus::NotTolerated)]
    fn evaluates_tolerations(#[case] taints: Value, #[case] tolerations: Value, #[case] expect: TolerationStatus) {
        let (pod, node) = (json!({"spec": {"tolerations": tolerations}}), json!({"spec": {"taints": taints}}));
        assert_eq!(check_toleration(&pod, &node, NOW.parse().unwrap()), expect);
    }
}
