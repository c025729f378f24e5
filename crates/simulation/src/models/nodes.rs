//! Nodes with accelerators that join and leave.

use crate::initial_objects::node;
use crate::model::Model;
use crate::world::World;

const NAMES: [&str; 3] = ["gpu-a", "gpu-b", "gpu-c"];

/// Adds and removes nodes. One remains, so that the services have a feasible plan.
pub(crate) struct Nodes;

// === impl Nodes ===

impl Model for Nodes {
    fn name(&self) -> &'static str {
        "nodes"
    }

    fn act(&mut self, world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
        let name = NAMES[random.usize(1..NAMES.len())];
        if world.server().get("nodes", "", name).is_none() {
            world.server().create("nodes", node(name)).ok()?;
            return Some(format!("add node {name}"));
        }
        world.server().delete("nodes", "", name, None).ok()?;
        Some(format!("delete node {name}"))
    }
}
