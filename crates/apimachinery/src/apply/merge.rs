//! Merging of an applied configuration into the live object, and removal of the fields its manager no longer applies.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::{FieldSet, PathElement};
use super::view::{View, view};
use crate::merge_schema::MergeSchema;

/// Returns `live` with `applied` merged into it. Null is merged as a value; validation may reject it later.
pub(super) fn merge(schema: &MergeSchema, live: Option<&Value>, applied: &Value) -> Value {
    match view(schema, applied) {
        View::Leaf => applied.clone(),
        View::Object(applied) => {
            let live = live.filter(|live| matches!(view(schema, live), View::Object(_)));
            Value::Object(merge_object(schema, live.and_then(Value::as_object), applied))
        }
        View::List(applied) => {
            let live = match live.map(|live| view(schema, live)) {
                Some(View::List(items)) => items,
                _ => Vec::new(),
            };
            Value::Array(merge_list(schema, &live, &applied))
        }
    }
}

fn merge_object(
    schema: &MergeSchema,
    live: Option<&Map<String, Value>>,
    applied: &Map<String, Value>,
) -> Map<String, Value> {
    let mut result = live.cloned().unwrap_or_default();
    for (name, value) in applied {
        let child = schema.field(name);
        let live_value = live.and_then(|live| live.get(name));
        // Null does not replace a value whose children have their own owners.
        let has_children = live_value.is_some_and(|live_value| !matches!(view(child, live_value), View::Leaf));
        if !(value.is_null() && has_children) {
            result.insert(name.clone(), merge(child, live_value, value));
        }
    }
    result
}

/// Merges lists in the applied order; elements that are only in the live list keep their position before the element that
/// followed them.
fn merge_list(schema: &MergeSchema, live: &[(PathElement, &Value)], applied: &[(PathElement, &Value)]) -> Vec<Value> {
    let live_by_path: BTreeMap<&PathElement, &Value> = live.iter().map(|(element, value)| (element, *value)).collect();
    let applied_index: BTreeMap<&PathElement, usize> =
        applied.iter().enumerate().map(|(index, (element, _))| (element, index)).collect();
    let mut result = Vec::with_capacity(live.len() + applied.len());
    let mut next = 0;
    let mut merge_applied_up_to = |end: usize, result: &mut Vec<Value>| {
        while next < end {
            let (element, value) = &applied[next];
            result.push(merge(schema.item(), live_by_path.get(element).copied(), value));
            next += 1;
        }
    };
    for (element, value) in live {
        match applied_index.get(element) {
            Some(index) => merge_applied_up_to(index + 1, &mut result),
            None => result.push((*value).clone()),
        }
    }
    merge_applied_up_to(applied.len(), &mut result);
    result
}

/// Removes the fields in `previous` from `value`, except those in `retained`.
pub(super) fn remove(schema: &MergeSchema, value: &mut Value, previous: &FieldSet, retained: &FieldSet) {
    let elements: Option<Vec<PathElement>> = match view(schema, value) {
        View::List(items) => Some(items.into_iter().map(|(element, _)| element).collect()),
        View::Object(_) => None,
        View::Leaf => return,
    };
    match (value, elements) {
        (Value::Object(map), _) => map.retain(|name, value| {
            let element = PathElement::Field(name.clone());
            // A field of the type is removed with its content; a map key is removed only if it is itself owned.
            retain(schema.field(name), value, &element, (previous, retained), !schema.is_map_key(name))
        }),
        (Value::Array(list), Some(elements)) => {
            let mut elements = elements.into_iter();
            list.retain_mut(|value| {
                elements
                    .next()
                    .is_none_or(|element| retain(schema.item(), value, &element, (previous, retained), false))
            });
        }
        _ => {}
    }
}

fn retain(
    schema: &MergeSchema,
    value: &mut Value,
    element: &PathElement,
    (previous, retained): (&FieldSet, &FieldSet),
    remove_with_content: bool,
) -> bool {
    let Some(previous) = previous.children.get(element) else { return true };
    let Some(retained) = retained.children.get(element) else {
        if previous.is_member || remove_with_content {
            return false;
        }
        remove(schema, value, previous, &FieldSet::default());
        return true;
    };
    remove(schema, value, previous, retained);
    true
}
