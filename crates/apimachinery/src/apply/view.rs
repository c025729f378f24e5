//! How a value is taken apart under a structure, and the field sets that follow from it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::field_set::{FieldSet, Step};
use crate::structure::{Merge, Structure};

/// The parts that are owned and merged one by one.
pub(super) enum View<'v> {
    /// One value.
    Leaf,
    Object(&'v Map<String, Value>),
    List(Vec<(Step, &'v Value)>),
}

pub(super) fn view<'v>(structure: &Structure, value: &'v Value) -> View<'v> {
    match (value, &structure.merge) {
        (Value::Object(map), merge) if *merge != Merge::Atomic => View::Object(map),
        (Value::Array(list), Merge::Set | Merge::Map(_)) => {
            // A list that breaks its own type (elements without keys, duplicates) is one value.
            elements(structure, list).map_or(View::Leaf, View::List)
        }
        _ => View::Leaf,
    }
}

/// Each element with the step to it, or `Err` with what is wrong with an element.
pub(super) fn elements<'v>(structure: &Structure, list: &'v [Value]) -> Result<Vec<(Step, &'v Value)>, String> {
    let mut seen = BTreeSet::new();
    let mut result = Vec::with_capacity(list.len());
    for (index, item) in list.iter().enumerate() {
        let step = step_to(structure, index, item)?;
        if !seen.insert(step.clone()) {
            return Err(format!("duplicate entries for key {step}"));
        }
        result.push((step, item));
    }
    Ok(result)
}

/// How an element is named in messages, `[id="x"]`, or what is wrong with it.
pub(crate) fn element_name(structure: &Structure, index: usize, item: &Value) -> Result<String, String> {
    Ok(step_to(structure, index, item)?.to_string())
}

/// The step to an element, or what is wrong with it.
fn step_to(structure: &Structure, index: usize, item: &Value) -> Result<Step, String> {
    let Merge::Map(keys) = &structure.merge else { return Ok(Step::Value(item.to_string())) };
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
    Ok(Step::key(fields))
}

/// Whether every merging list of `value` can be taken apart; `Err` names the first that cannot.
pub(super) fn check(structure: &Structure, value: &Value, path: &str) -> Result<(), String> {
    match (value, &structure.merge) {
        (Value::Object(map), merge) if *merge != Merge::Atomic => {
            map.iter().try_for_each(|(name, child)| check(structure.field(name), child, &format!("{path}.{name}")))
        }
        (Value::Array(list), Merge::Set | Merge::Map(_)) => elements(structure, list)
            .map_err(|error| format!("{path}: {error}"))?
            .into_iter()
            .try_for_each(|(step, item)| check(structure.item(), item, &format!("{path}{step}"))),
        _ => Ok(()),
    }
}

/// What a manager owns who applies `value`: its leaves, list elements and map keys.
pub(super) fn applied_fields(structure: &Structure, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    match view(structure, value) {
        View::Leaf => set.member = true,
        View::Object(map) if map.is_empty() => set.member = true,
        View::Object(map) => {
            for (name, child) in map {
                let mut fields = applied_fields(structure.field(name), child);
                fields.member |= structure.is_map_key(name);
                set.put(Step::Field(name.clone()), fields);
            }
        }
        View::List(items) => {
            for (step, item) in items {
                let mut fields = applied_fields(structure.item(), item);
                fields.member = true;
                set.put(step, fields);
            }
        }
    }
    set
}

/// Every path of `value`, inner ones too: what is added when the value appears.
pub(super) fn all_fields(structure: &Structure, value: &Value) -> FieldSet {
    let mut set = FieldSet::leaf();
    match view(structure, value) {
        View::Leaf => {}
        View::Object(map) => {
            for (name, child) in map {
                set.put(Step::Field(name.clone()), all_fields(structure.field(name), child));
            }
        }
        View::List(items) => {
            for (step, item) in items {
                set.put(step, all_fields(structure.item(), item));
            }
        }
    }
    set
}
