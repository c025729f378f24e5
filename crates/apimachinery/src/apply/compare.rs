//! What differs between two states of an object.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::{FieldSet, Step};
use super::view::{View, all_fields, view};
use crate::structure::Structure;

/// The fields that differ.
#[derive(Default)]
pub(super) struct Changes {
    /// New, or with another value.
    pub set: FieldSet,
    pub removed: FieldSet,
}

pub(super) fn compare(structure: &Structure, old: &Value, new: &Value) -> Changes {
    // Most of an object stays as it is.
    if old == new {
        return Changes::default();
    }
    match (view(structure, old), view(structure, new)) {
        (View::Object(old), View::Object(new)) => children(&fields(old), &fields(new), |step| match step {
            Step::Field(name) => structure.field(name),
            _ => structure.item(),
        }),
        (View::List(old), View::List(new)) => {
            children(&old.into_iter().collect(), &new.into_iter().collect(), |_| structure.item())
        }
        // A list that is null is there, without elements.
        (View::Leaf, View::List(new)) if old.is_null() => {
            children(&Parts::new(), &new.into_iter().collect(), |_| structure.item())
        }
        _ => {
            let mut removed = all_fields(structure, old);
            let set = all_fields(structure, new);
            removed.subtract(&set);
            Changes { set, removed }
        }
    }
}

type Parts<'v> = BTreeMap<Step, &'v Value>;

fn fields(map: &Map<String, Value>) -> Parts<'_> {
    map.iter().map(|(name, value)| (Step::Field(name.clone()), value)).collect()
}

fn children<'s>(old: &Parts<'_>, new: &Parts<'_>, structure_of: impl Fn(&Step) -> &'s Structure) -> Changes {
    let mut changes = Changes::default();
    for (step, value) in new {
        let structure = structure_of(step);
        match old.get(step) {
            Some(before) => {
                let inner = compare(structure, before, value);
                changes.set.put(step.clone(), inner.set);
                changes.removed.put(step.clone(), inner.removed);
            }
            None => changes.set.put(step.clone(), all_fields(structure, value)),
        }
    }
    for (step, value) in old.iter().filter(|(step, _)| !new.contains_key(*step)) {
        changes.removed.put(step.clone(), all_fields(structure_of(step), value));
    }
    changes
}
