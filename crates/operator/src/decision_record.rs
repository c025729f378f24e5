//! Updates `status.decision`. It changes only with the outcome, not with scores or free capacity.

use std::collections::{BTreeMap, BTreeSet};

use cluster::Transition;
use decide::{ComponentDecision, Warning};
use plan::labels::REDECIDE;
use plan::{DecisionRecord, RecordedRuntime, component_shapes, recorded_components};
use serde_json::Value;

/// Codes of warnings about invalid objects.
const INVALID_OBJECT_CODES: [&str; 3] = [
    decide::code::warning::INVALID_RUNTIME.as_str(),
    decide::code::warning::INVALID_CLASS.as_str(),
    decide::code::warning::INVALID_MODEL.as_str(),
];

/// A decision: its record, and the shapes of its components without replica counts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordedDecision {
    /// Content of `status.decision`.
    pub(crate) record: DecisionRecord,
    components: BTreeMap<String, ComponentDecision>,
}

/// Outcome of a decision, excluding scores, free capacity, and whether the winner was selected or retained.
#[derive(PartialEq)]
enum Outcome<'a> {
    /// The selected runtime and its components.
    Selected(Option<&'a RecordedRuntime>, &'a BTreeMap<String, ComponentDecision>),
    /// Nothing is selected: the reason, and the number of rejected runtimes by code.
    Rejected(&'a str, String),
}

// === impl RecordedDecision ===

impl RecordedDecision {
    /// Returns the decision of a plan.
    pub(crate) fn new(record: DecisionRecord, components: &BTreeMap<String, ComponentDecision>) -> RecordedDecision {
        RecordedDecision { record, components: component_shapes(components) }
    }

    /// Reads the decision from the status of a service; `None` if there is none or it is malformed.
    pub(crate) fn from_status(status: &Value) -> Option<RecordedDecision> {
        let record = DecisionRecord::from_status(status)?;
        Some(RecordedDecision::new(record, &recorded_components(status)))
    }

    /// Returns the selected runtime and the class and shape of each component. Scaling and prices do not change them.
    fn selection(&self) -> (Option<&RecordedRuntime>, &BTreeMap<String, ComponentDecision>) {
        (self.record.runtime.as_ref(), &self.components)
    }

    /// Returns the parts that require a new record if they change.
    fn outcome_and_warnings(&self) -> (Outcome<'_>, BTreeSet<&str>) {
        let outcome = match self.record.feasible {
            true => Outcome::Selected(self.record.runtime.as_ref(), &self.components),
            false => Outcome::Rejected(&self.record.reason, self.record.candidates.rejected.to_string()),
        };
        (outcome, warning_codes(&self.record.warnings))
    }
}

/// Returns the `status.decision` to write: the recorded one, unless the outcome differs, the service was edited, or a
/// user requested a new decision. Once the service is ready, the record also contains `selection_fields`, a fingerprint of
/// the fields that selection reads, because a selection that has served is retained.
pub(crate) fn updated_record(
    service: &Value,
    new: &RecordedDecision,
    selection_fields: Option<&str>,
    is_ready: bool,
) -> DecisionRecord {
    let recorded = RecordedDecision::from_status(&service["status"]);
    let redecide_request = service["metadata"]["annotations"][REDECIDE].as_str();
    let is_edited = service["status"]["observedGeneration"] != service["metadata"]["generation"];
    let is_current = |old: &&RecordedDecision| {
        !is_edited
            && old.record.redecided.as_deref() == redecide_request
            && old.outcome_and_warnings() == new.outcome_and_warnings()
    };
    let has_served = |old: &RecordedDecision| old.record.served_fields.is_some() && old.selection() == new.selection();
    let has_served = (is_ready || recorded.as_ref().is_some_and(has_served)) && new.record.feasible;
    let record = recorded.as_ref().filter(is_current).map_or(&new.record, |old| &old.record);
    DecisionRecord {
        redecided: redecide_request.map(str::to_owned),
        served_fields: selection_fields.filter(|_| has_served).map(str::to_owned),
        ..record.clone()
    }
}

