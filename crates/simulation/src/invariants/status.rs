//! The status does not contradict the objects.

use serde_json::Value;

use crate::invariant::Invariant;
use crate::models::SERVICES;
use crate::world::World;

/// A service is ready exactly if its Deployment is available, unless an object of a person is in its way.
pub(crate) struct Statuses;

// === impl Invariant for Statuses ===

impl Invariant for Statuses {
    fn name(&self) -> &'static str {
        "the status agrees with the objects"
    }

    fn after_quiet(&mut self, world: &World) -> Result<(), String> {
        for service in world.server().list(SERVICES) {
            let (name, status) = (cluster::metadata_field(&service, "name"), &service["status"]);
            let Some(ready) = cluster::find_condition(&status["conditions"], "Ready") else {
                return Err(format!("service {name} has no condition Ready"));
            };
            let deployment = world.server().get("deployments.apps", "default", &format!("{name}-engine"));
            let is_available = deployment.as_deref().is_some_and(is_available);
            let is_blocked = world.foreign().keys().any(|(_, _, object)| object.starts_with(name));
            let is_ready = ready["status"] == "True";
            if is_ready && (!is_available || is_blocked) || !is_ready && is_available && !is_blocked {
                return Err(format!(
                    "service {name} reports {ready}, available: {is_available}, blocked: {is_blocked}"
                ));
            }
        }
        Ok(())
    }
}

fn is_available(deployment: &Value) -> bool {
    deployment["status"]["availableReplicas"].as_i64() >= deployment["spec"]["replicas"].as_i64()
}
