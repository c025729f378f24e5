//! PodDisruptionBudgets: how many Pods may be evicted right now.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::selector::LabelSelector;
use serde_json::{Value, json};

use super::action::Plan;
use super::{condition, deployment, ownership, pod, replica_set, rolling, stateful_set};
use crate::Server;
use crate::object;

pub(crate) const BUDGETS: &str = "poddisruptionbudgets.policy";

/// A controller of Pods, by uid, and how many it wants.
pub(crate) type Scale = (String, i64);

/// Keeps `status` of one budget.
pub(crate) fn plan(budget: &Value, pods: &[Arc<Value>], scale: impl Fn(&Value) -> Option<Scale>, now: &str) -> Plan {
    let mut plan = Plan::default();
    let mut wanted = status(budget, pods, scale);
    let allowed = number(&wanted, "disruptionsAllowed") > 0;
    wanted["conditions"] = budget.pointer("/status/conditions").cloned().unwrap_or_else(|| json!([]));
    let reason = if allowed { "SufficientPods" } else { "InsufficientPods" };
    let told = condition::Condition { kind: "DisruptionAllowed", status: allowed, reason, message: "" };
    condition::set(&mut wanted, told, now);
    plan.status(BUDGETS, budget, wanted);
    plan
}

/// Whether the budget is about this Pod.
pub(crate) fn covers(budget: &Value, pod: &Value) -> bool {
    let Some(selector) = budget.pointer("/spec/selector").filter(|selector| !selector.is_null()) else { return false };
    object::namespace(budget) == object::namespace(pod)
        && LabelSelector::from_json(selector).is_ok_and(|selector| selector.matches(&ownership::labels(pod)))
}

/// The counts of a budget, without conditions.
pub(crate) fn status(budget: &Value, pods: &[Arc<Value>], scale: impl Fn(&Value) -> Option<Scale>) -> Value {
    let covered: Vec<&Arc<Value>> = pods.iter().filter(|pod| covers(budget, pod) && !is_finished(pod)).collect();
    let healthy = count(covered.iter().filter(|pod| !object::is_deleting(pod) && pod::is_ready(pod)).count());
    let wanted = || {
        // A Pod without a controller that can be scaled stands for itself.
        let own = |pod: &Arc<Value>| scale(pod).unwrap_or_else(|| (object::uid(pod).to_owned(), 1));
        let all: BTreeMap<String, i64> = covered.iter().map(|pod| own(pod)).collect();
        all.values().sum::<i64>()
    };
    let (most, least) = (budget.pointer("/spec/maxUnavailable"), budget.pointer("/spec/minAvailable"));
    let (expected, desired) = match (most, least) {
        (Some(most), _) => {
            let expected = wanted();
            (expected, expected - rolling::amount(Some(most), expected, true))
        }
        (None, Some(least)) if least.is_string() => {
            let expected = wanted();
            (expected, rolling::amount(Some(least), expected, true))
        }
        (None, least) => (count(covered.len()), least.and_then(Value::as_i64).unwrap_or(0)),
    };
    let desired = desired.max(0);
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    json!({
        "currentHealthy": healthy, "desiredHealthy": desired, "disruptionsAllowed": allowed,
        "expectedPods": expected, "observedGeneration": budget["metadata"]["generation"],
    })
}

/// The controller of a Pod and how many Pods it wants.
pub(crate) fn scale(server: &Server, pod: &Value) -> Option<Scale> {
    // A worker of a group belongs to its leader, and both to the set.
    let leader = ownership::controller(pod).filter(|owner| object::text(owner, "/kind") == "Pod");
    let leader = leader.and_then(|leader| server.get("pods", object::namespace(pod), object::text(leader, "/name")));
    let owner = ownership::controller(leader.as_deref().unwrap_or(pod))?;
    let (kind, name) = (object::text(owner, "/kind"), object::text(owner, "/name"));
    let namespace = object::namespace(pod);
    let (object, pods_each) = match kind {
        "ReplicaSet" => {
            let set = server.get(replica_set::RESOURCE, namespace, name)?;
            let above = ownership::controller(&set).filter(|above| object::text(above, "/kind") == "Deployment");
            let deployment =
                above.and_then(|above| server.get(deployment::RESOURCE, namespace, object::text(above, "/name")));
            (deployment.unwrap_or(set), 1)
        }
        "StatefulSet" => (server.get(stateful_set::RESOURCE, namespace, name)?, 1),
        "LeaderWorkerSet" => {
            let set = server.get(super::leader_worker_set::RESOURCE, namespace, name)?;
            let size = set.pointer("/spec/leaderWorkerTemplate/size").and_then(Value::as_i64).unwrap_or(1);
            (set, size)
        }
        _ => return None,
    };
    Some((object::uid(&object).to_owned(), replica_set::replicas(&object) * pods_each))
}

/// Whether no budget is asked: the Pod serves nobody.
pub(crate) fn may_always_go(pod: &Value) -> bool {
    object::is_deleting(pod) || is_finished(pod) || object::text(pod, "/status/phase") == "Pending"
}

/// Whether a Pod that is not ready may go by the budget's `unhealthyPodEvictionPolicy`.
pub(crate) fn unready_may_go(budget: &Value, status: &Value) -> bool {
    match object::text(budget, "/spec/unhealthyPodEvictionPolicy") {
        "AlwaysAllow" => true,
        _ => {
            let desired = number(status, "desiredHealthy");
            desired > 0 && number(status, "currentHealthy") >= desired
        }
    }
}

fn is_finished(pod: &Value) -> bool {
    matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed")
}

fn number(status: &Value, field: &str) -> i64 {
    status.get(field).and_then(Value::as_i64).unwrap_or(0)
}

fn count(pods: usize) -> i64 {
    i64::try_from(pods).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Pods of one set of `replicas`, so many of them ready.
    fn pods(all: usize, ready: usize) -> Vec<Arc<Value>> {
        let pod = |at: usize| {
            let ready = if at < ready { "True" } else { "False" };
            Arc::new(json!({
                "metadata": {"namespace": "n", "name": format!("p-{at}"), "labels": {"app": "x"}},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
            }))
        };
        (0..all).map(pod).collect()
    }

    /// Disruptions allowed, healthy Pods desired, Pods expected; the set wants four.
    #[rstest]
    #[case::at_least(json!({"minAvailable": 2}), 3, 3, [1, 2, 3])]
    #[case::at_least_half(json!({"minAvailable": "50%"}), 3, 3, [1, 2, 4])]
    #[case::at_most(json!({"maxUnavailable": 1}), 4, 4, [1, 3, 4])]
    #[case::some_are_down(json!({"maxUnavailable": 1}), 4, 3, [0, 3, 4])]
    #[case::some_are_missing(json!({"maxUnavailable": "25%"}), 3, 3, [0, 3, 4])]
    #[case::nobody(json!({"minAvailable": 0}), 0, 0, [0, 0, 0])]
    fn budgets(#[case] rule: Value, #[case] all: usize, #[case] ready: usize, #[case] expect: [i64; 3]) {
        let mut spec = rule;
        spec["selector"] = json!({"matchLabels": {"app": "x"}});
        let budget = json!({"metadata": {"namespace": "n", "name": "b"}, "spec": spec});
        let status = status(&budget, &pods(all, ready), |_| Some(("set".to_owned(), 4)));
        assert_eq!(["disruptionsAllowed", "desiredHealthy", "expectedPods"].map(|it| number(&status, it)), expect);
    }
}
