//! CustomResourceDefinitions that are removed and installed again, with all their objects.

use apimachinery::object;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
        let is_installed =
            |definition: &&Value| world.server().get(DEFINITIONS, "", object::name(definition)).is_some();
        let (installed, missing): (Vec<_>, Vec<_>) = definitions().iter().partition(is_installed);
        if !missing.is_empty() && random.bool() {
            let name = object::name(missing[random.usize(..missing.len())]).to_owned();
            return vec![DefinitionAction::Install { name }];
        }
        let Some(definition) = installed.get(random.usize(..installed.len().max(1))) else { return Vec::new() };
        vec![DefinitionAction::Remove { name: object::name(definition).to_owned() }]
    }

    fn act(&mut self, world: &mut World, action: DefinitionAction) -> Option<String> {
        match action {
            DefinitionAction::Install { name } => {
                let definition = definitions().iter().find(|definition| object::name(definition) == name)?;
                world.server().create(DEFINITIONS, definition.clone()).ok()?;
                Some(format!("install definition {name}"))
            }
            DefinitionAction::Remove { name } => {
                world.remove_resource(&name);
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
            if world.server().get(resource, "", object::name(&object)).is_none()
                && let Ok(created) = world.server().create(resource, object)
            {
                world.add_input(resource, &created);
            }
        }
    }
}
