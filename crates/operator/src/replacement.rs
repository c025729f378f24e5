//! Replacement of the workloads of a service by workloads of another kind or name: of a Deployment by a LeaderWorkerSet, for
//! example, because a larger model needs several nodes.
//!
//! The obsolete workloads serve until the planned ones are ready. They stop earlier only if the planned Pods need their
//! accelerators, or if they do not serve. Every reconcile derives the step from the live objects, so restarts of the operator
//! and further edits need no special handling. A planned workload that exists under the same kind and name is updated in
//! place instead (`rollout_strategy.rs`, `rollout.rs`).
//!
//! A route that changes its Pods or its port, for example because a router is added, retains the previous ones until the others
//! serve (`replacement/route_change.rs`).
//!
//! Workloads of a removed component are not retained. Role-based services have no obsolete workloads other than those of
//! removed roles and replicas; `surge_replicas.rs` replaces replicas of another number of nodes.

mod capacity;
mod port_change;
mod route;
mod route_change;
mod routing;
mod serving;

use cluster::{DesiredObject, is_pod_template_applied, is_terminating, kind_and_name};
use decide::Inventory;
use plan::labels::{COMPONENT, GROUP_NAME};
use serde_json::{Value, json};

use crate::FIELD_MANAGER;
use crate::kinds::{DEPLOYMENT, LEADER_WORKER_SET, LLM_USE_CASE_SET, POD_GROUP};
use crate::readiness::Progress;
use crate::rollout::{PAUSED, is_rollout_paused};
use crate::workloads::{LiveWorkload, PlannedWorkload};
pub(crate) use capacity::SurgeUpdate;
use capacity::{ReplacementCapacity, replacement_capacity};
use port_change::{PortChange, limit_rollout};
use route::is_same;
pub(crate) use routing::Routes;
pub(crate) use serving::serving_pods;

/// What happens to the obsolete workloads of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplacementStep {
    /// They are deleted: the planned workloads are ready, or the obsolete ones do not serve.
    #[default]
    Complete,
    /// They serve until the planned workloads are ready.
    Retain,
    /// They are deleted because the planned Pods need their accelerators.
    StopFirst,
}

/// Obsolete workloads of a service, and what happens to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replacement {
    /// What happens to the obsolete workloads.
    pub(crate) step: ReplacementStep,
    /// The obsolete workloads.
    pub(crate) obsolete: Vec<LiveWorkload>,
    /// Whether the rollout is paused.
    paused: bool,
    /// The planned workloads that are not ready, as `Kind namespace/name`.
    unready: Vec<String>,
}

/// What the step of a replacement depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReplacementState {
    /// Whether the rollout is paused.
    paused: bool,
    /// Whether the planned workloads have no replicas.
    scaled_to_zero: bool,
    /// Whether a Pod of an obsolete workload serves requests.
    obsolete_serves: bool,
    /// State of the planned workload that is furthest from ready.
    planned: PlannedState,
    /// Accelerators for the planned Pods; `None` if they are unknown.
    capacity: Option<ReplacementCapacity>,
}

/// State of a planned workload, from missing to ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PlannedState {
    /// The workload does not exist.
    Missing,
    /// No replica is ready.
    Starting,
    /// Some replicas are ready.
    Serving,
    /// All replicas are ready.
    Ready,
}

// === impl ReplacementStep ===

impl ReplacementStep {
    /// Returns the step for a state.
    fn choose(state: ReplacementState) -> ReplacementStep {
        if state.scaled_to_zero {
            return ReplacementStep::Complete;
        }
        if state.paused {
            return ReplacementStep::Retain;
        }
        if !state.obsolete_serves || state.planned == PlannedState::Ready {
            return ReplacementStep::Complete;
        }
        let Some(ReplacementCapacity { with_obsolete, without_obsolete }) = state.capacity else {
            return ReplacementStep::Retain;
        };
        let holds_nothing = without_obsolete.missing_pods >= with_obsolete.missing_pods;
        match () {
            () if with_obsolete.missing_pods == 0 || holds_nothing => ReplacementStep::Retain,
            // Some replicas fit, and the others need the accelerators of the obsolete Pods.
            () if with_obsolete.has_replica && state.planned == PlannedState::Serving => ReplacementStep::Complete,
            () if with_obsolete.has_replica || !without_obsolete.has_replica => ReplacementStep::Retain,
            // The cluster may not accept the planned workloads.
            () if state.planned == PlannedState::Missing => ReplacementStep::Retain,
            () => ReplacementStep::StopFirst,
        }
    }
}

// === impl Replacement ===

