//! What one reconcile observed of an `ome.io` InferenceService.

use cluster::{ApplyResult, Condition};
use plan::ServicePlan;
use serde_json::Value;

use crate::replacement::Replacement;
use crate::workloads::PlannedWorkload;

/// Observations of one reconcile.
pub(crate) struct OmeObservations<'a> {
    /// The live service.
    pub(crate) service: &'a Value,
    /// The plan of the service.
    pub(crate) plan: &'a ServicePlan,
    /// The plan that re-running selection would produce, if it differs from `plan`.
    pub(crate) better_plan: Option<&'a ServicePlan>,
    /// Why `plan` waits for capacity, and what other classes cost.
    pub(crate) full_class: Option<&'a str>,
    /// The planned workloads of the service; the existing ones if the plan is infeasible.
    pub(crate) workloads: &'a [PlannedWorkload],
    /// The results of applying the planned objects.
    pub(crate) applied: &'a [ApplyResult],
    /// Replacement of workloads of another kind or name.
    pub(crate) replacement: &'a Replacement,
    /// The Services that were applied; the existing ones if the plan is infeasible.
    pub(crate) services: &'a [Value],
    /// The condition about a model name that another service declares, too.
    pub(crate) shared_model_name: Option<&'a Condition>,
}
