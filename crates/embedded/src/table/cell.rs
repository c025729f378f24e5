//! What cells of several kinds are made of.

use apimachinery::selector::LabelSelector;
use serde_json::{Value, json};

use super::{Column, since};
use crate::object;

/// A column whose cells are made of the object and the time.
pub(super) fn column(name: &str, kind: &str, priority: i64, cell: fn(&Value, jiff::Timestamp) -> Value) -> Column {
    Column::made(name, kind, priority, cell)
}

/// How long the object has been there.
pub(super) fn age() -> Column {
    column("Age", "string", 0, |object, now| json!(since(object::text(object, "/metadata/creationTimestamp"), now)))
}

/// A count or a percentage.
pub(super) fn stated(object: &Value, pointer: &str) -> Value {
    stated_or(object, pointer, "N/A")
}

pub(super) fn stated_or(object: &Value, pointer: &str, otherwise: &str) -> Value {
    match object.pointer(pointer) {
        Some(Value::String(text)) => json!(text),
        Some(number) if number.is_number() => json!(number.to_string()),
        _ => json!(otherwise),
    }
}

pub(super) fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

pub(super) fn or_unknown(text: &str) -> Value {
    json!(if text.is_empty() { "<unknown>" } else { text })
}

pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

pub(super) fn first<'a>(object: &'a Value, pointers: &[&str]) -> &'a str {
    pointers.iter().map(|pointer| object::text(object, pointer)).find(|text| !text.is_empty()).unwrap_or_default()
}

pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

pub(super) fn entries(object: &Value, field: &str) -> usize {
    object.get(field).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

pub(super) fn containers(workload: &Value, field: &str) -> String {
    let names: Vec<&str> = items(workload, "/spec/template/spec/containers")
        .filter_map(|container| container.get(field)?.as_str())
        .collect();
    names.join(",")
}

pub(super) fn selector(workload: &Value) -> String {
    workload
        .pointer("/spec/selector")
        .and_then(|selector| LabelSelector::from_json(selector).ok())
        .map(|selector| selector.to_string())
        .unwrap_or_default()
}

pub(super) fn pairs(labels: Option<&Value>) -> String {
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    pairs.join(",")
}
