//! `status.decision`: the record of a decision. It changes only with the outcome, not with scores or free capacity.

use std::collections::{BTreeMap, BTreeSet};

use cluster::Transition;
use decide::{ComponentDecision, Decision, RuntimeRef, Scope, Warning};
use plan::labels::{REDECIDE, STATUS_REDECIDED, STATUS_SELECTION_FIELDS, STATUS_SERVED};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// Codes of warnings about invalid objects.
const INVALID_OBJECT_CODES: [&str; 3] = [
    decide::code::warning::INVALID_RUNTIME.as_str(),
    decide::code::warning::INVALID_CLASS.as_str(),
    decide::code::warning::INVALID_MODEL.as_str(),
];

/// Returns the decision that the status of the service records, or `None` if there is none or it is malformed.
pub(crate) fn recorded_decision(service: &Value) -> Option<Decision> {
    Decision::deserialize(&service["status"]["decision"]).ok()
}

/// Returns the `status.decision` to write: the recorded one, unless the outcome differs, the service was edited, or a
/// user requested a new decision. The record also stores whether the selection has ever been ready, because such a
/// selection is retained, and a fingerprint of the fields that selection reads.
pub(crate) fn decision_status(
    service: &Value,
    new: &Decision,
    selection_fields: Option<&str>,
    is_ready: bool,
) -> Value {
    let old_status = &service["status"]["decision"];
    let recorded = recorded_decision(service);
    let redecide_request = &service["metadata"]["annotations"][REDECIDE];
    let is_edited = service["status"]["observedGeneration"] != service["metadata"]["generation"];
    let current_record = recorded.as_ref().filter(|_| !is_edited);
    let is_unchanged = old_status[STATUS_REDECIDED] == *redecide_request
        && current_record.is_some_and(|old| outcome_and_warnings(old) == outcome_and_warnings(new));
    let has_same_selection = recorded.as_ref().is_some_and(|old| selection(old) == selection(new));
    let has_served = (is_ready || (has_same_selection && old_status[STATUS_SERVED] == true)) && new.feasible;
    let mut status = if is_unchanged { old_status.clone() } else { to_json(new) };
    if redecide_request.is_string() {
        status[STATUS_REDECIDED] = redecide_request.clone();
    }
    if has_served {
        status[STATUS_SERVED] = true.into();
    }
    if let Some(selection_fields) = selection_fields {
        status[STATUS_SELECTION_FIELDS] = selection_fields.into();
    }
    status
}

/// Returns the selected runtime and the class and shape of each component. Scaling and prices do not change them.
fn selection(decision: &Decision) -> (Option<&RuntimeRef>, BTreeMap<&str, ComponentDecision>) {
    let without_replicas = |component: &ComponentDecision| {
        let mut component = ComponentDecision { replicas: 0, cost_per_hour: None, ..component.clone() };
        component.variants.iter_mut().for_each(|variant| variant.replicas = 0);
        component
    };
    let components = decision.components.iter();
    let components = components.map(|(name, component)| (name.as_str(), without_replicas(component)));
    (decision.runtime.as_ref(), components.collect())
}

fn to_json(decision: &Decision) -> Value {
    // Serialization fails only for maps with keys that are not strings, which a decision does not contain.
    serde_json::to_value(decision).unwrap_or_else(|_| json!({"feasible": false, "reason": decision.reason}))
}

/// Returns the events of a new decision: a changed selection, and new warnings. Scaling emits no event.
pub(crate) fn decision_events(old: Option<&Decision>, new: &Decision) -> Vec<Transition> {
    let mut events = Vec::new();
    let old_feasible = old.filter(|old| old.feasible);
    if new.feasible && old_feasible.is_none_or(|old| selection(old) != selection(new)) {
        events.push(Transition { warning: false, reason: new.reason.clone(), message: new.message.clone() });
    }
    let old_codes = old.map(|old| warning_codes(&old.warnings)).unwrap_or_default();
    // The invalid object has its own event; services that might have selected it emit none.
    let is_about_invalid_object = |code: &str| INVALID_OBJECT_CODES.contains(&code);
    for Warning { code, message, .. } in &new.warnings {
        let is_reported =
            old_codes.contains(code.as_str()) || events.iter().any(|event: &Transition| event.reason == *code);
        if !is_reported && !is_about_invalid_object(code) {
            events.push(Transition { warning: true, reason: code.clone(), message: message.clone() });
        }
    }
    events
}

