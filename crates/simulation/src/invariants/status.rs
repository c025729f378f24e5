//! The status does not contradict the objects.

use std::collections::BTreeMap;

use apimachinery::object;
use serde_json::Value;

use super::plans::{is_foreign, plans};
use crate::initial_objects::SERVICES;
use crate::invariant::Invariant;
use crate::world::World;

/// Resources of the workloads, and the field of their status with the number of available replicas.
const WORKLOADS: [(&str, &str); 2] =
    [("deployments.apps", "availableReplicas"), ("leaderworkersets.leaderworkerset.x-k8s.io", "readyReplicas")];
/// Label of workloads with the role of a role-based service.
const ROLE: &str = "fusioninfer.io/role-name";

/// A service is ready if all its workloads are available, and not ready if an object of a person is in its way, or if none of
/// the workloads of a role is available.
pub(crate) struct Statuses;

// === impl Invariant for Statuses ===

impl Invariant for Statuses {
    fn name(&self) -> &'static str {
        "the status agrees with the objects"
    }

    fn after_quiet(&mut self, world: &World) -> Result<(), String> {
        let plans = plans(world)?;
        SERVICES.iter().flat_map(|resource| world.server().list(resource)).try_for_each(|service| {
            let (name, status) = (object::name(&service), &service["status"]);
            let Some(ready) = cluster::find_condition(&status["conditions"], "Ready") else {
                return Err(format!("service {name} has no condition Ready"));
            };
            let (observed, generation) = (&status["observedGeneration"], &service["metadata"]["generation"]);
            if observed != generation {
                return Err(format!("service {name} has generation {generation}, its status describes {observed}"));
            }
            let mut planned = plans.iter().filter(|plan| plan.name == name).flat_map(|plan| &plan.objects);
            let is_blocked = planned.any(|planned| is_foreign(world, planned));
            let roles = available_workloads(world, &service);
            let is_available = !roles.is_empty() && roles.values().flatten().all(|is_available| *is_available);
            let is_serving =
                !roles.is_empty() && roles.values().all(|workloads| workloads.iter().any(|is_available| *is_available));
            let is_consistent = match ready["status"] == "True" {
                true => is_serving && !is_blocked,
                false => is_blocked || !is_available,
            };
            if is_consistent {
                return Ok(());
            }
            Err(format!("service {name} reports {ready}, blocked: {is_blocked}, available workloads: {roles:?}"))
        })
    }
}

/// Returns whether the workloads of a service are available, by role.
fn available_workloads(world: &World, service: &Value) -> BTreeMap<String, Vec<bool>> {
    let mut roles: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    for (resource, field) in WORKLOADS {
        for workload in world.server().list(resource) {
            if cluster::controller_uid(&workload) == Some(object::uid(service)) {
                let role = object::label(&workload, ROLE).unwrap_or_default().to_owned();
                let is_available = workload["status"][field].as_i64() >= workload["spec"]["replicas"].as_i64();
                roles.entry(role).or_default().push(is_available);
            }
        }
    }
    roles
}
