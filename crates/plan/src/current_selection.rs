//! The current selection of a service, as recorded in its status.

use api::ome;
use decide::{CurrentSelection, Decision, Demand, ModelReference};

use crate::labels;
use crate::names;

/// Returns the current selection of a service that is or was ready with it. An edit of a field that selection reads, or a
/// new value of the annotation [`labels::REDECIDE`], requests a new decision.
pub(crate) fn current_selection(service: &ome::InferenceService, demand: &Demand) -> Option<CurrentSelection> {
    let status = service.status.as_ref()?;
    let recorded_decision = status.decision.as_ref()?;
    let is_ready = status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let has_served = recorded_decision[labels::STATUS_SERVED] == true;
    let requested = service.metadata.annotations.as_ref().and_then(|annotations| annotations.get(labels::REDECIDE));
    let is_request_observed =
        requested.is_none_or(|value| recorded_decision[labels::STATUS_REDECIDED] == value.as_str());
    if !(is_ready || has_served) || !is_request_observed {
        return None;
    }
    let decision = serde_json::from_value::<Decision>(recorded_decision.clone()).ok()?;
    let is_observed = status.observed_generation == service.metadata.generation;
    let has_same_fields = || {
        recorded_decision[labels::STATUS_SELECTION_FIELDS] == selection_fields(service, demand)
            && has_declared_components(&decision, demand)
    };
    (is_observed || has_same_fields()).then(|| CurrentSelection::from_decision(&decision)).flatten()
}

/// Returns whether `decision` contains every component that the service declares. A component that only sets replica counts
/// leaves [`selection_fields`] unchanged.
fn has_declared_components(decision: &Decision, demand: &Demand) -> bool {
    let mut declared = demand.components.iter().filter(|(_, component)| component.declared);
    declared.all(|(component, _)| decision.components.contains_key(component.as_str()))
}

/// Returns a fingerprint of the fields of the service that selection reads: its demand without replica counts, and the name
/// of its model.
pub(crate) fn selection_fields(service: &ome::InferenceService, demand: &Demand) -> String {
    let mut demand = Demand { model: ModelReference::Unspecified, warnings: Vec::new(), ..demand.clone() };
    for component in demand.components.values_mut() {
        component.declared = false;
        component.min_replicas = None;
        component.max_replicas = None;
    }
    let model = service.spec.model.as_ref().map(|model| (&model.name, &model.kind));
    // Another version of the operator may format the demand differently. It then updates the record at the next reconcile.
    format!("{:016x}", names::fingerprint(&format!("{model:?} {demand:?}")))
}
