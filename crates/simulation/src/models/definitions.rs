//! CustomResourceDefinitions that are removed and installed again, with all their objects.

use apimachinery::object;
use serde::{Deserialize, Serialize};

use crate::initial_objects::{DEFINITIONS, definitions, supply};
use crate::model::Model;
use crate::world::World;

/// Removes and installs definitions.
pub(crate) struct Definitions;

/// A change of a definition.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum DefinitionAction {
    Install { name: String },
    Remove { name: String },
}

// === impl Model for Definitions ===

impl Model for Definitions {
    type Action = DefinitionAction;

    fn name(&self) -> &'static str {
        "definitions"
    }

    fn draw(&self, world: &World, random: &mut fastrand::Rng) -> Vec<DefinitionAction> {
        let definitions = definitions();
        let Some(definition) = definitions.get(random.usize(..definitions.len().max(1))) else { return Vec::new() };
        let name = object::name(definition).to_owned();
        vec![match world.server().get(DEFINITIONS, "", &name) {
            None => DefinitionAction::Install { name },
            Some(_) => DefinitionAction::Remove { name },
        }]
    }

    fn act(&mut self, world: &mut World, action: DefinitionAction) -> Option<String> {
        match action {
            DefinitionAction::Install { name } => {
                let definition = definitions().iter().find(|definition| object::name(definition) == name)?;
                world.server().create(DEFINITIONS, definition.clone()).ok()?;
                Some(format!("install definition {name}"))
            }
            DefinitionAction::Remove { name } => {
                world.remove_all_foreign(&name);
                world.server().delete(DEFINITIONS, "", &name, None).ok()?;
                Some(format!("remove definition {name}"))
            }
        }
    }

    fn settle(&mut self, world: &mut World) {
        for definition in definitions() {
            if world.server().get(DEFINITIONS, "", object::name(definition)).is_none() {
                world.server().create(DEFINITIONS, definition.clone()).ok();
            }
        }
        for (resource, object) in supply() {
            if world.server().get(resource, "", object::name(&object)).is_none() {
                world.server().create(resource, object).ok();
            }
        }
    }
}
