//! Computes the conditions of a role-based service, `Ready` last.

use cluster::{Condition, ConditionStatus, EventPolicy, find_condition};

use super::observations::FusionInferObservations;
use super::role_state::RoleState;
use super::spec_role::RoleKind;
use crate::condition_reason::{ConditionReason, NO_SURGE_CAPACITY, WorkloadReason};
use crate::failures::apply_failure;
use crate::gang_status;
use crate::kinds::{LEADER_WORKER_SET, POD_GROUP};
use crate::readiness::{WorkloadProblem, replicas_are};
use crate::rollout::{PAUSED, ReadyFloor, Rollout, is_rollout_paused};
use crate::route_status::RouteStatus;

/// Returns all conditions. `Initialized`, `Active` and `Failed` are defined upstream. `GangScheduled` and `RouterReady`
/// exist only for services with a gang or a router, `Failed` only while it is not false, and `NoSurgeCapacity` and
/// `ModelNameShared` only while they are true.
pub(super) fn conditions(observations: &FusionInferObservations<'_>, states: &[RoleState]) -> Vec<Condition> {
    let initialized = initialized(observations);
    let router = router_ready(observations, states);
    let ready = ready(observations, states, &initialized);
    let gang = || gang_status::gang_condition(observations.workloads, observations.applied, observations.plan);
    let mut conditions = vec![initialized, active(observations, states, &ready)];
    conditions.extend(failed(observations, states));
    conditions.extend(observations.unlisted.is_empty().then(gang).flatten());
    conditions.extend(router);
    conditions.extend(no_surge_capacity(observations, states));
    conditions.extend(observations.shared_model_name.cloned());
    conditions.push(ready);
    conditions
}

fn initialized(observations: &FusionInferObservations<'_>) -> Condition {
    const TYPE: &str = "Initialized";
    if !observations.unlisted.is_empty() {
        return unknown_condition(observations, TYPE);
    }
    if let Some(plan) = observations.infeasible_plan() {
        return Condition::with_reason(TYPE, false, &*plan.reason, &*plan.message);
    }
    match apply_failure(observations.applied, |_| true) {
        Some(failure) => ConditionReason::from(&failure).condition(TYPE, false, failure.to_string()),
        None => ConditionReason::ObjectsApplied.condition(TYPE, true, "All objects of the service are applied"),
    }
}

/// Returns a condition with status Unknown because workload kinds cannot be listed.
fn unknown_condition(observations: &FusionInferObservations<'_>, type_: &'static str) -> Condition {
    let kinds = observations.unlisted.join(", ");
    let message = format!("Failed to list {kinds}; counts are the last observed ones");
    let condition = ConditionReason::StateUnreadable.condition(type_, ConditionStatus::Unknown, message);
    // One event is enough: all conditions are unknown for the same reason.
    if type_ == "Ready" { condition } else { condition.with_event_policy(EventPolicy::Suppressed) }
}

/// The service is active as soon as every engine role has one ready replica.
fn active(observations: &FusionInferObservations<'_>, states: &[RoleState], ready: &Condition) -> Condition {
    const TYPE: &str = "Active";
    if !observations.unlisted.is_empty() {
        return unknown_condition(observations, TYPE);
    }
    let mut engines = states.iter().filter(|state| state.kind == RoleKind::Engine);
    match engines.all(|state| state.ready >= state.desired.min(1)) {
        true if !observations.is_feasible() => {
            let message = format!("{}; these replicas were planned before the last edit", ready_replicas(states));
            ConditionReason::MinimumReady.condition(TYPE, true, message)
        }
        true => {
            let condition = ConditionReason::MinimumReady.condition(TYPE, true, ready_replicas(states));
            // `Ready` emits the event if all replicas become ready at the same time.
            let is_ready = ready.status == ConditionStatus::True;
            if is_ready { condition.with_event_policy(EventPolicy::Suppressed) } else { condition }
        }
        false => Condition { type_: TYPE, status: ConditionStatus::False, ..ready.clone() },
    }
}

