//! The current selection of a service, as recorded in its status.

use api::ome;
use decide::{CurrentSelection, Decision};

use crate::labels;

/// Returns the current selection of a service that is or was ready with it. An edit of the spec, or a new value of the
/// annotation [`labels::REDECIDE`], requests a new decision.
pub(crate) fn current_selection(service: &ome::InferenceService) -> Option<CurrentSelection> {
    let status = service.status.as_ref()?;
    let recorded_decision = status.decision.as_ref()?;
    let is_ready = status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let has_served = recorded_decision[labels::STATUS_SERVED] == true;
    let is_current = status.observed_generation == service.metadata.generation;
    let requested = service.metadata.annotations.as_ref().and_then(|annotations| annotations.get(labels::REDECIDE));
    let is_request_observed =
        requested.is_none_or(|value| recorded_decision[labels::STATUS_REDECIDED] == value.as_str());
    let decision = || serde_json::from_value::<Decision>(recorded_decision.clone()).ok();
    ((is_ready || has_served) && is_current && is_request_observed)
        .then(decision)
        .flatten()
        .as_ref()
        .and_then(CurrentSelection::from_decision)
}
