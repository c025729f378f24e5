//! Rolling updates of the groups of a LeaderWorkerSet: how many groups exist during an update, and which of them are
//! recreated.
//!
//! The rules are those of `rollingUpdateParameters` in LeaderWorkerSet 0.9. The real controller stores the number of
//! groups and the partition in the StatefulSet of the leaders; here, both are derived from the existing groups.

use apimachinery::{condition, object, scaled_int_or_percent};
use serde_json::Value;

/// Limits of a rolling update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RollingUpdate {
    /// Desired groups.
    pub(super) replicas: i64,
    /// Groups with a lower index are not updated.
    pub(super) partition: i64,
    /// Additional groups during an update, at most `replicas`.
    pub(super) max_surge: i64,
    /// Desired groups that may be unavailable during an update.
    pub(super) max_unavailable: i64,
}

/// State of an existing group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupState {
    pub(super) index: i64,
    /// Whether all Pods are ready.
    pub(super) is_ready: bool,
    /// Whether the leader has an earlier revision.
    pub(super) is_outdated: bool,
}

/// Returns whether the condition `UpdateInProgress` is true: from the first outdated group until all groups are ready.
pub(super) fn is_update_in_progress(set: &Value) -> bool {
    let condition = set.get("status").and_then(|status| condition::find(status, "UpdateInProgress"));
    condition.is_some_and(|condition| object::text(condition, "/status") == "True")
}

// === impl RollingUpdate ===

impl RollingUpdate {
    /// Reads the limits of a set with this number of desired groups.
    pub(super) fn new(set: &Value, replicas: i64) -> Self {
        let field = |field: &str| set.pointer(&format!("/spec/rolloutStrategy/rollingUpdateConfiguration/{field}"));
        let scaled = |name: &str, default: i64, round_up: bool| {
            field(name).map_or(default, |value| scaled_int_or_percent(Some(value), replicas, round_up))
        };
        let max_surge = scaled("maxSurge", 0, true).clamp(0, replicas.max(0));
        let max_unavailable = scaled("maxUnavailable", 1, false);
        // The webhook of the real controller rejects sets with neither; their updates would never end.
        let at_least = i64::from(max_surge == 0);
        Self {
            replicas,
            partition: field("partition").and_then(Value::as_i64).unwrap_or(0),
            max_surge,
            max_unavailable: max_unavailable.max(at_least),
        }
    }

    /// Returns the number of groups: the desired ones, and during an update as many additional ones as replace desired groups
    /// that are outdated or not ready. `groups` are the existing groups; `is_in_progress`: whether an update has begun.
    pub(super) fn group_count(&self, groups: &[GroupState], is_in_progress: bool) -> i64 {
        let is_in_progress =
            is_in_progress || groups.iter().any(|group| group.is_outdated || group.index >= self.replicas);
        if !is_in_progress {
            return self.replicas;
        }
        let updated = groups.iter().filter(|g| g.index < self.replicas && g.is_ready && !g.is_outdated).count();
        let remaining = self.replicas.saturating_sub(i64::try_from(updated).unwrap_or(i64::MAX));
        let additional = match remaining <= self.max_surge {
            true => remaining.saturating_sub(self.max_unavailable).max(0),
            false => self.max_surge,
        };
        self.replicas.saturating_add(additional)
    }

    /// Returns the index from which outdated groups are recreated. `groups` are the existing groups, sorted by index.
    pub(super) fn first_updated(&self, groups: &[GroupState]) -> i64 {
        let last = groups.last().map_or(0, |group| group.index.saturating_add(1));
        let existing = last.clamp(self.replicas, self.replicas.saturating_add(self.max_surge));
        // Each additional group replaces one that is recreated.
        let step = self.max_unavailable.saturating_add(existing).saturating_sub(self.replicas);
        let updated = updated_at_end(groups, existing);
        let lowest = existing.saturating_sub(updated).saturating_sub(step).max(0);
        // Groups below that are unavailable count against the limit.
        let ready_below = groups.iter().filter(|group| group.index < lowest && group.is_ready).count();
        let unavailable_below = lowest.saturating_sub(i64::try_from(ready_below).unwrap_or(i64::MAX));
        let partition = lowest.saturating_add(unavailable_below);
        // Recreating groups at the end that are not ready interrupts nothing.
        let start = partition.min(existing.saturating_sub(1));
        let is_serving =
            |group: &&GroupState| (lowest..=start).contains(&group.index) && group.is_ready && group.is_outdated;
        let partition = match groups.iter().rev().find(is_serving) {
            Some(group) if group.index == start => partition,
            Some(group) => group.index.saturating_add(1),
            None if start < lowest => partition,
            None => lowest,
        };
        partition.max(self.partition)
    }
}