impl Replacement {
    /// Returns the replacement of the `obsolete` workloads. `has_listed_pods`: whether the Pods of the workloads are complete.
    pub(crate) fn new(
        service: &Value,
        planned: &[PlannedWorkload],
        obsolete: Vec<LiveWorkload>,
        has_listed_pods: bool,
        inventory: &Inventory,
    ) -> Replacement {
        if obsolete.is_empty() {
            return Replacement::default();
        }
        let state = ReplacementState {
            paused: is_rollout_paused(service) || !has_listed_pods,
            scaled_to_zero: is_scaled_to_zero(planned, &obsolete),
            obsolete_serves: obsolete.iter().any(|workload| serving_pods(workload).next().is_some()),
            planned: planned.iter().map(planned_state).min().unwrap_or(PlannedState::Missing),
            capacity: replacement_capacity(planned, &obsolete, inventory),
        };
        let unready = planned.iter().filter(|workload| planned_state(workload) != PlannedState::Ready);
        Replacement {
            step: ReplacementStep::choose(state),
            paused: is_rollout_paused(service),
            unready: unready.map(|workload| kind_and_name(&workload.planned)).collect(),
            obsolete,
        }
    }

    /// Returns the replacement after the planned workloads have been created, for previews.
    pub(crate) fn once_created(self, planned: &[PlannedWorkload], inventory: &Inventory) -> Replacement {
        let capacity = replacement_capacity(planned, &self.obsolete, inventory);
        let state = ReplacementState {
            paused: self.paused,
            scaled_to_zero: false,
            obsolete_serves: true,
            planned: PlannedState::Starting,
            capacity,
        };
        match self.step {
            ReplacementStep::Retain => Replacement { step: ReplacementStep::choose(state), ..self },
            ReplacementStep::Complete | ReplacementStep::StopFirst => self,
        }
    }

    /// Returns `desired` with the routes and the obsolete workloads of the step.
    pub(crate) fn desired_objects(
        &self,
        desired: Vec<DesiredObject>,
        planned: &[PlannedWorkload],
        routes: &Routes,
    ) -> Vec<DesiredObject> {
        let is_missing = |object: &Value| {
            planned.iter().any(|workload| workload.live.is_none() && workload.planned == *object && self.is_paused())
        };
        let retained = (self.step == ReplacementStep::Retain).then_some(self.obsolete.as_slice());
        let port_changes: Vec<PortChange> =
            desired.iter().flat_map(|desired| routes.port_changes(desired.object(), planned)).collect();
        let retains_pool = desired.iter().any(|desired| routes.retains_pool(desired.object(), planned));
        let is_workload =
            |object: &Value| [DEPLOYMENT, LEADER_WORKER_SET].iter().any(|kind| object["kind"] == kind.kind);
        let exists = |object: &Value| routes.live.iter().any(|live| is_same(live, object));
        let step = |desired: DesiredObject| match desired {
            // The model names are those of the Pods.
            DesiredObject::Apply(object)
                if retains_pool && object["kind"] == LLM_USE_CASE_SET.kind && exists(&object) =>
            {
                DesiredObject::Defer(object)
            }
            DesiredObject::Apply(mut object) if is_workload(&object) && !is_missing(&object) => {
                limit_rollout(&mut object, &port_changes);
                DesiredObject::Apply(object)
            }
            DesiredObject::Apply(object) if is_missing(&object) => DesiredObject::Defer(object),
            DesiredObject::Apply(object) => routes.desired_route(object, retained, planned),
            other => other,
        };
        let mut desired: Vec<DesiredObject> = desired.into_iter().map(step).collect();
        let of_step = |object: Value| match self.step {
            ReplacementStep::Retain => DesiredObject::Defer(object),
            ReplacementStep::Complete | ReplacementStep::StopFirst => DesiredObject::Obsolete(object),
        };
        desired.extend(self.obsolete.iter().map(|workload| of_step((*workload.object).clone())));
        let has_group = desired.iter().any(|desired| desired.object()["kind"] == POD_GROUP.kind);
        desired.extend(self.retained().find_map(pod_group).filter(|_| !has_group).map(DesiredObject::Defer));
        desired
    }

    /// Returns the obsolete workloads that serve until the planned ones are ready.
    pub(crate) fn retained(&self) -> impl Iterator<Item = &LiveWorkload> {
        self.obsolete.iter().filter(|_| self.step == ReplacementStep::Retain)
    }

    /// Returns a sentence about the obsolete workloads while they serve.
    pub(crate) fn retained_message(&self) -> Option<String> {
        if self.step != ReplacementStep::Retain {
            return None;
        }
        let obsolete: Vec<String> = self.obsolete.iter().map(|workload| kind_and_name(&workload.object)).collect();
        let serve = if obsolete.len() == 1 { "serves" } else { "serve" };
        let obsolete = obsolete.join(" and ");
        if self.paused {
            return Some(format!("{obsolete} {serve}: {PAUSED}"));
        }
        let are = if self.unready.len() == 1 { "is" } else { "are" };
        Some(format!("{obsolete} {serve} until {} {are} ready", self.unready.join(" and ")))
    }

    /// Returns whether the obsolete workloads are retained because the rollout is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused && self.step == ReplacementStep::Retain
    }
}

/// Returns a sentence for each planned workload that is not ready and whose predecessor stopped first: in this reconcile, or
/// in an earlier one that announced it as `announced`.
pub(crate) fn stop_messages(replacement: &Replacement, planned: &[PlannedWorkload], announced: &str) -> Vec<String> {
    let unready = planned.iter().filter(|workload| planned_state(workload) != PlannedState::Ready);
    let messages = unready.map(|workload| {
        format!(
            "{} starts after the Pods that it replaces have stopped, because no accelerators are free for both: the service is \
             unavailable until it is ready",
            kind_and_name(&workload.planned)
        )
    });
    messages
        .filter(|message| replacement.step == ReplacementStep::StopFirst || announced.contains(message.as_str()))
        .collect()
}

