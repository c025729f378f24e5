//! Accelerators for the Pods of planned workloads, with and without those of the obsolete ones.

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
    let obsolete: Vec<&Value> = obsolete.iter().flat_map(LiveWorkload::pods).filter(|pod| is_scheduled(pod)).collect();
    let waits_for_quota =
        |pod: &Value| pod_problem(pod).is_some_and(|problem| problem.reason == WorkloadReason::WaitingForQuota);
    let mut planned_pods = planned.iter().filter_map(|workload| workload.live.as_ref()).flat_map(LiveWorkload::pods);
    let nodes = match planned_pods.any(waits_for_quota) {
        // Without quota, a new Pod starts only once an old one has stopped, even if nodes have free accelerators.
        true => Vec::new(),
        false => inventory.nodes().cloned().collect(),
    };
    Some(ReplacementCapacity {
        with_obsolete: room(planned, nodes),
        without_obsolete: room(planned, nodes_without_pods(inventory.nodes(), &obsolete)),
    })
}

/// Returns the accelerators for the update of the `replicas` of a role, of which those of `updated` stop first: with the
/// additional replica `surge`, which starts while all run and stops only after the updated ones have started, and without it.
/// `None` if the nodes are unknown.
pub(crate) fn surge_capacity(
    surge: &PlannedWorkload,
    replicas: &[&PlannedWorkload],
    updated: &[&PlannedWorkload],
    inventory: &Inventory,
) -> Option<ReplacementCapacity> {
    let live = |workloads: &[&PlannedWorkload]| -> Vec<LiveWorkload> {
        workloads.iter().filter_map(|workload| workload.live.clone()).collect()
    };
    let unstarted = |workload: &&PlannedWorkload| PlannedWorkload { live: None, ..(*workload).clone() };
    let starting: Vec<PlannedWorkload> = updated.iter().map(unstarted).collect();
    let beside_surge: Vec<PlannedWorkload> = starting.iter().chain([surge]).cloned().collect();
    let stopped = live(updated);
    let stopped_with_surge: Vec<LiveWorkload> = stopped.iter().cloned().chain(surge.live.clone()).collect();
    let of_surge = replacement_capacity(std::slice::from_ref(surge), &live(replicas), inventory)?.with_obsolete;
    let of_update = replacement_capacity(&beside_surge, &stopped, inventory)?.without_obsolete;
    Some(ReplacementCapacity {
        with_obsolete: Room {
            missing_pods: of_surge.missing_pods.max(of_update.missing_pods),
            has_replica: of_surge.has_replica && of_update.has_replica,
        },
        without_obsolete: replacement_capacity(&starting, &stopped_with_surge, inventory)?.without_obsolete,
    })
}

/// Places one replica of each workload, and then the others.
fn room(planned: &[PlannedWorkload], mut nodes: Vec<NodeInfo>) -> Room {
    let mut sets: Vec<PodSet<'_>> = planned.iter().flat_map(pod_sets).collect();
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
