//! ControllerRevisions: a number and what it stands for.

use apimachinery::status::Cause;
use serde_json::Value;

use super::field::Field;

pub(super) fn causes(revision: &Value) -> Vec<Cause> {
    let revision = Field::of(revision);
    let data = revision.get("data");
    let mut causes: Vec<Cause> = revision.get("revision").not_negative().into_iter().collect();
    causes.extend((!data.is_set()).then(|| data.required_because("data is mandatory")));
    causes
}

/// What it stands for never changes.
pub(super) fn changed(current: &Value, revision: &Value) -> Option<Cause> {
    (current.get("data") != revision.get("data"))
        .then(|| Cause::invalid("data", revision.get("data").unwrap_or(&Value::Null), "field is immutable"))
}
