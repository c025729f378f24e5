//! The operator neither changes nor deletes objects of people.

use std::collections::BTreeMap;

use embedded::Change;
use serde_json::Value;

use crate::invariant::Invariant;
use crate::world::{Target, World, user_fields};

/// Objects of people stay as they wrote them.
pub(crate) struct ForeignObjects;

// === impl Invariant for ForeignObjects ===

impl Invariant for ForeignObjects {
    fn name(&self) -> &'static str {
        "no foreign object is changed"
    }

    fn after_change(&mut self, world: &World, change: &Change) -> Result<(), String> {
        check_unchanged(world, change, world.foreign(), user_fields)
    }
}

/// Checks that the changed object, if it is one of `objects`, still has their `fields`.
pub(super) fn check_unchanged(
    world: &World,
    change: &Change,
    objects: &BTreeMap<Target, Value>,
    fields: fn(&Value) -> Value,
) -> Result<(), String> {
    let target = (change.resource.clone(), change.namespace.clone(), change.name.clone());
    let Some(expected) = objects.get(&target) else { return Ok(()) };
    // The person may have edited or replaced the object after this change.
    let live = world.server().get(&change.resource, &change.namespace, &change.name);
    let actual = live.as_deref().map_or(Value::Null, fields);
    if actual == *expected {
        return Ok(());
    }
    Err(format!("{} {}/{} was {expected}, is {actual}", target.0, target.1, target.2))
}
