//! Laying an applied configuration over the live object, and taking out what its manager gave up.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::{FieldSet, Step};
use super::view::{View, view};
use crate::structure::Structure;

/// `live` with `applied` over it. Null is a value like others, which the type may refuse.
pub(super) fn merge(structure: &Structure, live: Option<&Value>, applied: &Value) -> Value {
    match view(structure, applied) {
        View::Leaf => applied.clone(),
        View::Object(applied) => {
            let live = live.filter(|live| matches!(view(structure, live), View::Object(_)));
            Value::Object(merge_object(structure, live.and_then(Value::as_object), applied))
        }
        View::List(applied) => {
            let live = match live.map(|live| view(structure, live)) {
                Some(View::List(items)) => items,
                _ => Vec::new(),
            };
            Value::Array(merge_list(structure, &live, &applied))
        }
    }
}

fn merge_object(
    structure: &Structure,
    live: Option<&Map<String, Value>>,
    applied: &Map<String, Value>,
) -> Map<String, Value> {
    let mut result = live.cloned().unwrap_or_default();
    for (name, value) in applied {
        let child = structure.field(name);
        let before = live.and_then(|live| live.get(name));
        // Null over parts that have owners of their own says nothing of them.
        let has_parts = before.is_some_and(|before| !matches!(view(child, before), View::Leaf));
        if !(value.is_null() && has_parts) {
            result.insert(name.clone(), merge(child, before, value));
        }
    }
    result
}

/// Applied elements keep the applied order; elements that only the live list has keep their place before the
/// element that followed them.
fn merge_list(structure: &Structure, live: &[(Step, &Value)], applied: &[(Step, &Value)]) -> Vec<Value> {
    let by_step: BTreeMap<&Step, &Value> = live.iter().map(|(step, value)| (step, *value)).collect();
    let wanted: BTreeMap<&Step, usize> = applied.iter().enumerate().map(|(i, (step, _))| (step, i)).collect();
    let mut result = Vec::with_capacity(live.len() + applied.len());
    let mut next = 0;
    let mut emit_up_to = |end: usize, result: &mut Vec<Value>| {
        while next < end {
            let (step, value) = &applied[next];
            result.push(merge(structure.item(), by_step.get(step).copied(), value));
            next += 1;
        }
    };
    for (step, value) in live {
        match wanted.get(step) {
            Some(index) => emit_up_to(index + 1, &mut result),
            None => result.push((*value).clone()),
        }
    }
    emit_up_to(applied.len(), &mut result);
    result
}

/// Takes out of `value` what is in `given_up` and not in `kept`.
pub(super) fn remove(structure: &Structure, value: &mut Value, given_up: &FieldSet, kept: &FieldSet) {
    let steps: Option<Vec<Step>> = match view(structure, value) {
        View::List(items) => Some(items.into_iter().map(|(step, _)| step).collect()),
        View::Object(_) => None,
        View::Leaf => return,
    };
    match (value, steps) {
        (Value::Object(map), _) => map.retain(|name, value| {
            let step = Step::Field(name.clone());
            // A field of the type belongs to whoever owns something in it; a map key has an owner of its own.
            retain(structure.field(name), value, &step, (given_up, kept), !structure.is_map_key(name))
        }),
        (Value::Array(list), Some(steps)) => {
            let mut steps = steps.into_iter();
            list.retain_mut(|value| {
                steps.next().is_none_or(|step| retain(structure.item(), value, &step, (given_up, kept), false))
            });
        }
        _ => {}
    }
}

fn retain(
    structure: &Structure,
    value: &mut Value,
    step: &Step,
    (given_up, kept): (&FieldSet, &FieldSet),
    goes_with_content: bool,
) -> bool {
    let Some(given_up) = given_up.children.get(step) else { return true };
    let Some(kept) = kept.children.get(step) else {
        if given_up.member || goes_with_content {
            return false;
        }
        remove(structure, value, given_up, &FieldSet::default());
        return true;
    };
    remove(structure, value, given_up, kept);
    true
}
