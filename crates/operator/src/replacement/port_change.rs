//! Rollouts of workloads whose new Pods serve on another port than the old ones.
//!
//! A route has one port, so it switches once as many Pods serve on the new port as on the old one. The first group of a
//! LeaderWorkerSet, which is updated last, is not updated until then (`partition`). The Deployment controller
//! stops an old Pod for each new Pod that is available, so it could stop the last old one before the operator has switched the
//! routes, or while no operator runs. Until the routes have switched, ready Pods are therefore not available for the controller
//! (`minReadySeconds`), and each of them permits one more unavailable Pod, so that the rollout continues only with the operator.

use serde_json::{Value, json};

use crate::kinds::LEADER_WORKER_SET;

/// Seconds until a new Pod is available while the routes have the old port. It bounds how long the rollout waits for an
/// operator, and is less than the default of `progressDeadlineSeconds`.
const UNSWITCHED_MIN_READY_SECONDS: u32 = 300;

/// Seconds until a new Pod is available once the routes have the new port: gateways and proxies observe the switch before the
/// last old Pod stops.
const SWITCHED_MIN_READY_SECONDS: u32 = 10;

/// A workload with Pods that serve on another port than the planned one, seen by one route.
#[derive(Clone, Debug)]
pub(super) struct PortChange {
    /// Name of the Deployment or LeaderWorkerSet.
    pub(super) workload: String,
    /// Number of serving Pods with the port of the live route.
    pub(super) old: usize,
    /// Number of serving Pods with the planned port.
    pub(super) new: usize,
    /// Whether the live route has the planned port.
    pub(super) has_switched: bool,
}

/// Limits the rollout of the planned workload while its Pods serve on different ports. `changes` are those of all routes.
pub(super) fn limit_rollout(workload: &mut Value, changes: &[PortChange]) {
    let changes = || changes.iter().filter(|change| workload["metadata"]["name"] == change.workload);
    let Some(change) = changes().find(|change| !change.has_switched).or_else(|| changes().next()).cloned() else {
        return;
    };
    match workload["kind"] == LEADER_WORKER_SET.kind {
        true => limit_groups(workload, &change),
        false => limit_deployment(workload, &change),
    }
}

/// Retains the first group until the routes have switched, unless all groups stop before new ones start.
fn limit_groups(set: &mut Value, change: &PortChange) {
    let replicas = set["spec"]["replicas"].as_u64().unwrap_or(1);
    let limits = &mut set["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"];
    let is_recreated = limits["maxSurge"] == 0 && limits["maxUnavailable"].as_u64().is_none_or(|max| max >= replicas);
    if !is_recreated && !change.has_switched {
        limits["partition"] = json!(limits["partition"].as_u64().unwrap_or(0).max(1));
    }
}

fn limit_deployment(deployment: &mut Value, change: &PortChange) {
    let &PortChange { old, new, has_switched, .. } = change;
    let spec = &mut deployment["spec"];
    if spec["strategy"]["type"] == "Recreate" {
        return;
    }
    spec["minReadySeconds"] =
        json!(if has_switched { SWITCHED_MIN_READY_SECONDS } else { UNSWITCHED_MIN_READY_SECONDS });
    let limits = &mut spec["strategy"]["rollingUpdate"];
    if let (Some(max_surge), Some(max_unavailable)) = (limits["maxSurge"].as_u64(), limits["maxUnavailable"].as_u64())
        && old > new
        && !has_switched
    {
        let ready = u64::try_from(new).unwrap_or(u64::MAX);
        let step = ready.saturating_add(1).saturating_sub(max_surge);
        limits["maxUnavailable"] = json!(max_unavailable.max(step));
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Columns: Pods on the old and on the new port, whether the route has switched, limits of the strategy, expected
    /// `minReadySeconds` and `maxUnavailable`.
    #[rstest]
    #[case::begins(2, 0, false, (1, 0), 300, 0)]
    #[case::first_is_ready(2, 1, false, (1, 0), 300, 1)]
    #[case::switches_now(1, 1, false, (1, 0), 300, 0)]
    #[case::only_pod(1, 1, false, (1, 0), 300, 0)]
    #[case::has_switched(1, 1, true, (1, 0), 10, 0)]
    #[case::in_place_begins(4, 0, false, (0, 1), 300, 1)]
    #[case::in_place_continues(3, 1, false, (0, 1), 300, 2)]
    #[case::in_place_pair(2, 0, false, (0, 1), 300, 1)]
    #[case::in_place_switches_now(1, 1, false, (0, 1), 300, 1)]
    #[case::several_do_not_fit(4, 1, false, (0, 3), 300, 3)]
    fn old_pods_stop_for_ready_ones_before_the_switch(
        #[case] old: usize,
        #[case] new: usize,
        #[case] has_switched: bool,
        #[case] (max_surge, max_unavailable): (u32, u32),
        #[case] min_ready_seconds: u32,
        #[case] expected: u32,
    ) {
        let change = PortChange { workload: "chat-engine".to_owned(), old, new, has_switched };
        let limits = json!({"maxSurge": max_surge, "maxUnavailable": max_unavailable});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": limits});
        let mut deployment = json!({"metadata": {"name": "chat-engine"}, "spec": {"strategy": strategy}});
        let unrelated = PortChange { workload: "chat-decoder".to_owned(), ..change.clone() };
        let planned = deployment.clone();
        limit_rollout(&mut deployment, std::slice::from_ref(&unrelated));
        assert_eq!(deployment, planned);
        limit_rollout(&mut deployment, &[unrelated, change]);
        assert_eq!(deployment["spec"]["minReadySeconds"], min_ready_seconds);
        assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], expected);
    }

    /// Columns: whether the route has switched, limits of the strategy, `partition` of the strategy, expected `partition`.
    #[rstest]
    #[case::begins(false, (1, 0), 0, 1)]
    #[case::has_switched(true, (1, 0), 0, 0)]
    #[case::is_paused(false, (1, 0), 2, 2)]
    #[case::in_place(false, (0, 1), 0, 1)]
    #[case::all_groups_stop_first(false, (0, 2), 0, 0)]
    fn first_group_is_retained_before_the_switch(
        #[case] has_switched: bool,
        #[case] (max_surge, max_unavailable): (u32, u32),
        #[case] partition: u32,
        #[case] expected: u32,
    ) {
        let limits = json!({"partition": partition, "maxSurge": max_surge, "maxUnavailable": max_unavailable});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdateConfiguration": limits});
        let mut set = json!({"kind": LEADER_WORKER_SET.kind, "metadata": {"name": "chat-engine"},
            "spec": {"replicas": 2, "rolloutStrategy": strategy}});
        let change = PortChange { workload: "chat-engine".to_owned(), old: 2, new: 0, has_switched };
        limit_rollout(&mut set, &[change]);
        assert_eq!(set["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["partition"], expected);
    }
}
