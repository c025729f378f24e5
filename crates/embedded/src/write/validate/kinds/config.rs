//! ConfigMaps and Secrets: their keys, and that they may be immutable.

use apimachinery::status::Cause;
use serde_json::{Value, json};

const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

pub(super) fn map(object: &Value) -> Vec<Cause> {
    let binary = object.get("binaryData").and_then(Value::as_object);
    let data = object.get("data").and_then(Value::as_object).into_iter().flatten();
    let twice = data
        .filter(|(key, _)| binary.is_some_and(|binary| binary.contains_key(*key)))
        .map(|(key, _)| Cause::invalid(format!("data[{key}]"), &json!(key), "duplicate of key present in binaryData"));
    let mut causes = keys(object, "data");
    causes.extend(twice);
    // Key by key, as they are looked at.
    causes.sort_by(|a, b| a.field.cmp(&b.field));
    causes.extend(keys(object, "binaryData"));
    causes
}

pub(super) fn secret(object: &Value) -> Vec<Cause> {
    keys(object, "data")
}

/// What may not change once it is said that nothing may.
pub(super) fn frozen(current: &Value, object: &Value) -> Vec<Cause> {
    if current["immutable"] != true {
        return Vec::new();
    }
    let changed = |field: &str| current.get(field) != object.get(field);
    let mut causes = Vec::new();
    if object["immutable"] != true {
        causes.push(Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
    }
    for field in ["data", "binaryData"].into_iter().filter(|field| changed(field)) {
        causes.push(Cause::forbidden(field, "field is immutable when `immutable` is set"));
    }
    causes
}

/// The keys of a map that are no file names.
fn keys(object: &Value, field: &str) -> Vec<Cause> {
    let data = object.get(field).and_then(Value::as_object).into_iter().flatten();
    let well_formed =
        |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    data.filter(|(key, _)| !well_formed(key))
        .map(|(key, _)| Cause::invalid(format!("{field}[{key}]"), &json!(key), KEY))
        .collect()
}