/// `Failed` has negative polarity, as defined upstream: status True is the problem.
fn failed(observations: &FusionInferObservations<'_>, states: &[RoleState]) -> Option<Condition> {
    const TYPE: &str = "Failed";
    if !observations.unlisted.is_empty() {
        return Some(unknown_condition(observations, TYPE));
    }
    if let Some(plan) = observations.infeasible_plan() {
        // By default, only status False emits a warning.
        let condition = Condition::with_reason(TYPE, true, &*plan.reason, &*plan.message);
        return Some(condition.with_event_policy(EventPolicy::Warning));
    }
    let problem = most_urgent_problem(states).filter(|problem| problem.failed)?;
    Some(ConditionReason::from(problem).condition(TYPE, true, problem_message(problem)))
}

/// Returns the condition of the router's objects and of the Gateways that route to it.
fn router_ready(observations: &FusionInferObservations<'_>, states: &[RoleState]) -> Option<Condition> {
    const TYPE: &str = "RouterReady";
    const ENGINE_KINDS: [&str; 2] = [LEADER_WORKER_SET.kind, POD_GROUP.kind];
    let router = states.iter().find(|state| state.kind == RoleKind::Router)?;
    if !observations.unlisted.is_empty() {
        return Some(unknown_condition(observations, TYPE));
    }
    if !observations.is_feasible() && router.ready == 0 {
        let message = "The router is not created because the service has no valid plan";
        return Some(ConditionReason::NotPlanned.condition(TYPE, false, message));
    }
    let apply_failure = apply_failure(observations.applied, |kind| !ENGINE_KINDS.contains(&kind));
    // `Ready` emits the event of a problem.
    Some(match (apply_failure, &router.problem) {
        (Some(failure), _) => ConditionReason::from(&failure)
            .condition(TYPE, false, failure.to_string())
            .with_event_policy(EventPolicy::Suppressed),
        (None, Some(problem)) => ConditionReason::from(problem)
            .condition(TYPE, false, problem_message(problem))
            .with_event_policy(EventPolicy::Suppressed),
        (None, None) => gateway_condition(observations, TYPE),
    })
}

/// Returns the condition of a ready router from the status that Gateways report.
fn gateway_condition(observations: &FusionInferObservations<'_>, type_: &'static str) -> Condition {
    match observations.route_status {
        // `Ready` emits the event.
        RouteStatus::Rejected(message) => ConditionReason::RouteNotAccepted
            .condition(type_, false, message)
            .with_event_policy(EventPolicy::Suppressed),
        RouteStatus::Accepted(parents) => {
            let message = format!("Router is ready; {parents} accepted its route");
            ConditionReason::AllReady.condition(type_, true, message)
        }
        RouteStatus::NotReported(objects) => {
            let message = format!("Router is ready; no Gateway controller has reported status for {objects}");
            ConditionReason::AllReady.condition(type_, true, message)
        }
        RouteStatus::NoParents => ConditionReason::AllReady.condition(type_, true, "Router is ready"),
    }
}

