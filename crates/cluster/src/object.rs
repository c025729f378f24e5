//! Accessors for the metadata that all kinds of objects share.

use serde_json::{Value, json};

/// Returns the string `metadata.FIELD`, or an empty string when it is absent.
#[must_use]
pub fn metadata_field<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Returns `metadata.generation`, or 0 for kinds without generations.
#[must_use]
pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// Returns whether `metadata.deletionTimestamp` is set.
#[must_use]
pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Returns the owner reference of the object's controller, if any.
#[must_use]
pub fn controller_of(object: &Value) -> Option<&Value> {
    let references = object["metadata"]["ownerReferences"].as_array()?;
    references.iter().find(|reference| reference["controller"] == Value::Bool(true))
}

/// Returns the UID of the object's controller, if any.
#[must_use]
pub fn controller_uid(object: &Value) -> Option<&str> {
    controller_of(object)?["uid"].as_str()
}

/// Returns an owner reference that makes `owner` the controller of a dependent object.
#[must_use]
pub(crate) fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Returns `Kind namespace/name` (`Kind name` for cluster-scoped objects) for messages.
#[must_use]
pub fn kind_and_name(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or("object");
    match metadata_field(object, "namespace") {
        "" => format!("{kind} {}", metadata_field(object, "name")),
        namespace => format!("{kind} {namespace}/{}", metadata_field(object, "name")),
    }
}
