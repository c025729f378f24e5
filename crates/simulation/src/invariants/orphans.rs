//! A deleted service leaves nothing.

use std::sync::Arc;

use apimachinery::object;
use operator::FIELD_MANAGER;
use operator::kinds::OWNED;
use serde_json::Value;

use crate::initial_objects::SERVICES;
use crate::invariant::Invariant;
use crate::world::World;

/// Every object that the operator manages, or that a service owns, belongs to an existing service.
pub(crate) struct Orphans;

// === impl Invariant for Orphans ===

impl Invariant for Orphans {
    fn name(&self) -> &'static str {
        "a deleted service leaves nothing"
    }

    fn after_quiet(&mut self, world: &World) -> Result<(), String> {
        let services: Vec<_> = SERVICES.iter().flat_map(|resource| world.server().list(resource)).collect();
        for kind in OWNED {
            let objects = world.server().list(&kind.group_resource());
            let controller_is_service = |object: &Value| {
                cluster::controller_of(object).is_some_and(|owner| owner["kind"] == "InferenceService")
            };
            let is_foreign = |object: &Value| {
                let target = (kind.group_resource(), "default".to_owned(), object::name(object).to_owned());
                world.foreign().contains_key(&target)
            };
            let is_compared = |object: &&Arc<Value>| {
                let is_managed = cluster::is_managed_by(object, FIELD_MANAGER) || controller_is_service(object);
                is_managed && !is_foreign(object)
            };
            for object in objects.iter().filter(is_compared) {
                let owner = cluster::controller_uid(object).map(str::to_owned);
                let exists = |service: &Value| service["metadata"]["uid"].as_str() == owner.as_deref();
                if owner.is_none() || !services.iter().any(|service| exists(service)) {
                    return Err(format!("{} remains without its service", cluster::kind_and_name(object)));
                }
            }
        }
        Ok(())
    }
}
