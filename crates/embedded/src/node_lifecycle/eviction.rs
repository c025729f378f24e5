//! Who has to leave a node with `NoExecute` taints, and when.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::object;
use crate::scheduler::tolerates;

/// What a Pod does on a node with these taints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stay {
    /// For good.
    Allowed,
    /// It tolerates them for a time.
    Until(Timestamp),
    /// It does not tolerate them.
    Over,
}

/// Every `NoExecute` taint must be tolerated; the shortest time counts, from when the last of them was added.
pub(super) fn stay(pod: &Value, node: &Value, now: Timestamp) -> Stay {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    let mut until: Option<Timestamp> = None;
    for taint in taints.filter(|taint| object::text(taint, "/effect") == "NoExecute") {
        let tolerations = pod.pointer("/spec/tolerations").and_then(Value::as_array).into_iter().flatten();
        let mut fitting = tolerations.filter(|toleration| tolerates(toleration, taint)).peekable();
        if fitting.peek().is_none() {
            return Stay::Over;
        }
        let seconds = fitting.filter_map(|toleration| toleration.get("tolerationSeconds")?.as_i64()).min();
        let Some(seconds) = seconds else { continue };
        let added = object::text(taint, "/timeAdded").parse().unwrap_or(now);
        let at = added + SignedDuration::from_secs(seconds.max(0));
        until = Some(until.map_or(at, |earlier| earlier.min(at)));
    }
    match until {
        None => Stay::Allowed,
        Some(at) if at <= now => Stay::Over,
        Some(at) => Stay::Until(at),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-01T00:10:00Z";

    fn added(minute: u32) -> Value {
        json!({"key": "lost", "effect": "NoExecute", "timeAdded": format!("2026-01-01T00:{minute:02}:00Z")})
    }

    fn until(minute: u32) -> Stay {
        Stay::Until(format!("2026-01-01T00:{minute:02}:00Z").parse().unwrap())
    }

    #[rstest]
    #[case::no_taint(json!([]), json!([]), Stay::Allowed)]
    #[case::another_effect(json!([{"key": "lost", "effect": "NoSchedule"}]), json!([]), Stay::Allowed)]
    #[case::not_tolerated(json!([added(9)]), json!([]), Stay::Over)]
    #[case::for_good(json!([added(9)]), json!([{"key": "lost", "operator": "Exists"}]), Stay::Allowed)]
    #[case::for_a_time(json!([added(9)]), json!([{"key": "lost", "operator": "Exists", "tolerationSeconds": 300}]), until(14))]
    #[case::that_is_over(json!([added(1)]), json!([{"key": "lost", "operator": "Exists", "tolerationSeconds": 300}]), Stay::Over)]
    #[case::the_shortest(
        json!([added(9), {"key": "more", "effect": "NoExecute", "timeAdded": NOW}]),
        json!([{"operator": "Exists", "tolerationSeconds": 600}, {"key": "more", "operator": "Exists", "tolerationSeconds": 60}]),
        until(11)
    )]
    #[case::only_one_of_two(json!([added(9), {"key": "more", "effect": "NoExecute"}]), json!([{"key": "lost", "operator": "Exists"}]), Stay::Over)]
    fn stays(#[case] taints: Value, #[case] tolerations: Value, #[case] expect: Stay) {
        let (pod, node) = (json!({"spec": {"tolerations": tolerations}}), json!({"spec": {"taints": taints}}));
        assert_eq!(stay(&pod, &node, NOW.parse().unwrap()), expect);
    }
}
