//! The step of the update of a role; no I/O.

/// Step of the update of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SurgeStep {
    /// The additional replica starts. The others are not updated yet.
    Start,
    /// The others are not updated yet, and the additional replica stops, because a role of the gang needs its accelerators in order to
    /// serve.
    Wait,
    /// The others are updated. The additional replica serves until one of them is ready.
    Serve,
    /// The others are updated in place because there are no accelerators for an additional replica.
    NoCapacity,
}

/// State of the replicas of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoleState {
    /// Whether a replica of the planned size and port is ready.
    pub(super) updated_is_ready: bool,
    /// Whether all replicas have another size or port than planned, and no additional one is ready instead of them.
    pub(super) is_outdated: bool,
    /// Whether no replica serves, additional ones included, and one waits for nodes.
    pub(super) waits_for_nodes: bool,
    /// Whether a replica serves, additional ones included.
    pub(super) serves: bool,
    /// Whether there is an additional replica, or Pods of one that was deleted.
    pub(super) has_surge: bool,
    /// Whether an additional replica of the current plan is ready.
    pub(super) surge_is_ready: bool,
}

/// State of the roles that are updated at the same time: those of a gang, or one role outside of a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupState {
    /// Whether the rollout is paused.
    pub(super) paused: bool,
    /// Whether no role waits for its additional replica.
    pub(super) surges_are_ready: bool,
    /// Whether a role does not serve for lack of nodes.
    pub(super) waits_for_nodes: bool,
    /// Whether Pods of a deleted additional replica still hold their accelerators. The capacity is known once they have stopped.
    pub(super) is_stopping: bool,
}

// === impl SurgeStep ===

impl SurgeStep {
    /// Returns the step for `step`, with which the role continues if it has accelerators. `lacks_accelerators`: whether the updated
    /// replicas fit only without the additional ones. `starves`: whether the replicas that wait for nodes do. They are only called when
    /// they are needed.
    pub(super) fn choose(
        step: SurgeStep,
        group: GroupState,
        lacks_accelerators: impl FnOnce() -> bool,
        starves: impl FnOnce() -> bool,
    ) -> SurgeStep {
        let may_be_given_up = match step {
            SurgeStep::Start => !group.is_stopping,
            _ => group.waits_for_nodes,
        };
        match step {
            step if group.paused => step,
            _ if may_be_given_up && lacks_accelerators() => SurgeStep::NoCapacity,
            SurgeStep::Start if group.waits_for_nodes && starves() => SurgeStep::Wait,
            step => step,
        }
    }

    /// Whether the other replicas are not updated yet.
    pub(super) fn waits(self) -> bool {
        matches!(self, SurgeStep::Start | SurgeStep::Wait)
    }
}

// === impl RoleState ===

impl RoleState {
    /// Whether the role needs an additional replica. A probe that fails once does not end an update that has begun.
    pub(super) fn needs_surge(&self) -> bool {
        !self.updated_is_ready && (self.has_surge || (self.is_outdated && self.serves))
    }

    /// Returns the step if there are accelerators for the additional replica, or `None` if the role needs none.
    pub(super) fn step(self, group: GroupState) -> Option<SurgeStep> {
        match self {
            state if !state.needs_surge() => None,
            RoleState { is_outdated: true, .. } if group.surges_are_ready && !group.paused => Some(SurgeStep::Serve),
            RoleState { is_outdated: true, .. } => Some(SurgeStep::Start),
            _ => Some(SurgeStep::Serve),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::SurgeStep::{NoCapacity, Serve, Start, Wait};
    use super::*;

    const OUTDATED: RoleState = RoleState {
        updated_is_ready: false,
        is_outdated: true,
        waits_for_nodes: false,
        serves: true,
        has_surge: false,
        surge_is_ready: false,
    };
    const STARTING: RoleState = RoleState { has_surge: true, ..OUTDATED };
    /// The additional replica is ready.
    const READY: RoleState = RoleState { surge_is_ready: true, ..STARTING };
    /// The others are updated while the additional replica serves.
    const UPDATING: RoleState = RoleState { is_outdated: false, ..READY };
    const ALONE: GroupState =
        GroupState { paused: false, surges_are_ready: false, waits_for_nodes: false, is_stopping: false };
    const SURGES_READY: GroupState = GroupState { surges_are_ready: true, ..ALONE };
    const DOWN: GroupState = GroupState { waits_for_nodes: true, ..ALONE };

    /// Columns: state of the role and of its group, whether the updated replicas fit only without the additional ones, and whether the
    /// replicas that wait for nodes do, expected step.
    #[rstest]
    #[case::starts(OUTDATED, ALONE, false, false, Some(Start))]
    #[case::no_accelerators(OUTDATED, ALONE, true, false, Some(NoCapacity))]
    #[case::does_not_serve(RoleState { serves: false, ..OUTDATED }, ALONE, false, false, None)]
    #[case::fails_its_probe_meanwhile(RoleState { serves: false, ..STARTING }, ALONE, false, false, Some(Start))]
    #[case::earlier_ones_stop(OUTDATED, GroupState { is_stopping: true, ..ALONE }, true, false, Some(Start))]
    #[case::paused(OUTDATED, GroupState { paused: true, ..ALONE }, true, false, Some(Start))]
    #[case::another_role_needs_its_nodes(STARTING, DOWN, false, true, Some(Wait))]
    #[case::another_role_needs_more_nodes(STARTING, DOWN, false, false, Some(Start))]
    #[case::another_role_is_down_and_fits(STARTING, DOWN, true, true, Some(NoCapacity))]
    #[case::is_ready(READY, SURGES_READY, true, true, Some(Serve))]
    #[case::is_ready_while_paused(READY, GroupState { paused: true, ..SURGES_READY }, true, false, Some(Start))]
    #[case::another_role_of_the_gang_waits(READY, ALONE, false, false, Some(Start))]
    #[case::others_are_updated(UPDATING, SURGES_READY, true, false, Some(Serve))]
    #[case::fails_its_probe_while_others_are_updated(RoleState { serves: false, ..UPDATING }, SURGES_READY, true, false, Some(Serve))]
    #[case::others_need_its_nodes(UPDATING, GroupState { surges_are_ready: true, ..DOWN }, true, false, Some(NoCapacity))]
    #[case::others_need_more_nodes(UPDATING, GroupState { surges_are_ready: true, ..DOWN }, false, false, Some(Serve))]
    #[case::edited_while_others_are_updated(RoleState { surge_is_ready: false, ..UPDATING }, SURGES_READY, true, false, Some(Serve))]
    #[case::updated_in_place(RoleState { has_surge: false, ..UPDATING }, SURGES_READY, true, false, None)]
    #[case::updated(RoleState { updated_is_ready: true, ..UPDATING }, SURGES_READY, true, false, None)]
    fn additional_replica_serves_while_others_are_updated(
        #[case] state: RoleState,
        #[case] group: GroupState,
        #[case] lacks_accelerators: bool,
        #[case] starves: bool,
        #[case] expected: Option<SurgeStep>,
    ) {
        let step = state.step(group);
        assert_eq!(step.map(|step| SurgeStep::choose(step, group, || lacks_accelerators, || starves)), expected);
    }
}
