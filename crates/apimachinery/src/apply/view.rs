//! Decomposition of values under a merge schema, and the resulting field sets.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::field_set::{FieldSet, PathElement};
use crate::merge_schema::{MergeSchema, MergeStrategy};

/// A value decomposed into the children that are owned and merged individually.
pub(super) enum View<'v> {
    /// An atomic value.
    Leaf,
    /// A struct or a granular map, by field name.
    Object(&'v Map<String, Value>),
    /// An associative list or a set, by the key or the value of each element.
    List(Vec<(PathElement, &'v Value)>),
}

/// Decomposes `value` by its merge strategy.
pub(super) fn view<'v>(schema: &MergeSchema, value: &'v Value) -> View<'v> {
    match (value, &schema.merge) {
        (Value::Object(map), merge) if *merge != MergeStrategy::Atomic => View::Object(map),
        (Value::Array(list), MergeStrategy::Set | MergeStrategy::Map(_)) => {
            // A list with missing or duplicate keys is atomic.
            elements(schema, list).map_or(View::Leaf, View::List)
        }
        _ => View::Leaf,
    }
}

/// Returns the elements of a list with their path elements.
///
/// # Errors
/// Fails if an element has no key, or two have the same key.
fn elements<'v>(schema: &MergeSchema, list: &'v [Value]) -> Result<Vec<(PathElement, &'v Value)>, String> {
    let mut seen = BTreeSet::new();
    let mut result = Vec::with_capacity(list.len());
    for (index, item) in list.iter().enumerate() {
        let element = path_element(schema, index, item)?;
        if !seen.insert(element.clone()) {
            return Err(format!("duplicate entries for key {element}"));
        }
        result.push((element, item));
    }
    Ok(result)
}

/// Formats the path element of a list element, such as `[id="x"]`.
///
/// # Errors
/// Fails if the element has no key.
pub(crate) fn list_element_path(schema: &MergeSchema, index: usize, item: &Value) -> Result<String, String> {
    Ok(path_element(schema, index, item)?.to_string())
}

/// Returns the path element of a list element.
fn path_element(schema: &MergeSchema, index: usize, item: &Value) -> Result<PathElement, String> {
    let MergeStrategy::Map(keys) = &schema.merge else { return Ok(PathElement::Value(item.to_string())) };
    let mut fields = BTreeMap::new();
    for key in keys {
        let value = item.get(&key.name).filter(|value| !value.is_null()).or(key.default.as_ref());
        if let Some(value) = value {
            fields.insert(key.name.as_str(), value);
        }
    }
    if fields.is_empty() {
        let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
        return Err(format!(
            "element {index}: associative list with keys has an element that omits all key fields {names:?} (and \
             doesn't have default values for any key fields)"
        ));
    }
    Ok(PathElement::key(fields))
}

/// Checks that the elements of all associative lists have unique keys.
///
/// # Errors
/// Fails with a message that names the first list with a missing or duplicate key.
pub(super) fn check_list_keys(schema: &MergeSchema, value: &Value, path: &str) -> Result<(), String> {
    match (value, &schema.merge) {
        (Value::Object(map), merge) if *merge != MergeStrategy::Atomic => map
            .iter()
            .try_for_each(|(name, child)| check_list_keys(schema.field(name), child, &format!("{path}.{name}"))),
        (Value::Array(list), MergeStrategy::Set | MergeStrategy::Map(_)) => elements(schema, list)
            .map_err(|error| format!("{path}: {error}"))?
            .into_iter()
            .try_for_each(|(element, item)| check_list_keys(schema.item(), item, &format!("{path}{element}"))),
        _ => Ok(()),
    }
}

/// Returns the fields that a manager owns after applying `value`: leaves, list elements and map keys.
pub(super) fn applied_fields(schema: &MergeSchema, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    match view(schema, value) {
        View::Leaf => set.is_member = true,
        View::Object(map) if map.is_empty() => set.is_member = true,
        View::Object(map) => {
            for (name, child) in map {
                let mut fields = applied_fields(schema.field(name), child);
                fields.is_member |= schema.is_map_key(name);
                set.insert(PathElement::Field(name.clone()), fields);
            }
        }
        View::List(items) => {
            for (element, item) in items {
                let mut fields = applied_fields(schema.item(), item);
                fields.is_member = true;
                set.insert(element, fields);
            }
        }
    }
    set
}

/// Returns all paths of `value`, including those of inner nodes.
pub(super) fn all_fields(schema: &MergeSchema, value: &Value) -> FieldSet {
    let mut set = FieldSet::leaf();
    match view(schema, value) {
        View::Leaf => {}
        View::Object(map) => {
            for (name, child) in map {
                set.insert(PathElement::Field(name.clone()), all_fields(schema.field(name), child));
            }
        }
        View::List(items) => {
            for (element, item) in items {
                set.insert(element, all_fields(schema.item(), item));
            }
        }
    }
    set
}
