//! Which plan of a service holds: the one that keeps its choice, or one that chooses anew.

use decide::code::outcome::KEPT;
use plan::claims::waits;
use plan::{Claim, Incumbency, Service, ServicePlan, Snapshot};
use serde_json::Value;

/// The plan in force, and what would be planned if nothing were chosen yet, where that differs. Both have no more
/// candidates than a status holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// What is to be followed.
    pub plan: ServicePlan,
    /// What `ostler redecide` would take.
    pub better: Option<ServicePlan>,
}

/// Plans `service` beside those that made `claims`; `object` is the same as JSON.
#[must_use]
pub fn choose(snapshot: &Snapshot, claims: &[Claim], object: &Value, service: &Service) -> Choice {
    let planned = |incumbency| plan::plan_service_beside(snapshot, claims, service, incumbency).shortened();
    let plan = planned(Incumbency::Kept);
    if plan.reason != KEPT.as_str() {
        return Choice { plan, better: None };
    }
    weigh(object, plan, planned(Incumbency::Ignored))
}

/// A service keeps its choice while anything of it runs; one of which nothing is left does not wait for accelerators
/// that others have taken meanwhile when there are free ones elsewhere.
fn weigh(service: &Value, kept: ServicePlan, anew: ServicePlan) -> Choice {
    let same = kept.feasible && (&kept.runtime, &kept.components) == (&anew.runtime, &anew.components);
    if !anew.feasible || same {
        return Choice { plan: kept, better: None };
    }
    if !runs(service) && waits(&kept.warnings) && !waits(&anew.warnings) {
        return Choice { plan: anew, better: None };
    }
    // What must wait for others is no better choice today.
    Choice { plan: kept, better: Some(anew).filter(|anew| !waits(&anew.warnings)) }
}

/// Whether any replica of any component is ready.
pub(crate) fn runs(service: &Value) -> bool {
    let components = service["status"]["components"].as_object().into_iter().flatten();
    components
        .map(|(_, component)| &component["readyReplicas"])
        .any(|ready| ready.as_i64().is_some_and(|ready| ready > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use decide::code::warning::NO_FREE_CAPACITY;
    use decide::decision::ComponentDecision;
    use decide::reason::Warning;
    use rstest::rstest;
    use serde_json::json;

    fn plan(class: &str, waits: bool) -> ServicePlan {
        let engine = ComponentDecision { accelerator_class: Some(class.to_owned()), ..ComponentDecision::default() };
        let warnings = waits.then(|| Warning::new(NO_FREE_CAPACITY, "needs 8")).into_iter().collect();
        let components = [("engine".to_owned(), engine)].into();
        ServicePlan { feasible: true, components, warnings, ..ServicePlan::default() }
    }

    #[rstest]
    #[case::same(1, plan("a", false), plan("a", false), "a", None)]
    #[case::better(1, plan("a", false), plan("b", false), "a", Some("b"))]
    #[case::what_waits_is_not_better(1, plan("a", false), plan("b", true), "a", None)]
    #[case::runs_in_part(1, plan("a", true), plan("b", false), "a", Some("b"))]
    #[case::lost_its_place(0, plan("a", true), plan("b", false), "b", None)]
    #[case::no_place_anywhere(0, plan("a", true), plan("b", true), "a", None)]
    fn which_plan_holds(
        #[case] ready: i64,
        #[case] kept: ServicePlan,
        #[case] anew: ServicePlan,
        #[case] class: &str,
        #[case] better: Option<&str>,
    ) {
        let service = json!({"status": {"components": {"engine": {"readyReplicas": ready}}}});
        let choice = weigh(&service, kept, anew);
        let of = |plan: &ServicePlan| plan.components["engine"].accelerator_class.clone();
        assert_eq!(
            (of(&choice.plan), choice.better.as_ref().map(of)),
            (Some(class.to_owned()), better.map(|class| Some(class.to_owned())))
        );
    }
}
