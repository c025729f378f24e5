//! Reading and writing the metadata of an object that is only JSON.

use serde_json::{Map, Value, json};

/// What is at a JSON pointer; names without `~` are looked up as they stand, where [`Value::pointer`] copies them.
#[must_use]
pub fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.contains('~') {
        return object.pointer(pointer);
    }
    pointer.split('/').skip(1).try_fold(object, |value, name| match value {
        Value::Object(members) => members.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => None,
    })
}

/// A string anywhere in the object, or "".
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).and_then(Value::as_str).unwrap_or_default()
}

#[must_use]
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// Empty for cluster-scoped objects.
#[must_use]
pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

#[must_use]
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

#[must_use]
pub fn resource_version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion")
}

#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    at(object, "/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

#[must_use]
pub fn finalizers(object: &Value) -> Vec<&str> {
    strings(at(object, "/metadata/finalizers"))
}

/// The entries of `ownerReferences`, none when absent.
pub fn owner_references(object: &Value) -> impl Iterator<Item = &Value> {
    at(object, "/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

/// The strings of an array, none when it is something else.
#[must_use]
pub fn strings(value: Option<&Value>) -> Vec<&str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The object's members; an object that is no JSON object becomes an empty one, as it was never stored as anything else.
pub fn members(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("just made an object"),
    }
}

/// `metadata`, created when absent.
pub fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    members(members(object).entry("metadata").or_insert_with(|| json!({})))
}

/// Sets or, with `None`, removes one field of `metadata`.
pub fn set_metadata(object: &mut Value, field: &str, value: Option<Value>) {
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

/// Sets one field of `metadata` to what `from` has there, absence included.
pub fn copy_metadata(object: &mut Value, field: &str, from: &Value) {
    let value = from.get("metadata").and_then(|metadata| metadata.get(field)).cloned();
    set_metadata(object, field, value);
}

pub fn set_resource_version(object: &mut Value, revision: u64) {
    set_metadata(object, "resourceVersion", Some(Value::String(revision.to_string())));
}

/// Sets the value at a JSON pointer, making the objects on the way.
pub(crate) fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.split('/').skip(1) {
        at = members(at).entry(part).or_insert(Value::Null);
    }
    *at = value;
}

/// Kubernetes writes times with seconds (`metav1.Time`).
#[must_use]
pub fn time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Times with microseconds (`metav1.MicroTime`), as Leases and newer Events have.
#[must_use]
pub fn micro_time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Writes numbers without a fraction as whole ones, as Go does: `1.0` is `1`.
pub(crate) fn whole_numbers(value: &mut Value) {
    /// Up to here every whole number is one that a fraction can hold.
    const LARGEST: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < LARGEST);
            if let Some(whole) = whole.and_then(|whole| format!("{whole:.0}").parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::whole("")]
    #[case::member("/a")]
    #[case::inner("/a/b")]
    #[case::item("/list/1")]
    #[case::no_item("/list/2")]
    #[case::no_number("/list/x")]
    #[case::absent("/a/c/d")]
    #[case::escaped("/with~1slash")]
    fn a_pointer_means_what_it_means_elsewhere(#[case] pointer: &str) {
        let object = json!({"a": {"b": 1}, "list": [1, {"x": 2}], "with/slash": 3});
        assert_eq!(at(&object, pointer), object.pointer(pointer));
    }
}
