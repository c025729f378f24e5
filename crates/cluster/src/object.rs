//! Reading the few fields of a JSON object that every kind has.

use serde_json::{Value, json};

/// `metadata.FIELD` as text; empty when absent.
#[must_use]
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// `metadata.generation`; 0 for kinds that have none.
#[must_use]
pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// Whether deletion has begun.
#[must_use]
pub fn terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The controller's owner reference, if the object has one.
#[must_use]
pub fn controller(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == Value::Bool(true))
}

/// UID of the controller owner, if any.
#[must_use]
pub fn controller_uid(object: &Value) -> Option<&str> {
    controller(object)?["uid"].as_str()
}

/// The reference that makes `owner` the controller of what carries it.
#[must_use]
pub fn owner_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// `Kind namespace/name`, for people.
#[must_use]
pub fn describe(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or("object");
    match meta(object, "namespace") {
        "" => format!("{kind} {}", meta(object, "name")),
        namespace => format!("{kind} {namespace}/{}", meta(object, "name")),
    }
}
