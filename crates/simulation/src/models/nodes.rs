//! Nodes with accelerators that join, leave, and are not schedulable for a while.

use apimachinery::{condition, object};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::initial_objects::node;
use crate::model::Model;
use crate::world::World;

/// Nodes that join and leave. Another one remains, so that the services have a feasible plan.
const NAMES: [&str; 2] = ["gpu-b", "gpu-c"];

/// Nodes for all Pods of gangs, with additional replicas of two roles.
const ENOUGH: [&str; 6] = ["gpu-a", "gpu-b", "gpu-c", "gpu-d", "gpu-e", "gpu-f"];

/// Adds and removes nodes, cordons them, and lets their kubelets stop.
pub(crate) struct Nodes {
    /// Whether there are nodes for all Pods at the end.
    pub(crate) adds_nodes: bool,
}

/// A change of a node.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum NodeAction {
    Add { name: String },
    Delete { name: String },
    Cordon { name: String, cordoned: bool },
    SetReady { name: String, ready: bool },
}

// === impl Model for Nodes ===

impl Model for Nodes {
    type Action = NodeAction;

    fn name(&self) -> &'static str {
        "nodes"
    }

    fn draw(&self, world: &World, random: &mut fastrand::Rng) -> Vec<NodeAction> {
        let nodes = world.server().list("nodes");
        if let Some(node) = nodes.get(random.usize(..nodes.len().max(1))).filter(|_| random.bool()) {
            let name = object::name(node).to_owned();
            return vec![match random.bool() {
                true => NodeAction::Cordon { name, cordoned: node["spec"]["unschedulable"] != true },
                false => NodeAction::SetReady { name, ready: !condition::is_true(node, "Ready") },
            }];
        }
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
            NodeAction::Cordon { name, cordoned } => {
                let mut node = Value::clone(&*world.server().get("nodes", "", &name)?);
                node["spec"]["unschedulable"] = json!(cordoned);
                world.server().update("nodes", node).ok()?;
                Some(format!("{} node {name}", if cordoned { "cordon" } else { "uncordon" }))
            }
            NodeAction::SetReady { name, ready } => {
                let mut node = Value::clone(&*world.server().get("nodes", "", &name)?);
                let status = if ready { "True" } else { "False" };
                node["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
                world.server().update_status("nodes", node).ok()?;
                Some(format!("node {name} is {}", if ready { "ready" } else { "not ready" }))
            }
        }
    }

    fn settle(&mut self, world: &mut World) {
        for name in ENOUGH.into_iter().filter(|name| self.adds_nodes && world.server().get("nodes", "", name).is_none())
        {
            world.server().create("nodes", node(name)).ok();
        }
        for node in world.server().list("nodes") {
            let name = object::name(&node).to_owned();
            if node["spec"]["unschedulable"] == true {
                self.act(world, NodeAction::Cordon { name: name.clone(), cordoned: false });
            }
            if !condition::is_true(&node, "Ready") {
                self.act(world, NodeAction::SetReady { name, ready: true });
            }
        }
    }
}