/// Returns how many of the groups before index `end` are updated and ready, from the last one down.
fn updated_at_end(groups: &[GroupState], end: i64) -> i64 {
    let mut expected = end;
    for group in groups.iter().rev().filter(|group| group.index < end) {
        let next = expected.saturating_sub(1);
        if group.index != next || !group.is_ready || group.is_outdated {
            break;
        }
        expected = next;
    }
    end.saturating_sub(expected)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn limits(replicas: i64, partition: i64, max_surge: i64, max_unavailable: i64) -> RollingUpdate {
        RollingUpdate { replicas, partition, max_surge, max_unavailable }
    }

    /// Parses one character per index: `o` outdated and ready, `x` outdated and not ready, `.` missing, `s` updated and starting,
    /// `u` updated and ready.
    fn states(groups: &str) -> Vec<GroupState> {
        let state = |(index, state): (usize, char)| GroupState {
            index: i64::try_from(index).unwrap(),
            is_ready: matches!(state, 'o' | 'u'),
            is_outdated: matches!(state, 'o' | 'x'),
        };
        groups.chars().enumerate().filter(|(_, state)| *state != '.').map(state).collect()
    }

    /// Columns: limits, existing groups, expected number of groups, expected index of the first group to recreate. The expectations
    /// are those of LeaderWorkerSet 0.9 with StatefulSets of the same size.
    #[rstest]
    #[case::only_group_with_surge_begins(limits(1, 0, 1, 0), "o", 2, 1)]
    #[case::additional_group_starts(limits(1, 0, 1, 0), "os", 2, 1)]
    #[case::additional_group_is_ready(limits(1, 0, 1, 0), "ou", 2, 0)]
    #[case::only_group_starts(limits(1, 0, 1, 0), "su", 2, 0)]
    #[case::only_group_is_recreated(limits(1, 0, 1, 0), ".u", 2, 0)]
    #[case::only_group_is_ready(limits(1, 0, 1, 0), "uu", 1, 0)]
    #[case::only_group_in_place(limits(1, 0, 0, 1), "o", 1, 0)]
    #[case::broken_only_group_waits_for_the_additional_one(limits(1, 0, 1, 0), "xs", 2, 1)]
    #[case::broken_only_group_in_place(limits(1, 0, 0, 1), "x", 1, 0)]
    #[case::template_changes_again(limits(1, 0, 1, 0), "ox", 2, 1)]
    #[case::template_changes_back(limits(1, 0, 1, 0), "ux", 1, 1)]
    #[case::several_with_surge_begin(limits(3, 0, 1, 0), "ooo", 4, 3)]
    #[case::several_with_surge(limits(3, 0, 1, 0), "ooou", 4, 2)]
    #[case::several_with_surge_continue(limits(3, 0, 1, 0), "oouu", 4, 1)]
    #[case::one_at_a_time(limits(3, 0, 1, 0), "oosu", 4, 2)]
    #[case::last_one_of_several(limits(3, 0, 1, 0), "suuu", 4, 0)]
    #[case::several_in_place(limits(3, 0, 0, 1), "ooo", 3, 2)]
    #[case::several_in_place_continue(limits(3, 0, 0, 1), "oou", 3, 1)]
    #[case::both_limits(limits(2, 0, 1, 1), "oo", 3, 1)]
    #[case::both_limits_reclaim_the_additional_group(limits(2, 0, 1, 1), "suu", 2, 0)]
    #[case::unavailable_group_counts(limits(3, 0, 0, 1), "xoo", 3, 3)]
    #[case::unavailable_groups_at_the_end_are_updated_first(limits(3, 0, 0, 1), "oxx", 3, 2)]
    #[case::partition(limits(3, 2, 0, 3), "ooo", 3, 2)]
    #[case::partition_retains_additional_groups(limits(2, 1, 1, 0), "ouu", 3, 1)]
    #[case::scaled_up_during_the_update(limits(3, 0, 1, 0), "ou", 4, 4)]
    #[case::scaled_down(limits(1, 0, 1, 0), "uuu", 1, 0)]
    #[case::scaled_down_while_the_first_starts(limits(1, 0, 1, 0), "suu", 2, 0)]
    #[case::scaled_to_zero(limits(0, 0, 0, 1), "o", 0, 0)]
    fn follows_the_limits(
        #[case] limits: RollingUpdate,
        #[case] groups: &str,
        #[case] expected_groups: i64,
        #[case] expected_first: i64,
    ) {
        let states = states(groups);
        assert_eq!(
            (limits.group_count(&states, true), limits.first_updated(&states)),
            (expected_groups, expected_first)
        );
    }

    /// Columns: existing groups, whether an update is in progress, expected number of groups.
    #[rstest]
    #[case::not_ready("s", false, 1)]
    #[case::not_ready_in_an_update("s", true, 2)]
    #[case::missing("", false, 1)]
    #[case::missing_in_an_update("", true, 2)]
    #[case::outdated("o", false, 2)]
    fn groups_are_additional_only_during_an_update(
        #[case] groups: &str,
        #[case] is_in_progress: bool,
        #[case] expected: i64,
    ) {
        assert_eq!(limits(1, 0, 1, 0).group_count(&states(groups), is_in_progress), expected);
    }

    #[rstest]
    #[case::defaults(json!({}), 2, (0, 1))]
    #[case::no_more_than_the_replicas(json!({"maxSurge": 3, "maxUnavailable": 0}), 2, (2, 0))]
    #[case::percentages(json!({"maxSurge": "30%", "maxUnavailable": "30%"}), 5, (2, 1))]
    #[case::neither(json!({"maxSurge": 0, "maxUnavailable": 0}), 2, (0, 1))]
    fn reads_limits(#[case] configuration: Value, #[case] replicas: i64, #[case] (surge, unavailable): (i64, i64)) {
        let set = json!({"spec": {"rolloutStrategy": {"rollingUpdateConfiguration": configuration}}});
        assert_eq!(RollingUpdate::new(&set, replicas), limits(replicas, 0, surge, unavailable));
    }
}
