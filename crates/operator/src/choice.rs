//! Which plan of a service holds: the one that keeps its choice, or one that chooses anew.

use plan::{Claim, Incumbency, Service, Snapshot};
use serde_json::Value;

use crate::decision::{same_choice, waits_for_capacity};

/// The plan in force, and what would be planned if nothing were chosen yet, where that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// An entry of `ostler plan -o json`.
    pub plan: Value,
    /// Likewise; what `ostler redecide` would take.
    pub better: Option<Value>,
}

/// Plans `service` beside those that made `claims`; `object` is the same as JSON.
///
/// # Errors
/// What cannot be written as JSON.
pub fn choose(
    snapshot: &Snapshot,
    claims: &[Claim],
    object: &Value,
    service: &Service,
) -> Result<Choice, serde_json::Error> {
    let plan = planned(snapshot, claims, service, Incumbency::Kept)?;
    if plan["reason"] != "Kept" {
        return Ok(Choice { plan, better: None });
    }
    let anew = planned(snapshot, claims, service, Incumbency::Ignored)?;
    Ok(weigh(object, plan, anew))
}

/// As JSON, with no more candidates than a status holds.
fn planned(
    snapshot: &Snapshot,
    claims: &[Claim],
    service: &Service,
    incumbency: Incumbency,
) -> Result<Value, serde_json::Error> {
    let mut plan = plan::plan_service_beside(snapshot, claims, service, incumbency);
    let brief = plan.decision.take().map(|decision| decision.for_status());
    let omitted = brief.as_ref().map(|brief| brief.omitted);
    if let Some(brief) = brief {
        plan.candidates = brief.candidates;
    }
    let mut plan = serde_json::to_value(plan)?;
    if let Some(omitted) = omitted {
        // Warnings are counted where the record is made: layout adds some.
        plan["omitted"] = serde_json::to_value(decide::status::Omitted { warnings: 0, ..omitted })?;
    }
    Ok(plan)
}

/// A service keeps its choice while anything of it runs; one of which nothing is left does not wait for accelerators
/// that others have taken meanwhile when there are free ones elsewhere.
fn weigh(service: &Value, kept: Value, anew: Value) -> Choice {
    if anew["feasible"] != true || same_choice(&kept, &anew) {
        return Choice { plan: kept, better: None };
    }
    if !runs(service) && waits_for_capacity(&kept) && !waits_for_capacity(&anew) {
        return Choice { plan: anew, better: None };
    }
    // What must wait for others is no better choice today.
    let better = Some(anew).filter(|anew| !waits_for_capacity(anew));
    Choice { plan: kept, better }
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
    use rstest::rstest;
    use serde_json::json;

    fn plan(class: &str, waits: bool) -> Value {
        let warnings = if waits { json!([{"code": "NoFreeCapacity"}]) } else { json!([]) };
        json!({"feasible": true, "components": {"engine": {"acceleratorClass": class}}, "warnings": warnings})
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
        #[case] kept: Value,
        #[case] anew: Value,
        #[case] class: &str,
        #[case] better: Option<&str>,
    ) {
        let service = json!({"status": {"components": {"engine": {"readyReplicas": ready}}}});
        let choice = weigh(&service, kept, anew);
        let of = |plan: &Value| plan["components"]["engine"]["acceleratorClass"].clone();
        assert_eq!(
            (of(&choice.plan), choice.better.as_ref().map(of)),
            (json!(class), better.map(|class| json!(class)))
        );
    }
}
