//! Validation of ControllerRevisions.

use apimachinery::StatusCause;
use serde_json::Value;

use super::field::Field;

pub(super) fn causes(revision: &Value) -> Vec<StatusCause> {
    let revision = Field::root(revision);
    let data = revision.get("data");
    let mut causes: Vec<StatusCause> = revision.get("revision").check_not_negative().into_iter().collect();
    causes.extend((!data.is_set()).then(|| data.required_with_hint("data is mandatory")));
    causes
}

/// Rejects a change to `data`.
pub(super) fn check_data_unchanged(current: &Value, revision: &Value) -> Option<StatusCause> {
    (current.get("data") != revision.get("data"))
        .then(|| StatusCause::invalid("data", revision.get("data").unwrap_or(&Value::Null), "field is immutable"))
}
