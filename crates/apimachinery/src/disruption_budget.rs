//! PodDisruptionBudgets: how many of the covered Pods may be evicted now.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, reason = "numbers of users enter every computation"))]

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::int_or_percent::scaled_int_or_percent;
use crate::selector::LabelSelector;
use crate::{object, pod};

/// Storage name of PodDisruptionBudgets.
pub const RESOURCE: &str = "poddisruptionbudgets.policy";

/// The UID of a controller and its expected number of Pods.
pub type ExpectedScale = (String, i64);

/// Whether the budget selects this Pod.
pub fn covers(budget: &Value, pod: &Value) -> bool {
    let Some(selector) = budget.pointer("/spec/selector").filter(|selector| !selector.is_null()) else { return false };
    object::namespace(budget) == object::namespace(pod)
        && LabelSelector::from_json(selector).is_ok_and(|selector| selector.matches(&object::labels(pod)))
}

/// Returns the counts of a budget, without conditions.
pub fn compute_status(
    budget: &Value,
    pods: &[Arc<Value>],
    expected_scale: impl Fn(&Value) -> Option<ExpectedScale>,
) -> Value {
    let covered: Vec<&Arc<Value>> = pods.iter().filter(|pod| covers(budget, pod) && !pod::is_finished(pod)).collect();
    let healthy = count(covered.iter().filter(|pod| !object::is_deleting(pod) && pod::is_ready(pod)).count());
    let sum_of_scales = || {
        // A Pod without a scalable controller counts as one expected Pod.
        let scale = |pod: &Arc<Value>| expected_scale(pod).unwrap_or_else(|| (object::uid(pod).to_owned(), 1));
        let scales: BTreeMap<String, i64> = covered.iter().map(|pod| scale(pod)).collect();
        scales.values().copied().fold(0, i64::saturating_add)
    };
    let (max_unavailable, min_available) =
        (budget.pointer("/spec/maxUnavailable"), budget.pointer("/spec/minAvailable"));
    let (expected_pods, desired_healthy) = match (max_unavailable, min_available) {
        (Some(max_unavailable), _) => {
            let expected_pods = sum_of_scales();
            (
                expected_pods,
                expected_pods.saturating_sub(scaled_int_or_percent(Some(max_unavailable), expected_pods, true)),
            )
        }
        (None, Some(min_available)) if min_available.is_string() => {
            let expected_pods = sum_of_scales();
            (expected_pods, scaled_int_or_percent(Some(min_available), expected_pods, true))
        }
        (None, min_available) => (count(covered.len()), min_available.and_then(Value::as_i64).unwrap_or(0)),
    };
    let desired_healthy = desired_healthy.max(0);
    let allowed = if expected_pods <= 0 { 0 } else { healthy.saturating_sub(desired_healthy).max(0) };
    json!({
        "currentHealthy": healthy, "desiredHealthy": desired_healthy, "disruptionsAllowed": allowed,
        "expectedPods": expected_pods, "observedGeneration": budget["metadata"]["generation"],
    })
}

/// Returns the UID of the Pod's controller and its expected number of Pods (`getExpectedScale`). `get` reads an object
/// by storage name, namespace and name.
pub fn expected_scale(pod: &Value, get: impl Fn(&str, &str, &str) -> Option<Arc<Value>>) -> Option<ExpectedScale> {
    // A worker of a LeaderWorkerSet group is controlled by its leader, which the set controls.
    let leader = object::controller_of(pod).filter(|owner| object::text(owner, "/kind") == "Pod");
    let leader = leader.and_then(|leader| get("pods", object::namespace(pod), object::text(leader, "/name")));
    let owner = object::controller_of(leader.as_deref().unwrap_or(pod))?;
    let (kind, name) = (object::text(owner, "/kind"), object::text(owner, "/name"));
    let namespace = object::namespace(pod);
    let (object, pods_per_replica) = match kind {
        "ReplicaSet" => {
            let set = get("replicasets.apps", namespace, name)?;
            let owner = object::controller_of(&set).filter(|owner| object::text(owner, "/kind") == "Deployment");
            let deployment = owner.and_then(|owner| get("deployments.apps", namespace, object::text(owner, "/name")));
            (deployment.unwrap_or(set), 1)
        }
        "StatefulSet" => (get("statefulsets.apps", namespace, name)?, 1),
        "LeaderWorkerSet" => {
            let set = get("leaderworkersets.leaderworkerset.x-k8s.io", namespace, name)?;
            let size = set.pointer("/spec/leaderWorkerTemplate/size").and_then(Value::as_i64).unwrap_or(1);
            (set, size)
        }
        _ => return None,
    };
    let replicas = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    Some((object::uid(&object).to_owned(), replicas.saturating_mul(pods_per_replica)))
}

fn count(pods: usize) -> i64 {
    i64::try_from(pods).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Returns `total` Pods, `ready` of which are ready.
    fn pods(total: usize, ready: usize) -> Vec<Arc<Value>> {
        let pod = |index: usize| {
            let ready = if index < ready { "True" } else { "False" };
            Arc::new(json!({
                "metadata": {"namespace": "n", "name": format!("p-{index}"), "labels": {"app": "x"}},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
            }))
        };
        (0..total).map(pod).collect()
    }

    /// Returns `disruptionsAllowed`, `desiredHealthy` and `expectedPods` for a controller that expects four Pods.
    #[rstest]
    #[case::min_available(json!({"minAvailable": 2}), 3, 3, [1, 2, 3])]
    #[case::min_available_percentage(json!({"minAvailable": "50%"}), 3, 3, [1, 2, 4])]
    #[case::max_unavailable(json!({"maxUnavailable": 1}), 4, 4, [1, 3, 4])]
    #[case::unready_pod(json!({"maxUnavailable": 1}), 4, 3, [0, 3, 4])]
    #[case::missing_pod(json!({"maxUnavailable": "25%"}), 3, 3, [0, 3, 4])]
    #[case::no_pods(json!({"minAvailable": 0}), 0, 0, [0, 0, 0])]
    fn computes_status(
        #[case] spec_fields: Value,
        #[case] total: usize,
        #[case] ready: usize,
        #[case] expect: [i64; 3],
    ) {
        let mut spec = spec_fields;
        spec["selector"] = json!({"matchLabels": {"app": "x"}});
        let budget = json!({"metadata": {"namespace": "n", "name": "b"}, "spec": spec});
        let status = compute_status(&budget, &pods(total, ready), |_| Some(("set".to_owned(), 4)));
        assert_eq!(
            ["disruptionsAllowed", "desiredHealthy", "expectedPods"].map(|field| status[field].as_i64().unwrap()),
            expect
        );
    }
}
