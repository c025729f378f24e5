//! Effective placement of the leader or the workers of a multi-node component.

use crate::demand::ComponentDemand;
use crate::role_placement::{PodRole, RolePlacements};
use crate::supply::RuntimeComponent;

/// Returns `runtime` and `demand` with the placement of `role` merged over the placement that applies to all Pods.
#[must_use]
pub fn apply_role_placement(
    runtime: &RuntimeComponent,
    demand: &ComponentDemand,
    role: PodRole,
) -> (RuntimeComponent, ComponentDemand) {
    let worker_has_command = |roles: &RolePlacements| roles.worker.as_ref().is_some_and(|worker| worker.has_command);
    let workers_inherit_leader = !worker_has_command(&runtime.roles) && !worker_has_command(&demand.roles);
    let (mut runtime, mut demand) = (runtime.clone(), demand.clone());
    for placement in runtime.roles.clone().for_role(role, workers_inherit_leader) {
        runtime.node_selector.extend(placement.node_selector.clone());
        runtime.affinities.extend(placement.affinity.clone());
        runtime.tolerations.extend(placement.tolerations.clone());
    }
    for placement in demand.roles.clone().for_role(role, workers_inherit_leader) {
        demand.node_selector.extend(placement.node_selector.clone());
        demand.affinity = placement.affinity.clone().or(demand.affinity);
        demand.tolerations.extend(placement.tolerations.clone());
    }
    (runtime, demand)
}
