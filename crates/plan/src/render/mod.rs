//! From the topology to whole Kubernetes objects, in apply order. Pure and stable to the byte: no generation, time or
//! resourceVersion in any pod template.

mod autoscaling;
mod deployment;
mod disruption;
mod leader_worker_set;
mod pod_group;
mod pool;
mod router;
mod service;

use serde_json::Value;

use crate::topology::{Owner, Role, Topology, Workload};

/// The gang before the first of its Pods, workloads role by role, then what routes requests to them.
pub fn objects(topology: &Topology) -> Vec<Value> {
    let (owner, labels) = (&topology.owner, &topology.labels);
    let mut objects: Vec<Value> = topology.gang.iter().map(|gang| pod_group::render(owner, labels, gang)).collect();
    for role in &topology.roles {
        match role.workload {
            Workload::Deployment => {
                objects.push(deployment::render(owner, role));
                objects.extend(around(owner, role));
            }
            Workload::LeaderWorkerSet => {
                objects.push(leader_worker_set::whole(owner, role));
                objects.extend(around(owner, role));
            }
            Workload::LeaderWorkerSetPerReplica => {
                objects.extend((0..role.replicas.min).map(|index| leader_worker_set::replica(owner, role, index)));
            }
        }
    }
    objects.extend(topology.router.iter().flat_map(|router| router::render(owner, router)));
    if let Some(routing) = &topology.routing {
        objects.push(pool::backend_pool(owner, labels, routing));
        objects.push(pool::use_case_set(owner, labels, routing));
    }
    objects
}

/// What stands beside a workload of many replicas.
fn around(owner: &Owner, role: &Role) -> impl Iterator<Item = Value> {
    let beside = [service::render, autoscaling::render, disruption::render];
    beside.into_iter().filter_map(|render: fn(&Owner, &Role) -> Option<Value>| render(owner, role))
}