/// The service is ready if all declared replicas are updated and ready and no Gateway rejects the route.
fn ready(observations: &FusionInferObservations<'_>, states: &[RoleState], initialized: &Condition) -> Condition {
    const TYPE: &str = "Ready";
    if !observations.unlisted.is_empty() {
        return unknown_condition(observations, TYPE);
    }
    if initialized.status != ConditionStatus::True {
        return Condition { type_: TYPE, status: ConditionStatus::False, ..initialized.clone() };
    }
    let with_surge_replicas = |message: String| match observations.surge_replicas.message() {
        Some(surge_replicas) => format!("{surge_replicas}. {message}"),
        None => message,
    };
    if let Some(problem) = most_urgent_problem(states) {
        let message = match rollout_progress(observations) {
            Some(progress) => format!("{progress}; {}", problem_message(problem)),
            None => problem_message(problem),
        };
        let message = with_surge_replicas(message);
        return match problem.reason == WorkloadReason::RollingOut && is_rollout_paused(observations.service) {
            true => ConditionReason::RolloutPaused.condition(TYPE, false, format!("{message}; {PAUSED}")),
            false => ConditionReason::from(problem).condition(TYPE, false, message),
        };
    }
    if states.iter().any(|state| state.ready < state.desired) {
        return ConditionReason::Workload(WorkloadReason::Starting).condition(TYPE, false, ready_replicas(states));
    }
    let has_router = states.iter().any(|state| state.kind == RoleKind::Router);
    if let (true, RouteStatus::Rejected(message)) = (has_router, observations.route_status) {
        return ConditionReason::RouteNotAccepted.condition(TYPE, false, message);
    }
    match rollout_progress(observations) {
        Some(progress) if is_rollout_paused(observations.service) => {
            ConditionReason::RolloutPaused.condition(TYPE, false, format!("{progress}; {PAUSED}"))
        }
        Some(progress) => {
            let message = with_surge_replicas(progress);
            ConditionReason::Workload(WorkloadReason::RollingOut).condition(TYPE, false, message)
        }
        None => ConditionReason::Ready.condition(TYPE, true, ready_replicas(states)),
    }
}

/// Returns a condition while a rollout stops replicas before their successors start.
fn no_surge_capacity(observations: &FusionInferObservations<'_>, states: &[RoleState]) -> Option<Condition> {
    let announced = find_condition(&observations.service["status"]["conditions"], NO_SURGE_CAPACITY);
    let announced = announced.and_then(|announced| announced["message"].as_str()).unwrap_or_default();
    let is_incomplete =
        |state: &&RoleState| state.ready < state.desired || observations.rollouts.contains_key(&state.name);
    let message = |state: &RoleState| observations.surge_replicas.interruption(&state.name, state.desired, announced);
    let messages: Vec<String> = states.iter().filter(is_incomplete).filter_map(message).collect();
    let condition = || ConditionReason::NoFreeAccelerators.condition(NO_SURGE_CAPACITY, true, messages.join("; "));
    (observations.unlisted.is_empty() && !messages.is_empty()).then(condition)
}

/// Formats the rollouts in progress: `Rollout of role decode: 1 of 3 replicas are updated`.
fn rollout_progress(observations: &FusionInferObservations<'_>) -> Option<String> {
    let in_progress = observations.rollouts.iter().filter(|(_, rollout)| rollout.in_progress());
    let progress: Vec<String> = in_progress.map(|(role, rollout)| role_rollout_progress(role, rollout)).collect();
    (!progress.is_empty()).then(|| progress.join(", "))
}

fn role_rollout_progress(role: &str, rollout: &Rollout) -> String {
    let Rollout { updated, replicas, .. } = rollout;
    let progress = format!("Rollout of role {role}: {updated} of {replicas} {} updated", replicas_are(*replicas));
    let Some(ReadyFloor { ready, required }) = rollout.ready_floor else { return progress };
    format!(
        "{progress}; the next replica is updated once {required} {} ready (currently {ready}); \
         add capacity, or scale down",
        replicas_are(required)
    )
}

fn most_urgent_problem(states: &[RoleState]) -> Option<&WorkloadProblem> {
    states.iter().filter_map(|state| state.problem.as_ref()).min()
}

fn problem_message(problem: &WorkloadProblem) -> String {
    format!("{}: {}", problem.object, problem.message)
}

/// Formats the ready replicas: `Ready replicas: prefill 1 of 1, decode 1 of 2`.
fn ready_replicas(states: &[RoleState]) -> String {
    let count = |state: &RoleState| format!("{} {} of {}", state.name, state.ready, state.desired);
    format!("Ready replicas: {}", states.iter().map(count).collect::<Vec<_>>().join(", "))
}