/// Returns whether the planned workloads of the components with obsolete workloads have no replicas.
fn is_scaled_to_zero(planned: &[PlannedWorkload], obsolete: &[LiveWorkload]) -> bool {
    let component = |object: &Value| object["metadata"]["labels"][COMPONENT].clone();
    let is_replaced = |planned: &&PlannedWorkload| {
        obsolete.iter().any(|workload| component(&workload.object) == component(&planned.planned))
    };
    planned.iter().filter(is_replaced).all(|workload| workload.planned["spec"]["replicas"] == 0)
}

fn planned_state(workload: &PlannedWorkload) -> PlannedState {
    let Some(live) = workload.live.as_ref().filter(|live| !is_terminating(&live.object)) else {
        return PlannedState::Missing;
    };
    let is_current = is_pod_template_applied(&live.object, &workload.planned, FIELD_MANAGER);
    let progress = Progress::from_workload(&live.object);
    match () {
        () if !is_current => PlannedState::Starting,
        () if progress.is_complete() => PlannedState::Ready,
        () if progress.observed && progress.outdated() == 0 && progress.ready > 0 => PlannedState::Serving,
        () => PlannedState::Starting,
    }
}

/// Returns the PodGroup of a LeaderWorkerSet whose Pods are members of a gang.
fn pod_group(workload: &LiveWorkload) -> Option<Value> {
    let template = &workload.object["spec"]["leaderWorkerTemplate"]["workerTemplate"];
    let name = template["metadata"]["annotations"][GROUP_NAME].as_str()?;
    let metadata = json!({"namespace": workload.object["metadata"]["namespace"], "name": name});
    Some(json!({"apiVersion": POD_GROUP.api_version(), "kind": POD_GROUP.kind, "metadata": metadata}))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::PlannedState::{Missing, Ready, Serving, Starting};
    use super::ReplacementStep::{Complete, Retain, StopFirst};
    use super::capacity::Room;
    use super::*;

    const ROOM: Room = Room { missing_pods: 0, has_replica: true };
    const SOME_REPLICAS: Room = Room { missing_pods: 2, has_replica: true };
    const HALF_A_REPLICA: Room = Room { missing_pods: 1, has_replica: false };
    const FULL: Room = Room { missing_pods: 4, has_replica: false };

    fn capacity(with_obsolete: Room, without_obsolete: Room) -> Option<ReplacementCapacity> {
        Some(ReplacementCapacity { with_obsolete, without_obsolete })
    }

    /// Columns: whether an obsolete Pod serves, state of the planned workloads, capacity, expected step.
    #[rstest]
    #[case::starts(true, Missing, capacity(ROOM, ROOM), Retain)]
    #[case::room_for_both(true, Starting, capacity(ROOM, ROOM), Retain)]
    #[case::unknown_capacity(true, Starting, None, Retain)]
    #[case::some_replicas_are_ready(true, Serving, capacity(ROOM, ROOM), Retain)]
    #[case::ready(true, Ready, capacity(ROOM, ROOM), Complete)]
    #[case::obsolete_is_broken(false, Missing, capacity(ROOM, ROOM), Complete)]
    #[case::obsolete_is_broken_on_full_nodes(false, Starting, capacity(FULL, ROOM), Complete)]
    #[case::obsolete_holds_what_the_planned_needs(true, Starting, capacity(FULL, ROOM), StopFirst)]
    #[case::planned_may_not_be_accepted(true, Missing, capacity(FULL, ROOM), Retain)]
    #[case::obsolete_holds_nothing(true, Starting, capacity(FULL, FULL), Retain)]
    #[case::stopping_frees_too_little(true, Starting, capacity(FULL, HALF_A_REPLICA), Retain)]
    #[case::some_replicas_fit(true, Starting, capacity(SOME_REPLICAS, ROOM), Retain)]
    #[case::the_others_need_what_obsolete_holds(true, Serving, capacity(SOME_REPLICAS, ROOM), Complete)]
    #[case::the_others_wait_for_another_service(true, Serving, capacity(SOME_REPLICAS, SOME_REPLICAS), Retain)]
    fn follows_readiness_and_capacity(
        #[case] obsolete_serves: bool,
        #[case] planned: PlannedState,
        #[case] capacity: Option<ReplacementCapacity>,
        #[case] expected: ReplacementStep,
    ) {
        let state = ReplacementState { paused: false, scaled_to_zero: false, obsolete_serves, planned, capacity };
        assert_eq!(ReplacementStep::choose(state), expected);
        let paused = ReplacementState { paused: true, ..state };
        assert_eq!(ReplacementStep::choose(paused), Retain, "a paused rollout changes nothing");
        let scaled_to_zero = ReplacementState { scaled_to_zero: true, ..paused };
        assert_eq!(ReplacementStep::choose(scaled_to_zero), Complete);
    }
}
