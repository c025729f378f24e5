//! Functions to create columns and format cells.

use apimachinery::{LabelSelector, object};
use serde_json::{Value, json};

use super::age::human_age;
use super::column::Column;

/// Returns a column whose cells are computed from the object and the current time.
pub(super) fn column(name: &str, kind: &str, priority: i64, cell: fn(&Value, jiff::Timestamp) -> Value) -> Column {
    Column::with_function(name, kind, priority, cell)
}

/// Returns the age column.
pub(super) fn age() -> Column {
    column("Age", "string", 0, |object, now| json!(human_age(object::text(object, "/metadata/creationTimestamp"), now)))
}

/// Formats a number or string, or `N/A` if absent.
pub(super) fn value_or_na(object: &Value, pointer: &str) -> Value {
    value_or(object, pointer, "N/A")
}

/// Formats a number or string, or returns `default` if absent.
pub(super) fn value_or(object: &Value, pointer: &str, default: &str) -> Value {
    match object.pointer(pointer) {
        Some(Value::String(text)) => json!(text),
        Some(number) if number.is_number() => json!(number.to_string()),
        _ => json!(default),
    }
}

/// Returns `text`, or `<none>` if it is empty.
pub(super) fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

/// Returns `text`, or `<unknown>` if it is empty.
pub(super) fn or_unknown(text: &str) -> Value {
    json!(if text.is_empty() { "<unknown>" } else { text })
}

/// Returns the integer at a JSON pointer, or 0.
pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// Returns the first non-empty string at the JSON pointers.
pub(super) fn first_text<'a>(object: &'a Value, pointers: &[&str]) -> &'a str {
    pointers.iter().map(|pointer| object::text(object, pointer)).find(|text| !text.is_empty()).unwrap_or_default()
}

/// Returns the items of the list at a JSON pointer.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Returns the number of entries of a map.
pub(super) fn entry_count(object: &Value, field: &str) -> usize {
    object.get(field).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

/// Joins the values of a field of all containers in the Pod template.
pub(super) fn container_values(workload: &Value, field: &str) -> String {
    let names: Vec<&str> = items(workload, "/spec/template/spec/containers")
        .filter_map(|container| container.get(field)?.as_str())
        .collect();
    names.join(",")
}

/// Formats the label selector of a workload.
pub(super) fn selector(workload: &Value) -> String {
    workload
        .pointer("/spec/selector")
        .and_then(|selector| LabelSelector::from_json(selector).ok())
        .map(|selector| selector.to_string())
        .unwrap_or_default()
}

/// Formats labels as `key=value`, joined by commas.
pub(super) fn format_labels(labels: Option<&Value>) -> String {
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    pairs.join(",")
}
