//! Accelerators for the Pods of planned workloads, with and without those of the obsolete ones.

use std::sync::Arc;

use cluster::is_terminating;
use decide::{Inventory, NodeInfo, is_pod_terminal, nodes_without_pods, place_pods};
use plan::labels::WORKER_INDEX;
use serde_json::Value;

use crate::condition_reason::WorkloadReason;
use crate::readiness::{Progress, pod_problem};
use crate::workloads::{LiveWorkload, PlannedWorkload, replica_templates};

/// Accelerators for the planned Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplacementCapacity {
    /// While the obsolete Pods run.
    pub(crate) with_obsolete: Room,
    /// Once the obsolete Pods have stopped.
    pub(crate) without_obsolete: Room,
}

/// How many planned Pods have accelerators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Planned Pods that are not scheduled and do not fit on free accelerators.
    pub(crate) missing_pods: u32,
    /// Whether every planned workload has one replica whose Pods are scheduled or fit.
    pub(crate) has_replica: bool,
}

/// Replicas that are updated at the same time, with the additional ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct SurgeUpdate {
    /// The updated replicas. Those with a live object retain its scheduled Pods.
    replicas: Vec<PlannedWorkload>,
    /// Live replicas that stop before the updated ones start.
    outdated: Vec<LiveWorkload>,
    /// Additional replicas, which start while all others run, and serve until the updated ones are ready.
    surges: Vec<PlannedWorkload>,
    /// Replicas that stop in any case. Their accelerators count as free.
    deleted: Vec<LiveWorkload>,
}

/// Pods of a planned workload with the same template.
struct PodSet<'a> {
    template: &'a Value,
    /// Pods of one replica.
    per_replica: u32,
    /// Planned Pods.
    planned: u32,
    /// Pods that are scheduled, or that fit.
    placed: u32,
}

// === impl SurgeUpdate ===

impl SurgeUpdate {
    /// Adds a replica that retains its scheduled Pods.
    pub(crate) fn keep(&mut self, replica: &PlannedWorkload) {
        self.replicas.push(replica.clone());
    }

    /// Adds a replica that stops before it is updated.
    pub(crate) fn restart(&mut self, replica: &PlannedWorkload) {
        self.outdated.extend(replica.live.clone());
        self.replicas.push(PlannedWorkload { live: None, ..replica.clone() });
    }

    /// Adds a replica that stops before the others are updated.
    pub(crate) fn stop(&mut self, replica: &LiveWorkload) {
        self.outdated.push(replica.clone());
    }

    /// Adds a replica that stops in any case.
    pub(crate) fn delete(&mut self, replica: &LiveWorkload) {
        self.deleted.push(replica.clone());
    }

    /// Adds an additional replica.
    pub(crate) fn add_surge(&mut self, surge: &PlannedWorkload) {
        self.surges.push(surge.clone());
    }

    /// Returns whether the updated replicas have accelerators without the additional ones, but not with them. Accelerators of
    /// the `stopping` Pods count as free. `false` if the nodes are unknown.
    pub(crate) fn fits_only_without_surges(&self, inventory: &Inventory, stopping: &[Arc<Value>]) -> bool {
        if !inventory.has_nodes() {
            return false;
        }
        let live = |workloads: &[PlannedWorkload]| -> Vec<LiveWorkload> {
            workloads.iter().filter_map(|workload| workload.live.clone()).collect()
        };
        let live_surges = live(&self.surges);
        let stopping = stopping.iter().map(AsRef::as_ref).chain(scheduled_pods(&self.deleted));
        let nodes = nodes_without_pods(inventory.nodes(), &stopping.collect::<Vec<_>>());
        let nodes_after_stop = nodes_without_pods(&nodes, &scheduled_pods(&self.outdated));
        let nodes_without_surges = nodes_without_pods(&nodes_after_stop, &scheduled_pods(&live_surges));
        // Without quota, a Pod starts only once another one has stopped, even if nodes have free accelerators.
        let without_quota = |workloads: &[PlannedWorkload], nodes: Vec<NodeInfo>| {
            if waits_for_quota(workloads) { Vec::new() } else { nodes }
        };
        let all = [self.replicas.as_slice(), self.surges.as_slice()].concat();
        let fits = |workloads: &[PlannedWorkload], nodes: Vec<NodeInfo>| room(workloads, nodes).missing_pods == 0;
        let fits_with_surges = fits(&self.surges, without_quota(&self.surges, nodes))
            && fits(&all, without_quota(&self.replicas, nodes_after_stop));
        !fits_with_surges && fits(&self.replicas, nodes_without_surges)
    }
}

// === impl PodSet ===

impl PodSet<'_> {
    /// Places Pods on free accelerators until `count` have accelerators.
    fn place(&mut self, nodes: &mut [NodeInfo], count: u32) {
        let placed = place_pods(nodes, self.template, count.min(self.planned).saturating_sub(self.placed));
        self.placed = self.placed.saturating_add(placed);
    }
}

/// Returns the accelerators for the Pods of the planned workloads; `None` if the nodes are unknown.
pub(super) fn replacement_capacity(
    planned: &[PlannedWorkload],
    obsolete: &[LiveWorkload],
    inventory: &Inventory,
) -> Option<ReplacementCapacity> {
    if !inventory.has_nodes() {
        return None;
    }
    // Without quota, a new Pod starts only once an old one has stopped, even if nodes have free accelerators.
    let nodes = if waits_for_quota(planned) { Vec::new() } else { inventory.nodes().cloned().collect() };
    Some(ReplacementCapacity {
        with_obsolete: room(planned, nodes),
        without_obsolete: room(planned, nodes_without_pods(inventory.nodes(), &scheduled_pods(obsolete))),
    })
}

