//! Computes the status of a `fusioninfer.io` InferenceService; no I/O.

mod conditions;
mod role;
#[cfg(test)]
mod tests;

use cluster::{ApplyResult, Transition, generation, render_conditions};
use decide::Warning;
use jiff::Timestamp;
use plan::ServicePlan;
use serde_json::{Map, Value, json};

use crate::rollout::Rollouts;
use crate::route_status::RouteStatus;
use crate::status_report::StatusReport;
use crate::workloads::PlannedWorkload;
use role::RoleState;

/// A role of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    /// Name of the role.
    pub name: String,
    /// Whether the role serves or routes requests.
    pub kind: RoleKind,
    /// Desired replicas.
    pub replicas: i64,
    /// Pods per replica.
    pub nodes: i64,
}

/// Whether a role serves or routes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoleKind {
    /// The Pods serve requests.
    Engine,
    /// The Pods select the endpoint of a request.
    Router,
}

/// Observations of one reconcile.
pub(crate) struct FusionInferObservations<'a> {
    /// The live service.
    pub service: &'a Value,
    /// The plan; `None` if the workloads cannot be listed and nothing was planned.
    pub plan: Option<&'a ServicePlan>,
    /// The roles of the spec.
    pub roles: &'a [Role],
    /// The workloads of all roles.
    pub workloads: &'a [PlannedWorkload],
    /// The results of applying the planned objects.
    pub applied: &'a [ApplyResult],
    /// The rollouts by role.
    pub rollouts: &'a Rollouts,
    /// The status that Gateway controllers report for its route and pool.
    pub route_status: &'a RouteStatus,
    /// Workload kinds that cannot be listed, so that the state is unknown.
    pub unlisted: &'a [String],
}

// === impl FusionInferObservations ===

impl FusionInferObservations<'_> {
    /// Returns the plan if it is infeasible; it contains the reason.
    fn infeasible_plan(&self) -> Option<&ServicePlan> {
        self.plan.filter(|plan| !plan.feasible)
    }

    fn is_feasible(&self) -> bool {
        self.infeasible_plan().is_none()
    }
}

/// Returns the roles of the spec; unset counts default to 1. A router always counts as one replica on one node.
#[must_use]
pub(crate) fn spec_roles(service: &Value) -> Vec<Role> {
    let roles = service["spec"]["roles"].as_array().into_iter().flatten();
    let role = |role: &Value| {
        let is_router = role["componentType"] == "router";
        Role {
            name: role["name"].as_str().unwrap_or_default().to_owned(),
            kind: if is_router { RoleKind::Router } else { RoleKind::Engine },
            replicas: if is_router { 1 } else { role["replicas"].as_i64().unwrap_or(1) },
            nodes: if is_router { 1 } else { role["multinode"]["nodeCount"].as_i64().unwrap_or(1) },
        }
    };
    roles.map(role).collect()
}

/// Computes status and events of the service.
#[must_use]
pub(crate) fn report(observations: &FusionInferObservations<'_>, now: Timestamp) -> StatusReport {
    let service = observations.service;
    let states: Vec<RoleState> = observations.roles.iter().map(|role| RoleState::new(observations, role)).collect();
    let conditions = conditions::conditions(observations, &states);
    let generation = generation(service);
    let old_status = &service["status"];
    let with_timestamp =
        |state: &RoleState| (state.name.clone(), state.with_timestamp(&old_status["components"][&state.name], now));
    let components: Map<String, Value> = states.iter().map(with_timestamp).collect();
    // If workloads cannot be listed, the current generation has not been reconciled.
    let observed_generation =
        if observations.unlisted.is_empty() { json!(generation) } else { old_status["observedGeneration"].clone() };
    let mut status = json!({"conditions": render_conditions(&old_status["conditions"], &conditions, generation, now)});
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
