//! Selects the plan of a service: the plan that retains its current selection, or the plan of a new selection.

use std::sync::Arc;

use decide::code::outcome::KEPT;
use plan::{Claim, CurrentSelectionPolicy, Service, ServicePlan, Snapshot, waits_for_capacity};
use serde_json::Value;

use crate::full_class::full_class_message;
use crate::status_inputs::ObjectVersions;

/// Plans of a service, without their candidates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Selection {
    /// The plan to apply.
    pub(crate) plan: ServicePlan,
    /// The plan that `ostler redecide` would apply, if it differs.
    pub(crate) better_plan: Option<ServicePlan>,
    /// Why `plan` waits for capacity, and what other classes cost.
    pub(crate) full_class: Option<String>,
    /// Versions of the objects that the plans follow from.
    pub(crate) versions: Arc<ObjectVersions>,
}

/// Plans `service` with the claims of other services taken into account; `object` is the same service as JSON.
pub(crate) fn select(snapshot: &Snapshot, claims: &[Claim], object: &Value, service: &Service) -> Selection {
    let plan_with = |policy| plan::plan_service_with_claims(snapshot, claims, service, policy);
    let plan = plan_with(CurrentSelectionPolicy::Retain);
    let (plan, better_plan) = match plan.reason == KEPT.as_str() {
        true => choose_plan(object, plan, plan_with(CurrentSelectionPolicy::Ignore)),
        false => (plan, None),
    };
    let full_class = full_class_message(&plan);
    Selection {
        plan: plan.without_candidates(),
        better_plan: better_plan.map(ServicePlan::without_candidates),
        full_class,
        versions: Arc::default(),
    }
}

/// A service retains its selection while any of its replicas is ready. Without a ready replica, it switches to the new
/// plan if its current selection waits for accelerators of other services and the new plan does not. Returns the plan to
/// apply and the better plan.
fn choose_plan(service: &Value, retained: ServicePlan, new: ServicePlan) -> (ServicePlan, Option<ServicePlan>) {
    let is_same_selection =
        retained.feasible && (&retained.runtime, &retained.components) == (&new.runtime, &new.components);
    if !new.feasible || is_same_selection {
        return (retained, None);
    }
    if !has_ready_replicas(service) && waits_for_capacity(&retained.warnings) && !waits_for_capacity(&new.warnings) {
        return (new, None);
    }
    // A plan that must wait for capacity is not better.
    (retained, Some(new).filter(|new| !waits_for_capacity(&new.warnings)))
}

/// Returns whether any replica of any component is ready.
pub(crate) fn has_ready_replicas(service: &Value) -> bool {
    let components = service["status"]["components"].as_object().into_iter().flatten();
    components
        .map(|(_, component)| &component["readyReplicas"])
        .any(|ready| ready.as_i64().is_some_and(|ready| ready > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use decide::code::warning::NO_FREE_CAPACITY;
    use decide::{ComponentDecision, Warning};
    use rstest::rstest;
    use serde_json::json;

    fn plan(class: &str, waits_for_capacity: bool) -> ServicePlan {
        let engine = ComponentDecision { accelerator_class: Some(class.to_owned()), ..ComponentDecision::default() };
        let warnings = waits_for_capacity.then(|| Warning::new(NO_FREE_CAPACITY, "needs 8")).into_iter().collect();
        let components = [("engine".to_owned(), engine)].into();
        ServicePlan { feasible: true, components, warnings, ..ServicePlan::default() }
    }

    #[rstest]
    #[case::same_plan(1, plan("a", false), plan("a", false), "a", None)]
    #[case::better_plan(1, plan("a", false), plan("b", false), "a", Some("b"))]
    #[case::waiting_plan_is_not_better(1, plan("a", false), plan("b", true), "a", None)]
    #[case::has_ready_replica(1, plan("a", true), plan("b", false), "a", Some("b"))]
    #[case::lost_all_replicas(0, plan("a", true), plan("b", false), "b", None)]
    #[case::no_capacity_anywhere(0, plan("a", true), plan("b", true), "a", None)]
    fn chooses_between_retained_and_new_plan(
        #[case] ready: i64,
        #[case] retained: ServicePlan,
        #[case] new: ServicePlan,
        #[case] class: &str,
        #[case] better_class: Option<&str>,
    ) {
        let service = json!({"status": {"components": {"engine": {"readyReplicas": ready}}}});
        let (plan, better_plan) = choose_plan(&service, retained, new);
        let class_of = |plan: &ServicePlan| plan.components["engine"].accelerator_class.clone();
        assert_eq!(
            (class_of(&plan), better_plan.as_ref().map(class_of)),
            (Some(class.to_owned()), better_class.map(|class| Some(class.to_owned())))
        );
    }
}