/// Returns whether a Pod of the workloads waits for quota.
fn waits_for_quota(planned: &[PlannedWorkload]) -> bool {
    let waits = |pod: &Value| pod_problem(pod).is_some_and(|problem| problem.reason == WorkloadReason::WaitingForQuota);
    planned.iter().filter_map(|workload| workload.live.as_ref()).flat_map(LiveWorkload::pods).any(waits)
}

/// Returns the Pods of the workloads that hold resources of nodes.
fn scheduled_pods(workloads: &[LiveWorkload]) -> Vec<&Value> {
    workloads.iter().flat_map(LiveWorkload::pods).filter(|pod| is_scheduled(pod)).collect()
}

/// Places one replica of each workload, and then the others.
fn room(planned: &[PlannedWorkload], mut nodes: Vec<NodeInfo>) -> Room {
    let mut sets: Vec<PodSet<'_>> = planned.iter().flat_map(pod_sets).collect();
    // The Pods of which the fewest fit are placed first.
    let mut counts: Vec<(&Value, u32)> = Vec::new();
    sets.sort_by_cached_key(|set| {
        let known = counts.iter().find(|(template, _)| template["spec"] == set.template["spec"]);
        known.map(|(_, count)| *count).unwrap_or_else(|| {
            let count = place_pods(&mut nodes.clone(), set.template, u32::MAX);
            counts.push((set.template, count));
            count
        })
    });
    sets.iter_mut().for_each(|set| set.place(&mut nodes, set.per_replica));
    let has_replica = sets.iter().all(|set| set.placed >= set.per_replica.min(set.planned));
    sets.iter_mut().for_each(|set| set.place(&mut nodes, set.planned));
    let missing_pods = sets.iter().fold(0, |sum: u32, set| sum.saturating_add(set.planned.saturating_sub(set.placed)));
    Room { missing_pods, has_replica }
}

/// Returns the Pods of a Deployment, or the leaders and the workers of a LeaderWorkerSet.
fn pod_sets(workload: &PlannedWorkload) -> Vec<PodSet<'_>> {
    let spec = &workload.planned["spec"];
    let replicas = spec["replicas"].as_i64().or_else(|| {
        let live = workload.live.as_ref()?;
        Some(Progress::from_workload(&live.object).desired)
    });
    let replicas = u32::try_from(replicas.unwrap_or(1)).unwrap_or(0);
    let scheduled = |includes: &dyn Fn(&Value) -> bool| {
        let pods = workload.live.iter().flat_map(LiveWorkload::pods);
        u32::try_from(pods.filter(|pod| is_scheduled(pod) && includes(pod)).count()).unwrap_or(u32::MAX)
    };
    let set = |template, per_replica: u32, placed| PodSet {
        template,
        per_replica,
        planned: replicas.saturating_mul(per_replica),
        placed,
    };
    let is_worker = |pod: &Value| pod["metadata"]["labels"][WORKER_INDEX].as_str().is_some_and(|index| index != "0");
    let templates = replica_templates(&workload.planned);
    let sets = templates.into_iter().enumerate().map(|(position, (template, per_replica))| {
        // The workers follow the leader.
        set(template, per_replica, scheduled(&|pod| is_worker(pod) == (position > 0)))
    });
    sets.collect()
}

/// Returns whether a Pod holds the resources of a node.
fn is_scheduled(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string() && !is_terminating(pod) && !is_pod_terminal(pod)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn template(gpus: u32) -> Value {
        json!({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]}})
    }

    /// Returns a LeaderWorkerSet of Pods with eight GPUs each, of which the first ones are scheduled.
    fn set(replicas: u32, size: u32, scheduled: usize) -> PlannedWorkload {
        let group = json!({"size": size, "workerTemplate": template(8)});
        let set = json!({"kind": "LeaderWorkerSet", "spec": {"replicas": replicas, "leaderWorkerTemplate": group}});
        let pod = |index: usize| json!({"metadata": {"labels": {WORKER_INDEX: index.to_string()}}, "spec": {"nodeName": "n"}});
        PlannedWorkload::new(set.clone(), Some(set), (0..scheduled).map(pod).collect())
    }

    fn deployment(replicas: u32) -> PlannedWorkload {
        let spec = json!({"replicas": replicas, "template": template(1)});
        PlannedWorkload::new(json!({"kind": "Deployment", "spec": spec}), None, Vec::new())
    }

    /// Columns: planned workloads, free nodes of eight GPUs, Pods without accelerators, whether every workload has a replica.
    #[rstest]
    #[case::fits(vec![set(1, 2, 0)], 2, 0, true)]
    #[case::half_a_replica(vec![set(1, 2, 0)], 1, 1, false)]
    #[case::leader_is_scheduled(vec![set(1, 2, 1)], 1, 0, true)]
    #[case::one_of_two_replicas(vec![set(2, 2, 0)], 3, 1, true)]
    #[case::every_workload_gets_a_replica(vec![deployment(16), set(1, 1, 0)], 2, 8, true)]
    #[case::no_replicas(vec![set(0, 2, 0)], 0, 0, true)]
    fn counts_pods_without_accelerators(
        #[case] planned: Vec<PlannedWorkload>,
        #[case] free_nodes: usize,
        #[case] missing_pods: u32,
        #[case] has_replica: bool,
    ) {
        let node = |index: usize| {
            let status = json!({"allocatable": {"nvidia.com/gpu": "8"}});
            decide::node_info(&json!({"metadata": {"name": format!("n{index}")}, "status": status}))
        };
        let nodes = (0..free_nodes).map(node).collect();
        assert_eq!(room(&planned, nodes), Room { missing_pods, has_replica });
    }
}