/// Returns the events of a new decision: a changed selection, and new warnings. Scaling emits no event.
pub(crate) fn decision_events(old: Option<&RecordedDecision>, new: &RecordedDecision) -> Vec<Transition> {
    let mut events = Vec::new();
    let old_feasible = old.filter(|old| old.record.feasible);
    if new.record.feasible && old_feasible.is_none_or(|old| old.selection() != new.selection()) {
        let (reason, message) = (new.record.reason.clone(), new.record.message.clone());
        events.push(Transition { warning: false, reason, message });
    }
    let old_codes = old.map(|old| warning_codes(&old.record.warnings)).unwrap_or_default();
    // The invalid object has its own event; services that might have selected it emit none.
    let is_about_invalid_object = |code: &str| INVALID_OBJECT_CODES.contains(&code);
    for Warning { code, message, .. } in &new.record.warnings {
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

#[cfg(test)]
mod tests {
    use decide::code::warning::NO_FREE_CAPACITY;
    use plan::CandidateSummary;
    use serde_json::json;

    use super::*;

    fn decision(runtime: &str, message: &str) -> RecordedDecision {
        let record = DecisionRecord {
            feasible: true,
            reason: "Selected".to_owned(),
            message: message.to_owned(),
            runtime: Some(RecordedRuntime { name: runtime.to_owned(), scope: decide::Scope::Cluster }),
            candidates: CandidateSummary::default(),
            warnings: Vec::new(),
            redecided: None,
            served_fields: None,
            inputs: None,
        };
        let engine = ComponentDecision { nodes: 1, replicas: 1, ..ComponentDecision::default() };
        RecordedDecision::new(record, &[("engine".to_owned(), engine)].into())
    }

    fn infeasible(rejected: &str) -> RecordedDecision {
        let record = decision("a", "").record;
        let candidates = CandidateSummary { rejected: rejected.parse().unwrap(), ..CandidateSummary::default() };
        let record = DecisionRecord { feasible: false, reason: "NoCompatibleRuntime".to_owned(), candidates, ..record };
        RecordedDecision::new(record, &BTreeMap::new())
    }

    /// Returns a service with this record that was observed at generation 1.
    fn service(generation: i64, record: &DecisionRecord) -> Value {
        let components = if record.feasible { json!({"engine": {"replicas": 1}}) } else { json!({}) };
        json!({"metadata": {"generation": generation},
            "status": {"observedGeneration": 1, "decision": record.to_json(), "components": components}})
    }

    fn first_record(decision: &RecordedDecision, is_ready: bool) -> DecisionRecord {
        updated_record(&json!({}), decision, Some("f1"), is_ready)
    }

    #[test]
    fn keeps_record_while_outcome_is_unchanged() {
        let first = first_record(&decision("a", "score 0.5"), false);
        let updated =
            |generation, new: &RecordedDecision| updated_record(&service(generation, &first), new, None, false);
        assert_eq!(updated(1, &decision("a", "score 0.7")), first);
        assert_eq!(updated(2, &decision("a", "score 0.7")).message, "score 0.7");
        assert_eq!(updated(1, &decision("b", "score 0.7")).runtime.unwrap().name, "b");
    }

    #[test]
    fn rejected_candidates_are_part_of_the_outcome() {
        let first = first_record(&infeasible("Disabled 2"), false);
        let mut same = infeasible("Disabled 2");
        same.record.message = "m".to_owned();
        assert_eq!(updated_record(&service(1, &first), &same, None, false), first);
        assert_ne!(updated_record(&service(1, &first), &infeasible("Disabled 1"), None, false), first);
    }

    #[test]
    fn redecides_once_per_annotation_value() {
        let first = first_record(&decision("a", "score 0.5"), true);
        assert_eq!(first.served_fields.as_deref(), Some("f1"));
        let annotated = |record: &DecisionRecord| {
            let mut service = service(1, record);
            service["metadata"]["annotations"][REDECIDE] = json!("t1");
            service
        };
        let redecided = updated_record(&annotated(&first), &decision("a", "score 0.7"), Some("f1"), false);
        assert_eq!(
            (redecided.redecided.as_deref(), redecided.served_fields.as_deref(), redecided.message.as_str()),
            (Some("t1"), Some("f1"), "score 0.7")
        );
        assert_eq!(updated_record(&annotated(&redecided), &decision("a", "score 0.8"), Some("f1"), false), redecided);
    }

    #[test]
    fn changed_outcome_clears_served_and_emits_an_event() {
        let (first, second) = (decision("a", ""), decision("b", ""));
        let served = first_record(&first, true);
        assert_eq!(updated_record(&service(1, &served), &second, Some("f1"), false).served_fields, None);
        let events = |old: &RecordedDecision, new: &RecordedDecision| {
            decision_events(Some(old), new).into_iter().map(|event| (event.warning, event.reason)).collect::<Vec<_>>()
        };
        assert_eq!(events(&first, &second), [(false, "Selected".to_owned())]);
        assert!(events(&first, &first).is_empty());
        let mut waiting = second.clone();
        waiting.record.warnings = vec![Warning::new(NO_FREE_CAPACITY, "needs 8")];
        assert_eq!(events(&second, &waiting), [(true, NO_FREE_CAPACITY.as_str().to_owned())]);
        let record = updated_record(&service(1, &first_record(&waiting, false)), &second, None, false);
        assert!(record.warnings.is_empty());
    }

    #[test]
    fn scaling_a_served_selection_does_not_clear_served() {
        let served = first_record(&decision("a", ""), true);
        let engine = ComponentDecision { nodes: 1, replicas: 2, ..ComponentDecision::default() };
        let scaled = RecordedDecision::new(decision("a", "").record, &[("engine".to_owned(), engine)].into());
        assert_eq!(
            updated_record(&service(2, &served), &scaled, Some("f1"), false).served_fields,
            served.served_fields
        );
    }

    #[test]
    fn replaces_malformed_record() {
        let mut malformed = service(1, &first_record(&decision("a", ""), true));
        malformed["status"]["decision"]["reason"] = json!(7);
        assert_eq!(
            updated_record(&malformed, &decision("a", ""), None, false),
            first_record(&decision("a", ""), false)
        );
    }

    #[test]
    fn reads_record_of_an_earlier_release() {
        let engine = json!({"acceleratorClass": "l40s", "resource": "nvidia.com/gpu", "acceleratorsPerNode": 1, "nodes": 1,
            "replicas": 2, "costPerHour": 1.55});
        let earlier = json!({"candidates": [{"runtime": "a", "scope": "Cluster", "selected": true}], "feasible": true,
            "reason": "Selected", "message": "m", "runtime": {"name": "a", "scope": "Cluster"}, "omitted": {"rejections": 3},
            "components": {"engine": engine}, "warnings": [], "served": true, "selectionFields": "f1"});
        let service = json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "decision": earlier}});
        let engine = ComponentDecision {
            accelerator_class: Some("l40s".to_owned()),
            resource: Some("nvidia.com/gpu".to_owned()),
            accelerators_per_node: 1,
            nodes: 1,
            replicas: 1,
            ..ComponentDecision::default()
        };
        let same = RecordedDecision::new(decision("a", "").record, &[("engine".to_owned(), engine)].into());
        let record = updated_record(&service, &same, Some("f1"), false);
        assert_eq!((record.served_fields.as_deref(), record.message.as_str()), (Some("f1"), "m"));
    }
}
