//! Preconditions of server-side apply: the version of the object that a write was decided for.

use serde_json::Value;

use crate::object::metadata_field;

/// A resource version that no object has. An object that is applied with it is created, or rejected with a conflict if it
/// exists; unlike with POST, its fields are recorded as applied. `0` would mean any version for most built-in kinds.
const ABSENT_VERSION: &str = "1";

/// Returns `object` with the precondition that the live object is the version `live`, or that there is none. Otherwise the
/// API server rejects it with a conflict.
#[must_use]
pub(crate) fn with_precondition(object: &Value, live: Option<&Value>) -> Value {
    let mut object = object.clone();
    if let Some(live) = live {
        object["metadata"]["uid"] = live["metadata"]["uid"].clone();
    }
    let version = live.map_or(ABSENT_VERSION, |live| metadata_field(live, "resourceVersion"));
    object["metadata"]["resourceVersion"] = version.into();
    object
}
