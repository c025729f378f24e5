//! CustomResourceDefinitions that are removed and installed again, with all their objects.

use crate::initial_objects::{DEFINITIONS, definitions, supply};
use crate::model::Model;
use crate::world::World;

/// Removes and installs definitions.
pub(crate) struct Definitions;

// === impl Model for Definitions ===

impl Model for Definitions {
    fn name(&self) -> &'static str {
        "definitions"
    }

    fn act(&mut self, world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
        let definitions = definitions();
        let definition = definitions.get(random.usize(..definitions.len()))?;
        let name = definition["metadata"]["name"].as_str()?;
        if world.server().get(DEFINITIONS, "", name).is_none() {
            world.server().create(DEFINITIONS, definition.clone()).ok()?;
            return Some(format!("install definition {name}"));
        }
        world.remove_all_foreign(name);
        world.server().delete(DEFINITIONS, "", name, None).ok()?;
        Some(format!("remove definition {name}"))
    }

    fn settle(&mut self, world: &mut World) {
        for definition in definitions() {
            let name = definition["metadata"]["name"].as_str().unwrap_or_default();
            if world.server().get(DEFINITIONS, "", name).is_none() {
                world.server().create(DEFINITIONS, definition.clone()).ok();
            }
        }
        for (resource, object) in supply() {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if world.server().get(resource, "", name).is_none() {
                world.server().create(resource, object).ok();
            }
        }
    }
}
