//! Computes the status of a `fusioninfer.io` InferenceService; no I/O.

mod conditions;
mod observations;
mod role_state;
mod spec_role;
#[cfg(test)]
mod tests;

use cluster::{Transition, generation};
use decide::Warning;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::service_conditions::{ImpliedFields, render_service_conditions};
use crate::status_report::StatusReport;
pub(crate) use observations::FusionInferObservations;
use role_state::RoleState;
pub(crate) use spec_role::spec_roles;

/// The counts of ready replicas are in `components`. Upstream's conditions have a reason.
const IMPLIED_FIELDS: ImpliedFields =
    ImpliedFields { message: &["Initialized", "Ready"], message_if_ready: &["Active", "GangScheduled"], reason: &[] };

/// Computes status and events of the service.
#[must_use]
pub(crate) fn report(observations: &FusionInferObservations<'_>, now: Timestamp) -> StatusReport {
    let service = observations.service;
    let states: Vec<RoleState> = observations.roles.iter().map(|role| RoleState::new(observations, role)).collect();
    let conditions = conditions::conditions(observations, &states);
    let old_status = &service["status"];
    let with_timestamp =
        |state: &RoleState| (state.name.clone(), state.with_timestamp(&old_status["components"][&state.name], now));
    let components: Map<String, Value> = states.iter().map(with_timestamp).collect();
    // If workloads cannot be listed, the current generation has not been reconciled.
    let observed_generation = if observations.unlisted.is_empty() {
        json!(generation(service))
    } else {
        old_status["observedGeneration"].clone()
    };
    let rendered_conditions =
        render_service_conditions(service, &conditions, &IMPLIED_FIELDS, &observed_generation, now);
    let mut status = json!({"conditions": rendered_conditions});
    if !observed_generation.is_null() {
        status["observedGeneration"] = observed_generation;
    }
    if !components.is_empty() {
        status["components"] = Value::Object(components);
    }
    if !observations.rollouts.is_empty() {
        let rollouts = observations.rollouts.iter().map(|(role, rollout)| (role.clone(), rollout.status()));
        status["rollouts"] = Value::Object(rollouts.collect());
    }
    StatusReport { conditions, status, events: warning_events(observations) }
}

/// Returns the warnings of the plan as events, once per generation.
fn warning_events(observations: &FusionInferObservations<'_>) -> Vec<Transition> {
    let is_reported = observations.service["status"]["observedGeneration"] == generation(observations.service);
    let warnings = observations.plan.into_iter().filter(|_| !is_reported).flat_map(|plan| &plan.warnings);
    let event = |warning: &Warning| Transition {
        warning: true,
        reason: warning.code.clone(),
        message: warning.message.clone(),
    };
    warnings.map(event).collect()
}
