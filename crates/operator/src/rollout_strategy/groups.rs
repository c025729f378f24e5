//! Groups of a LeaderWorkerSet that its rollout does not reach: while they are not ready, or while it is paused.

use std::collections::BTreeMap;

use cluster::is_terminating;
use plan::labels::GROUP_INDEX;
use serde_json::Value;

use crate::readiness::{Progress, is_pod_ready};
use crate::workloads::LiveWorkload;

/// Returns the number of desired groups that are not ready, but precede a ready one. LeaderWorkerSet updates the last group first
/// and counts these as unavailable, so that without a permitted number it waits until they are ready, which broken ones never are.
/// 0 for a Deployment.
pub(super) fn stalled_groups(live: &LiveWorkload, desired: u32) -> u32 {
    let mut is_ready: BTreeMap<u32, bool> = BTreeMap::new();
    for pod in live.pods() {
        let index = pod["metadata"]["labels"][GROUP_INDEX].as_str().and_then(|index| index.parse().ok());
        let Some(index) = index.filter(|index| *index < desired) else { continue };
        *is_ready.entry(index).or_insert(true) &= is_pod_ready(pod) && !is_terminating(pod);
    }
    let ready = || is_ready.iter().filter(|(_, is_ready)| **is_ready).map(|(index, _)| *index);
    let Some(last) = ready().max() else { return 0 };
    last.saturating_sub(u32::try_from(ready().count().saturating_sub(1)).unwrap_or(u32::MAX))
}

/// Returns the number of groups of a LeaderWorkerSet whose update a pause prevents: when it begins, those that have not been updated.
/// These are the first ones, because the last group is updated first. The number does not change until the pause ends, so
/// that a group that is recreated meanwhile does not release another one.
pub(super) fn paused_groups(set: &Value) -> u32 {
    let partition = &set["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["partition"];
    let count = match partition.as_i64() {
        Some(partition) if partition > 0 => partition,
        _ => Progress::from_workload(set).outdated(),
    };
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// Columns: index of the group of each ready Pod, and of each other Pod; expected number of groups.
    #[rstest]
    #[case::all_ready(&[0, 0, 1], &[], 0)]
    #[case::none_ready(&[], &[0, 1, 2], 0)]
    #[case::last_is_broken(&[0, 1], &[2], 0)]
    #[case::first_is_broken(&[1, 2], &[0], 1)]
    #[case::worker_is_broken(&[0, 1], &[0], 1)]
    #[case::is_missing(&[2], &[0], 2)]
    #[case::additional_group(&[3], &[0, 1, 2], 0)]
    fn broken_groups_precede_a_ready_one(#[case] ready: &[u32], #[case] unready: &[u32], #[case] expected: u32) {
        let pod = |index: &u32, status: &str| -> Value {
            json!({"metadata": {"labels": {GROUP_INDEX: index.to_string()}},
                "status": {"conditions": [{"type": "Ready", "status": status}]}})
        };
        let ready = ready.iter().map(|index| pod(index, "True"));
        let pods = ready.chain(unready.iter().map(|index| pod(index, "False"))).map(Into::into).collect();
        let live = LiveWorkload { object: json!({}).into(), pods, providers: Vec::new() };
        assert_eq!(stalled_groups(&live, 3), expected);
    }

    /// Columns: partition, existing and updated groups, expected number of groups.
    #[rstest]
    #[case::no_rollout(0, (2, 2), 0)]
    #[case::no_group_is_updated(0, (2, 0), 2)]
    #[case::additional_group_is_updated(0, (3, 1), 2)]
    #[case::half_is_updated(0, (3, 2), 1)]
    #[case::group_is_recreated_during_the_pause(2, (2, 1), 2)]
    #[case::number_of_a_user(0, (i64::MAX, 0), u32::MAX)]
    fn groups_that_are_not_updated_are_paused(
        #[case] partition: u32,
        #[case] (existing, updated): (i64, i64),
        #[case] expected: u32,
    ) {
        let set = json!({"spec": {"rolloutStrategy": {"rollingUpdateConfiguration": {"partition": partition}}},
            "status": {"replicas": existing, "updatedReplicas": updated}});
        assert_eq!(paused_groups(&set), expected);
    }
}