fn warning_codes(warnings: &[Warning]) -> BTreeSet<&str> {
    warnings.iter().map(|warning| warning.code.as_str()).collect()
}

/// Returns the parts of a decision that require a new record if they change.
fn outcome_and_warnings(decision: &Decision) -> (Outcome<'_>, BTreeSet<&str>) {
    (outcome(decision), warning_codes(&decision.warnings))
}

/// Outcome of a decision, excluding scores, free capacity, and whether the winner was selected or retained.
#[derive(PartialEq)]
enum Outcome<'a> {
    /// The selected runtime and its components.
    Selected(Option<&'a RuntimeRef>, &'a BTreeMap<String, ComponentDecision>),
    /// Nothing is selected: the reason, and the rejected runtimes with their codes.
    Rejected(&'a str, BTreeSet<(&'a str, Scope, &'a str)>),
}

fn outcome(decision: &Decision) -> Outcome<'_> {
    if decision.feasible {
        return Outcome::Selected(decision.runtime.as_ref(), &decision.components);
    }
    let rejected = decision.candidates.iter().filter_map(|candidate| {
        let rejection = candidate.rejected.as_ref()?;
        Some((candidate.runtime.as_str(), candidate.scope, rejection.code()))
    });
    Outcome::Rejected(&decision.reason, rejected.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use decide::RuntimeCandidate;
    use decide::code::warning::NO_FREE_CAPACITY;
    use plan::ServicePlan;

    fn candidate(name: &str, fields: &Value) -> RuntimeCandidate {
        let mut candidate = json!({"runtime": name, "scope": "Cluster"});
        for (key, value) in fields.as_object().unwrap() {
            candidate[key] = value.clone();
        }
        serde_json::from_value(candidate).unwrap()
    }

    fn rejected(name: &str) -> RuntimeCandidate {
        candidate(name, &json!({"rejected": {"code": "SizeOutOfRange", "message": "m"}}))
    }

    fn plan(runtime: &str, score: f64) -> ServicePlan {
        let engine = ComponentDecision { nodes: 1, replicas: 1, ..ComponentDecision::default() };
        ServicePlan {
            feasible: true,
            reason: "Selected".to_owned(),
            message: format!("score {score}"),
            runtime: Some(RuntimeRef { name: runtime.to_owned(), scope: Scope::Cluster }),
            components: [("engine".to_owned(), engine)].into(),
            candidates: vec![candidate(runtime, &json!({"rank": 1, "selected": true})), rejected("rejected")],
            objects: vec![json!({})],
            ..ServicePlan::default()
        }
    }

    fn selected(runtime: &str, score: f64) -> Decision {
        plan(runtime, score).status_decision()
    }

    fn service(generation: i64, decision: &Value) -> Value {
        json!({"metadata": {"generation": generation}, "status": {"observedGeneration": 1, "decision": decision}})
    }

    #[test]
    fn keeps_record_while_outcome_is_unchanged() {
        let first_status = decision_status(&Value::Null, &selected("a", 0.5), None, false);
        assert!(first_status["objects"].is_null());
        assert_eq!(decision_status(&service(1, &first_status), &selected("a", 0.7), None, false), first_status);
        assert_ne!(decision_status(&service(2, &first_status), &selected("a", 0.7), None, false), first_status);
        assert_eq!(
            decision_status(&service(1, &first_status), &selected("b", 0.7), None, false)["runtime"]["name"],
            "b"
        );
    }

    #[test]
    fn rejected_candidates_are_part_of_the_outcome() {
        let infeasible = |names: &[&str]| Decision {
            feasible: false,
            reason: "NoCompatibleRuntime".to_owned(),
            candidates: names.iter().map(|name| rejected(name)).collect(),
            ..selected("a", 0.5)
        };
        let first_status = decision_status(&Value::Null, &infeasible(&["x", "y"]), None, false);
        assert_eq!(decision_status(&service(1, &first_status), &infeasible(&["y", "x"]), None, false), first_status);
        assert_ne!(decision_status(&service(1, &first_status), &infeasible(&["x"]), None, false), first_status);
    }

    #[test]
    fn redecides_once_per_annotation_value() {
        let first_status = decision_status(&Value::Null, &selected("a", 0.5), None, true);
        assert_eq!(first_status[STATUS_SERVED], true);
        let mut annotated = service(1, &first_status);
        annotated["metadata"]["annotations"][REDECIDE] = json!("t1");
        let redecided = decision_status(&annotated, &selected("a", 0.7), None, false);
        assert_eq!(
            (&redecided[STATUS_REDECIDED], &redecided[STATUS_SERVED], &redecided["message"]),
            (&json!("t1"), &json!(true), &json!("score 0.7"))
        );
        annotated["status"]["decision"] = redecided.clone();
        assert_eq!(decision_status(&annotated, &selected("a", 0.8), None, false), redecided);
    }

    #[test]
    fn changed_outcome_clears_served_and_emits_an_event() {
        let first_decision = selected("a", 0.5);
        let served_status = decision_status(&Value::Null, &first_decision, None, true);
        let second_decision = selected("b", 0.5);
        assert!(decision_status(&service(1, &served_status), &second_decision, None, false)[STATUS_SERVED].is_null());
        let events = |old: &Decision, new: &Decision| {
            decision_events(Some(old), new).into_iter().map(|event| (event.warning, event.reason)).collect::<Vec<_>>()
        };
        assert_eq!(events(&first_decision, &second_decision), [(false, "Selected".to_owned())]);
        assert!(events(&first_decision, &first_decision).is_empty());
        let waiting_decision =
            Decision { warnings: vec![Warning::new(NO_FREE_CAPACITY, "needs 8")], ..second_decision.clone() };
        assert_eq!(events(&second_decision, &waiting_decision), [(true, NO_FREE_CAPACITY.as_str().to_owned())]);
        let old_service = service(1, &decision_status(&Value::Null, &waiting_decision, None, false));
        assert_eq!(decision_status(&old_service, &second_decision, None, false)["warnings"], json!([]));
    }

    #[test]
    fn scaling_a_served_selection_does_not_clear_served() {
        let served_status = decision_status(&Value::Null, &selected("a", 0.5), Some("f1"), true);
        assert_eq!(served_status[STATUS_SELECTION_FIELDS], "f1");
        let mut scaled = selected("a", 0.5);
        scaled.components.get_mut("engine").unwrap().replicas = 2;
        let scaled_status = decision_status(&service(2, &served_status), &scaled, Some("f1"), false);
        assert_eq!(
            (&scaled_status[STATUS_SERVED], &scaled_status["components"]["engine"]["replicas"]),
            (&json!(true), &json!(2))
        );
    }

    #[test]
    fn replaces_malformed_record() {
        let malformed = service(1, &json!({"reason": 7, STATUS_SERVED: true}));
        assert_eq!(
            decision_status(&malformed, &selected("a", 0.5), None, false),
            decision_status(&Value::Null, &selected("a", 0.5), None, false)
        );
    }

    #[test]
    fn limits_candidates_and_counts_omitted_ones() {
        let eligible = |n: usize| candidate(&format!("r{n}"), &json!({"rank": n + 1, "selected": n == 0}));
        let rejected = |n: usize| rejected(&format!("x{n}"));
        let large_decision =
            ServicePlan { candidates: (0..15).map(eligible).chain((0..25).map(rejected)).collect(), ..plan("a", 0.5) };
        let status = decision_status(&Value::Null, &large_decision.clone().truncated().status_decision(), None, false);
        assert_eq!(status["candidates"].as_array().unwrap().len(), 31);
        assert_eq!(status["omitted"], json!({"runnersUp": 4, "rejections": 5}));
        assert_eq!(status, decision_status(&Value::Null, &large_decision.status_decision(), None, false));
    }
}
