//! Comparison of two states of an object.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::{FieldSet, PathElement};
use super::view::{View, all_fields, view};
use crate::merge_schema::MergeSchema;

/// The fields that differ between two states.
#[derive(Default)]
pub(super) struct Changes {
    /// Added or modified fields.
    pub set: FieldSet,
    pub removed: FieldSet,
}

/// Returns the fields that differ between `old` and `new`.
pub(super) fn compare(schema: &MergeSchema, old: &Value, new: &Value) -> Changes {
    // Fast path: most values are unchanged.
    if old == new {
        return Changes::default();
    }
    match (view(schema, old), view(schema, new)) {
        (View::Object(old), View::Object(new)) => {
            compare_children(&fields(old), &fields(new), |element| match element {
                PathElement::Field(name) => schema.field(name),
                _ => schema.item(),
            })
        }
        (View::List(old), View::List(new)) => {
            compare_children(&old.into_iter().collect(), &new.into_iter().collect(), |_| schema.item())
        }
        // A null list counts as an empty list.
        (View::Leaf, View::List(new)) if old.is_null() => {
            compare_children(&Children::new(), &new.into_iter().collect(), |_| schema.item())
        }
        _ if equal_values(old, new) => Changes::default(),
        _ => {
            let mut removed = all_fields(schema, old);
            let set = all_fields(schema, new);
            removed.subtract(&set);
            Changes { set, removed }
        }
    }
}

/// Returns whether two values are equal if integers equal floating-point numbers of the same value, as kube-apiserver compares:
/// clients and encoders write the same number as `1` or as `1.0`.
pub(super) fn equal_values(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || (a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal_values(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, value)| b.get(name).is_some_and(|other| equal_values(value, other)))
        }
        _ => a == b,
    }
}

type Children<'v> = BTreeMap<PathElement, &'v Value>;

fn fields(map: &Map<String, Value>) -> Children<'_> {
    map.iter().map(|(name, value)| (PathElement::Field(name.clone()), value)).collect()
}

fn compare_children<'s>(
    old: &Children<'_>,
    new: &Children<'_>,
    schema_of: impl Fn(&PathElement) -> &'s MergeSchema,
) -> Changes {
    let mut changes = Changes::default();
    for (element, value) in new {
        let schema = schema_of(element);
        match old.get(element) {
            Some(old_value) => {
                let child_changes = compare(schema, old_value, value);
                changes.set.insert(element.clone(), child_changes.set);
                changes.removed.insert(element.clone(), child_changes.removed);
            }
            None => changes.set.insert(element.clone(), all_fields(schema, value)),
        }
    }
    for (element, value) in old.iter().filter(|(element, _)| !new.contains_key(*element)) {
        changes.removed.insert(element.clone(), all_fields(schema_of(element), value));
    }
    changes
}
