//! Selects the replicas of one role that may be updated now; no I/O.

use std::collections::BTreeSet;

use jiff::Timestamp;

/// Template of a replica compared to the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateState {
    /// The replica does not exist.
    Missing,
    /// The replica has an earlier template.
    Outdated,
    /// The replica has the planned template.
    Current,
}

/// Health of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// The replica serves requests.
    Ready,
    /// Starting or failing.
    Unready,
    /// The scheduler finds no capacity for it.
    Unschedulable,
}

/// Observed state of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaState {
    /// Template compared to the plan.
    pub(super) template: TemplateState,
    /// Whether it serves requests.
    pub(super) health: Health,
    /// End of the minimum ready time of a replica without a readiness probe.
    pub(crate) ready_at: Option<Timestamp>,
}

/// Limits of a rollout.
#[derive(Clone, Copy, Debug)]
pub(super) struct UpdateLimits {
    /// Replicas that may be unavailable at the same time.
    pub(super) max_unavailable: usize,
    /// Maximum number of ready replicas since the rollout began.
    pub(super) max_ready: usize,
    /// Whether a user paused the rollout.
    pub(super) paused: bool,
}

/// Returns the indices of the replicas that may be applied now: unschedulable ones, which serve no requests, then
/// failing ones, and then ready ones as long as enough others are ready.
pub(super) fn updatable_replicas(replicas: &[ReplicaState], limits: UpdateLimits) -> BTreeSet<usize> {
    let is_outdated = |replica: &ReplicaState| replica.template == TemplateState::Outdated;
    let indices_of = |test: &dyn Fn(&ReplicaState) -> bool| -> Vec<usize> {
        replicas.iter().enumerate().filter(|(_, replica)| test(replica)).map(|(index, _)| index).collect()
    };
    let mut updatable: BTreeSet<usize> = indices_of(&|replica| !is_outdated(replica)).into_iter().collect();
    if limits.paused {
        return updatable;
    }
    updatable.extend(indices_of(&|replica| is_outdated(replica) && replica.health == Health::Unschedulable));
    let mut updating = indices_of(&ReplicaState::is_updating).len();
    let mut ready = indices_of(&|replica| replica.health == Health::Ready).len();
    for index in indices_of(&|replica| is_outdated(replica) && replica.health == Health::Unready) {
        if updating < limits.max_unavailable {
            updatable.insert(index);
            updating = updating.saturating_add(1);
        }
    }
    for index in indices_of(&|replica| is_outdated(replica) && replica.health == Health::Ready) {
        if updating < limits.max_unavailable && ready.saturating_add(limits.max_unavailable) > limits.max_ready {
            updatable.insert(index);
            updating = updating.saturating_add(1);
            ready = ready.saturating_sub(1);
        }
    }
    updatable
}

// === impl ReplicaState ===

impl ReplicaState {
    /// Returns whether the replica is updated but not ready. An unschedulable replica does not count because the new
    /// template is not the cause.
    pub(super) fn is_updating(&self) -> bool {
        self.template != TemplateState::Outdated && self.health == Health::Unready
    }

    /// Returns whether the replica serves requests.
    pub(crate) fn is_ready(&self) -> bool {
        self.health == Health::Ready
    }

    /// Returns whether the replica waits for nodes.
    pub(crate) fn is_unschedulable(&self) -> bool {
        self.health == Health::Unschedulable
    }

    /// Returns whether the replica has the planned template.
    pub(crate) fn is_current(&self) -> bool {
        self.template == TemplateState::Current
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Parses replicas: `O` outdated, `C` current, `M` missing; then `r` ready, `u` unready, `w` unschedulable.
    fn parse_replicas(text: &str) -> Vec<ReplicaState> {
        let parse = |word: &str| ReplicaState {
            template: match &word[..1] {
                "O" => TemplateState::Outdated,
                "C" => TemplateState::Current,
                _ => TemplateState::Missing,
            },
            health: match &word[1..] {
                "r" => Health::Ready,
                "w" => Health::Unschedulable,
                _ => Health::Unready,
            },
            ready_at: None,
        };
        text.split_whitespace().map(parse).collect()
    }

    /// Returns the indices of the outdated replicas that may be updated now.
    fn updatable_outdated(text: &str, max_unavailable: usize, max_ready: usize) -> Vec<usize> {
        let replicas = parse_replicas(text);
        let limits = UpdateLimits { max_unavailable, max_ready, paused: false };
        updatable_replicas(&replicas, limits)
            .into_iter()
            .filter(|index| replicas[*index].template == TemplateState::Outdated)
            .collect()
    }

    // spec: TOP-75
    #[rstest]
    #[case::first("Or Or Or", 1, 3, &[0])]
    #[case::waits_for_updating_replica("Cu Or Or", 1, 3, &[])]
    #[case::continues_when_updated_replica_is_ready("Cr Or Or", 1, 3, &[1])]
    #[case::max_unavailable_two("Or Or Or", 2, 3, &[0, 1])]
    #[case::one_of_two_is_updating("Cu Or Or", 2, 3, &[1])]
    #[case::single_replica("Or", 1, 1, &[0])]
    #[case::complete("Cr Cr", 1, 2, &[])]
    #[case::failing_replica_first("Or Ou Or", 1, 2, &[1])]
    #[case::all_failing("Ou Ou", 1, 0, &[0])]
    #[case::undo_after_first_failure("Ou Cr Cr", 1, 3, &[0])]
    #[case::two_failing("Ou Ou Cr", 1, 3, &[0])]
    #[case::waits_for_new_replica("Or Or Mu", 1, 2, &[])]
    #[case::new_replica_fails("Or Or Cu", 1, 2, &[])]
    // An unschedulable replica serves no requests and does not block the others.
    #[case::outdated_unschedulable("Or Ow", 1, 1, &[0, 1])]
    #[case::updated_unschedulable("Or Cw", 1, 1, &[0])]
    #[case::capacity_lost_to_another_service("Cw Or Cr", 1, 2, &[1])]
    // A template that fits on no node makes at most one replica unavailable.
    #[case::new_template_unschedulable("Cw Or", 1, 2, &[])]
    #[case::old_template_unschedulable("Ow Or", 1, 2, &[0])]
    fn selects_updatable_replicas(
        #[case] replicas: &str,
        #[case] max_unavailable: usize,
        #[case] max_ready: usize,
        #[case] expect: &[usize],
    ) {
        assert_eq!(updatable_outdated(replicas, max_unavailable, max_ready), expect);
    }

    #[test]
    fn paused_rollout_updates_no_existing_replica() {
        let limits = UpdateLimits { max_unavailable: 1, max_ready: 1, paused: true };
        assert_eq!(updatable_replicas(&parse_replicas("Or Ow Mu Cr"), limits), BTreeSet::from([2, 3]));
    }
}
