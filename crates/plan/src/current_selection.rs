//! The current selection of a service, as recorded in its status.

use std::collections::BTreeMap;

use api::ome;
use decide::{ComponentDecision, CurrentSelection, Demand, ModelReference, RuntimeRef};

use crate::decision_record::{DecisionRecord, recorded_components};
use crate::labels;
use crate::names;

/// Returns the current selection of a service that is or was ready with it. An edit of a field that selection reads, or a
/// new value of the annotation [`labels::REDECIDE`], requests a new decision.
pub(crate) fn current_selection(service: &ome::InferenceService, demand: &Demand) -> Option<CurrentSelection> {
    let status = service.status.as_ref()?;
    let is_ready = status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let is_observed = status.observed_generation == service.metadata.generation;
    let status = serde_json::to_value(status).ok()?;
    let record = DecisionRecord::from_status(&status).filter(|record| record.feasible)?;
    let requested = service.metadata.annotations.as_ref().and_then(|annotations| annotations.get(labels::REDECIDE));
    let is_request_observed = requested.is_none() || requested == record.redecided.as_ref();
    if !(is_ready || record.served_fields.is_some()) || !is_request_observed {
        return None;
    }
    let components = recorded_components(&status);
    let has_same_fields = || {
        record.served_fields.as_deref() == Some(&selection_fields(service, demand))
            && has_declared_components(&components, demand)
    };
    let is_current = is_observed || has_same_fields();
    is_current.then(|| CurrentSelection { runtime: record.runtime.map(RuntimeRef::from), components })
}

/// Returns whether `components` contains every component that the service declares. A component that only sets replica counts
/// leaves [`selection_fields`] unchanged.
fn has_declared_components(components: &BTreeMap<String, ComponentDecision>, demand: &Demand) -> bool {
    let mut declared = demand.components.iter().filter(|(_, component)| component.declared);
    declared.all(|(component, _)| components.contains_key(component.as_str()))
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
