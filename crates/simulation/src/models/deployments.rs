//! The Deployment controller and its Pods, reduced to the status of the Deployment.

use serde_json::{Value, json};

use crate::model::Model;
use crate::world::World;

const RESOURCE: &str = "deployments.apps";

/// Makes the replicas of Deployments available and unavailable.
pub(crate) struct Deployments;

// === impl Deployments ===

impl Model for Deployments {
    fn name(&self) -> &'static str {
        "deployments"
    }

    fn act(&mut self, world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
        let deployments = world.server().list(RESOURCE);
        let deployment = deployments.get(random.usize(..deployments.len().max(1)))?;
        let is_available = random.bool();
        report(world, deployment, is_available);
        let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
        Some(format!("Deployment {name} is {}", if is_available { "available" } else { "not available" }))
    }

    fn settle(&mut self, world: &mut World) {
        for deployment in world.server().list(RESOURCE) {
            report(world, &deployment, true);
        }
    }
}

fn report(world: &World, deployment: &Value, is_available: bool) {
    let replicas = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let available = if is_available { replicas } else { 0 };
    let mut deployment = deployment.clone();
    deployment["status"] = json!({"observedGeneration": deployment["metadata"]["generation"], "replicas": replicas,
        "updatedReplicas": replicas, "readyReplicas": available, "availableReplicas": available});
    world.server().update_status(RESOURCE, deployment).ok();
}
