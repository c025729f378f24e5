//! Nodes with accelerators that join and leave.

use serde::{Deserialize, Serialize};

use crate::initial_objects::node;
use crate::model::Model;
use crate::world::World;

/// One node remains, so that the services have a feasible plan.
const NAMES: [&str; 2] = ["gpu-b", "gpu-c"];

/// Adds and removes nodes.
pub(crate) struct Nodes;

/// A change of a node.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum NodeAction {
    Add { name: String },
    Delete { name: String },
}

// === impl Model for Nodes ===

impl Model for Nodes {
    type Action = NodeAction;

    fn name(&self) -> &'static str {
        "nodes"
    }

    fn draw(&self, world: &World, random: &mut fastrand::Rng) -> Vec<NodeAction> {
        let name = NAMES[random.usize(..NAMES.len())].to_owned();
        vec![match world.server().get("nodes", "", &name) {
            None => NodeAction::Add { name },
            Some(_) => NodeAction::Delete { name },
        }]
    }

    fn act(&mut self, world: &mut World, action: NodeAction) -> Option<String> {
        match action {
            NodeAction::Add { name } => {
                world.server().create("nodes", node(&name)).ok()?;
                Some(format!("add node {name}"))
            }
            NodeAction::Delete { name } => {
                world.server().delete("nodes", "", &name, None).ok()?;
                Some(format!("delete node {name}"))
            }
        }
    }
}
