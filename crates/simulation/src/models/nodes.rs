//! Nodes with accelerators that join and leave.

use serde_json::json;

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
            add_node(world, name);
            return Some(format!("add node {name}"));
        }
        world.server().delete("nodes", "", name, None).ok()?;
        Some(format!("delete node {name}"))
    }
}

/// Adds a node with eight accelerators.
pub(crate) fn add_node(world: &World, name: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "big"}},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti"},
            "capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}});
    world.server().create("nodes", node).ok();
}
