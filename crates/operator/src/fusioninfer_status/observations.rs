//! What one reconcile observed of a `fusioninfer.io` InferenceService.

use cluster::{ApplyResult, Condition};
use plan::ServicePlan;
use serde_json::Value;

use super::spec_role::Role;
use crate::rollout::Rollouts;
use crate::route_status::RouteStatus;
use crate::surge_replicas::SurgeReplicas;
use crate::workloads::PlannedWorkload;

/// Observations of one reconcile.
pub(crate) struct FusionInferObservations<'a> {
    /// The live service.
    pub(crate) service: &'a Value,
    /// The plan; `None` if the workloads cannot be listed and nothing was planned.
    pub(crate) plan: Option<&'a ServicePlan>,
    /// The roles of the spec.
    pub(crate) roles: &'a [Role],
    /// The workloads of all roles, and their additional replicas.
    pub(crate) workloads: &'a [PlannedWorkload],
    /// The results of applying the planned objects.
    pub(crate) applied: &'a [ApplyResult],
    /// The rollouts by role.
    pub(crate) rollouts: &'a Rollouts,
    /// The additional replicas by role.
    pub(crate) surge_replicas: &'a SurgeReplicas,
    /// The status that Gateway controllers report for its route and pool.
    pub(crate) route_status: &'a RouteStatus,
    /// Workload kinds that cannot be listed, so that the state is unknown.
    pub(crate) unlisted: &'a [String],
    /// The condition about a model name that another service declares, too.
    pub(crate) shared_model_name: Option<&'a Condition>,
}

// === impl FusionInferObservations ===

impl FusionInferObservations<'_> {
    /// Returns the plan if it is infeasible; it contains the reason.
    pub(super) fn infeasible_plan(&self) -> Option<&ServicePlan> {
        self.plan.filter(|plan| !plan.feasible)
    }

    /// Returns whether the service is planned, or cannot be planned for lack of observations.
    pub(super) fn is_feasible(&self) -> bool {
        self.infeasible_plan().is_none()
    }
}
