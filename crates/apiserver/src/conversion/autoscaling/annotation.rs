//! Annotations with JSON values.

use serde_json::Value;

/// Removes an annotation and returns its JSON value. An annotation with invalid JSON is retained.
pub(super) fn take_annotation(scaler: &mut Value, name: &str) -> Option<Value> {
    let annotations = scaler.pointer_mut("/metadata/annotations")?.as_object_mut()?;
    let value = serde_json::from_str(annotations.get(name)?.as_str()?).ok()?;
    annotations.remove(name);
    Some(value)
}

/// Returns the items of a list, or none if the value is not a list.
pub(super) fn items_of(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// Joins JSON texts into a JSON array.
pub(super) fn join_array(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}
