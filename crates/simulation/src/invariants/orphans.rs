//! A deleted service leaves nothing.

use operator::FIELD_MANAGER;
use operator::kinds::OWNED;
use serde_json::Value;

use crate::initial_objects::SERVICES;
use crate::invariant::Invariant;
use crate::world::World;

/// Every object that the operator manages belongs to an existing service.
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
            for object in objects.iter().filter(|object| cluster::is_managed_by(object, FIELD_MANAGER)) {
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
