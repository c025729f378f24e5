//! Accessors for the metadata and fields of objects in untyped JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Finalizer of an object whose deletion waits for that of its dependents (`metav1.FinalizerDeleteDependents`).
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

/// Returns the value at a JSON pointer. Unlike [`Value::pointer`], this does not allocate unless the pointer has
/// escapes.
#[must_use]
pub fn lookup<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.contains('~') {
        return object.pointer(pointer);
    }
    pointer.split('/').skip(1).try_fold(object, |value, name| match value {
        Value::Object(members) => members.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Returns the string at a JSON pointer, or `""` if there is none.
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    lookup(object, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns `metadata.name`, or `""`.
#[must_use]
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// Returns `metadata.namespace`, which is empty for cluster-scoped objects.
#[must_use]
pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// Returns `metadata.uid`, or `""`.
#[must_use]
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// Returns `metadata.resourceVersion`, or `""`.
#[must_use]
pub fn resource_version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion")
}

/// Reports whether `metadata.deletionTimestamp` is set.
#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    lookup(object, "/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

/// Reports whether a terminating object waits for the deletion of its dependents.
#[must_use]
pub fn waits_for_dependents(object: &Value) -> bool {
    is_deleting(object) && finalizers(object).contains(&FOREGROUND_FINALIZER)
}

/// Returns `metadata.finalizers`.
#[must_use]
pub fn finalizers(object: &Value) -> Vec<&str> {
    strings(lookup(object, "/metadata/finalizers"))
}

/// Returns the entries of `metadata.ownerReferences`.
pub fn owner_references(object: &Value) -> impl Iterator<Item = &Value> {
    lookup(object, "/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

/// Returns the controlling owner reference of an object (`metav1.GetControllerOf`).
pub fn controller_of(object: &Value) -> Option<&Value> {
    owner_references(object).find(|owner| owner.get("controller") == Some(&Value::Bool(true)))
}

/// Returns `metadata.labels`.
pub fn labels(object: &Value) -> BTreeMap<String, String> {
    string_map(object.pointer("/metadata/labels"))
}

/// Returns the value of a label.
#[must_use]
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    lookup(object, "/metadata/labels")?.get(key)?.as_str()
}

/// Returns the string members of a JSON object.
pub fn string_map(value: Option<&Value>) -> BTreeMap<String, String> {
    let members = value.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Returns the strings of an array; empty if `value` is not an array.
#[must_use]
pub fn strings(value: Option<&Value>) -> Vec<&str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns the items of a list, or none if the value is not a list.
pub fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

/// Returns the members of a JSON object. A value of another type is replaced by an empty object.
pub fn members(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("the value is an object"),
    }
}

/// Returns `metadata`, creating it if absent.
pub fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    members(members(object).entry("metadata").or_insert_with(|| json!({})))
}

/// Returns `spec`, creating it if absent.
pub fn spec(object: &mut Value) -> &mut Map<String, Value> {
    child_object(members(object), "spec")
}

/// Returns the object in `field`, creating it if absent.
pub fn child_object<'a>(object: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    members(object.entry(field).or_insert_with(|| json!({})))
}

/// Sets a field if it is absent.
pub fn set_default(object: &mut Map<String, Value>, field: &str, value: Value) {
    object.entry(field).or_insert(value);
}

/// Sets a field of `metadata`, or removes it if `value` is `None`.
pub fn set_metadata_field(object: &mut Value, field: &str, value: Option<Value>) {
    let metadata = metadata(object);
    match value {
        Some(value) => {
            metadata.insert(field.to_owned(), value);
        }
        None => {
            metadata.remove(field);
        }
    }
}

/// Copies a field of `metadata` from another object; a field absent there is removed here.
pub fn copy_metadata_field(object: &mut Value, field: &str, from: &Value) {
    let value = from.get("metadata").and_then(|metadata| metadata.get(field)).cloned();
    set_metadata_field(object, field, value);
}

/// Sets `metadata.resourceVersion`.
pub fn set_resource_version(object: &mut Value, revision: u64) {
    set_metadata_field(object, "resourceVersion", Some(Value::String(revision.to_string())));
}

/// Sets the value at a JSON pointer, creating intermediate objects.
pub fn set_at(object: &mut Value, pointer: &str, value: Value) {
    let mut target = object;
    for name in pointer.split('/').skip(1) {
        target = members(target).entry(name).or_insert(Value::Null);
    }
    *target = value;
}

/// Formats a time with a precision of seconds (`metav1.Time`).
#[must_use]
pub fn format_time(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a time with a precision of microseconds (`metav1.MicroTime`), as in Leases and `events.k8s.io/v1` Events.
#[must_use]
pub fn format_micro_time(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Converts floats without a fraction to integers, as Go encodes them: `1.0` becomes `1`.
pub fn normalize_integers(value: &mut Value) {
    /// 2^53: an `f64` represents every integer up to this value exactly.
    const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let integer = number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < MAX_SAFE_INTEGER);
            if let Some(integer) = integer.and_then(|integer| format!("{integer:.0}").parse::<i64>().ok()) {
                *value = integer.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_integers),
        Value::Object(members) => members.values_mut().for_each(normalize_integers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::root("")]
    #[case::member("/a")]
    #[case::nested("/a/b")]
    #[case::item("/list/1")]
    #[case::index_out_of_bounds("/list/2")]
    #[case::index_not_a_number("/list/x")]
    #[case::absent("/a/c/d")]
    #[case::escaped("/with~1slash")]
    fn lookup_agrees_with_value_pointer(#[case] pointer: &str) {
        let object = json!({"a": {"b": 1}, "list": [1, {"x": 2}], "with/slash": 3});
        assert_eq!(lookup(&object, pointer), object.pointer(pointer));
    }
}
