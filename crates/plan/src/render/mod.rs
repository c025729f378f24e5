//! Renders a topology into Kubernetes objects in apply order. The output is deterministic: Pod templates contain no generation,
//! time or resourceVersion.

mod autoscaling;
mod deployment;
mod disruption;
mod leader_worker_set;
mod pod_group;
mod pool;
mod router;
mod service;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::owner::Owner;
use crate::role::{Role, Workload};
use crate::topology::Topology;

/// Renders all objects: the PodGroup first, then the workloads of each role, then the routing.
pub(crate) fn objects(topology: &Topology) -> Vec<Value> {
    let (owner, labels) = (&topology.owner, &topology.labels);
    let mut objects: Vec<Value> = topology.gang.iter().map(|gang| pod_group::render(owner, labels, gang)).collect();
    for role in &topology.roles {
        match role.workload {
            Workload::Deployment => {
                objects.push(deployment::render(owner, role));
                objects.extend(companion_objects(owner, role));
            }
            Workload::LeaderWorkerSet => {
                objects.push(leader_worker_set::all_replicas(owner, role));
                objects.extend(companion_objects(owner, role));
            }
            Workload::LeaderWorkerSetPerReplica => {
                objects.extend((0..role.replicas.min).map(|index| leader_worker_set::replica(owner, role, index)));
            }
        }
    }
    objects.extend(topology.router.iter().flat_map(|router| router::render(owner, router)));
    if let Some(routing) = &topology.routing {
        objects.extend([pool::backend_pool(owner, labels, routing), pool::use_case_set(owner, labels, routing)]);
    }
    objects
}

/// Renders an additional replica of each role whose replicas are separate LeaderWorkerSets, by role name. Roles without replicas
/// have none.
pub(crate) fn surge_replicas(topology: &Topology) -> BTreeMap<String, Value> {
    let has_replicas = |role: &&Role| role.workload == Workload::LeaderWorkerSetPerReplica && role.replicas.min > 0;
    let surge_replica = |role: &Role| (role.name.clone(), leader_worker_set::surge_replica(&topology.owner, role));
    topology.roles.iter().filter(has_replicas).map(surge_replica).collect()
}

/// Renders the Service, autoscaler and PodDisruptionBudget of a role.
fn companion_objects(owner: &Owner, role: &Role) -> impl Iterator<Item = Value> {
    let renderers = [service::render, autoscaling::render, disruption::render];
    renderers.into_iter().filter_map(|render: fn(&Owner, &Role) -> Option<Value>| render(owner, role))
}
