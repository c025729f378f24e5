//! Whether a service keeps what was chosen for it before.

use api::ome;
use decide::decision::{Decision, Incumbent};

use crate::labels;

/// The choice in force: a service that serves, or has served, by its choice keeps it, whatever ranks higher now. An edit
/// of the service asks for a new decision, and so does a person by the annotation [`labels::REDECIDE`].
pub(crate) fn incumbent(service: &ome::InferenceService) -> Option<Incumbent> {
    let status = service.status.as_ref()?;
    let recorded = status.decision.as_ref()?;
    let ready = status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let served = recorded[labels::SERVED] == true;
    let current = status.observed_generation == service.metadata.generation;
    let asked = service.metadata.annotations.as_ref().and_then(|all| all.get(labels::REDECIDE));
    let answered = asked.is_none_or(|asked| recorded[labels::REDECIDED] == asked.as_str());
    let decision = || serde_json::from_value::<Decision>(recorded.clone()).ok();
    ((ready || served) && current && answered).then(decision).flatten().as_ref().and_then(Incumbent::of)
}
