//! Accelerators for the replicas of a new template: Pods of a Deployment, or groups of a LeaderWorkerSet.

use std::collections::BTreeMap;

use cluster::{is_terminating, metadata_field};
use decide::{Inventory, NodeInfo, free_replica_slots, is_pod_terminal, nodes_without_pods};
use plan::labels::GROUP_INDEX;
use serde_json::Value;

use crate::condition_reason::WorkloadReason;
use crate::kinds::LEADER_WORKER_SET;
use crate::readiness::pod_problem;
use crate::workloads::{LiveWorkload, replica_templates, template_revision};

/// Accelerators for the replicas of a new template, as numbers of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RolloutCapacity {
    /// Replicas of the new template that fit now, if this number and the planned one fit without the old ones.
    pub(super) free: u32,
    /// Replicas of the new template that fit once all replicas of earlier templates have stopped.
    pub(super) free_without_old: u32,
    /// Running replicas of earlier templates.
    pub(super) old: u32,
    /// Running replicas of the new template.
    pub(super) new: u32,
}

/// Replicas of the templates of a workload.
#[derive(Debug, Default)]
struct Replicas<'a> {
    /// Number of replicas whose Pods are all scheduled.
    running: u32,
    /// The scheduled Pods of these.
    pods: Vec<&'a Value>,
    /// The scheduled Pods of the other replicas, which wait for the rest.
    waiting: Vec<&'a Value>,
}

// === impl RolloutCapacity ===

impl RolloutCapacity {
    /// Returns whether old replicas run that no new replica waits for: they are on nodes of another class, or too small to make
    /// room. Stopping them would interrupt the service without starting a new replica.
    pub(super) fn old_replicas_hold_nothing(self) -> bool {
        self.old > 0 && self.free_without_old <= self.free
    }
}

// === impl Replicas ===

impl<'a> Replicas<'a> {
    /// Divides Pods into replicas.
    fn new(pods: impl Iterator<Item = &'a Value>) -> Replicas<'a> {
        let mut by_replica: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for pod in pods {
            let group = pod["metadata"]["labels"][GROUP_INDEX].as_str();
            by_replica.entry(group.unwrap_or_else(|| metadata_field(pod, "name"))).or_default().push(pod);
        }
        let mut replicas = Replicas::default();
        for pods in by_replica.into_values() {
            let (scheduled, unscheduled): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| is_scheduled(pod));
            match unscheduled.is_empty() {
                true => {
                    replicas.running = replicas.running.saturating_add(1);
                    replicas.pods.extend(scheduled);
                }
                false => replicas.waiting.extend(scheduled),
            }
        }
        replicas
    }
}

/// Returns the accelerators for `replicas` replicas of a planned workload; `None` if they request none. All existing replicas are
/// old, except those of `current_revision`.
pub(super) fn rollout_capacity(
    planned: &Value,
    live: &LiveWorkload,
    current_revision: Option<&str>,
    replicas: u32,
    inventory: &Inventory,
) -> Option<RolloutCapacity> {
    if !inventory.has_nodes() {
        return None;
    }
    let is_new = |pod: &&Value| current_revision.is_some() && template_revision(pod) == current_revision;
    let (active, stopping): (Vec<&Value>, Vec<&Value>) =
        live.pods().filter(|pod| !is_pod_terminal(pod)).partition(|pod| !is_terminating(pod));
    let (new, old): (Vec<&Value>, Vec<&Value>) = active.into_iter().partition(is_new);
    let (new, old) = (Replicas::new(new.into_iter()), Replicas::new(old.into_iter()));
    let template = replica_templates(planned);
    // One more than planned is sufficient for every strategy.
    let slots = |nodes: Vec<NodeInfo>| free_replica_slots(nodes, &template, replicas.saturating_add(1));
    // New replicas that wait for some of their Pods use what the others hold, and what the stopping Pods leave.
    let available: Vec<&Value> = new.waiting.iter().chain(&stopping).copied().collect();
    let free = slots(nodes_without_pods(inventory.nodes(), &available))?;
    let waits_for_quota =
        |pod: &Value| pod_problem(pod).is_some_and(|problem| problem.reason == WorkloadReason::WaitingForQuota);
    let (running_old, running_new) = (old.running, new.running);
    if live.pods().any(waits_for_quota) {
        // Without quota, a new replica starts only once an old one has stopped, even if nodes have free accelerators.
        return Some(RolloutCapacity { free: 0, free_without_old: running_old, old: running_old, new: running_new });
    }
    let stopped: Vec<&Value> = available.iter().chain(&old.pods).chain(&old.waiting).copied().collect();
    let free_without_old = slots(nodes_without_pods(inventory.nodes(), &stopped))?;
    // The additional group of a LeaderWorkerSet stops only after the others have been recreated.
    let stops_last = planned["kind"] == LEADER_WORKER_SET.kind;
    let fits_beside_all = free_without_old.saturating_add(running_new) > replicas;
    let free = if stops_last && !fits_beside_all { 0 } else { free };
    Some(RolloutCapacity { free, free_without_old, old: running_old, new: running_new })
}

fn is_scheduled(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn template() -> Value {
        json!({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}})
    }

    /// Returns the Pods of a group of this revision, which use one node of the cluster each from `first_node` on. The last ones of
    /// `size` Pods are not scheduled.
    fn group(index: u32, revision: &str, first_node: u32, scheduled: u32, size: u32) -> Vec<Value> {
        let pod = |pod: u32| {
            let labels = json!({GROUP_INDEX: index.to_string(),
                "leaderworkerset.sigs.k8s.io/template-revision-hash": revision});
            let mut object = json!({"metadata": {"name": format!("chat-{index}-{pod}"), "labels": labels},
                "spec": template()["spec"]});
            if pod < scheduled {
                object["spec"]["nodeName"] = json!(format!("n{}", first_node + pod));
            }
            object
        };
        (0..size).map(pod).collect()
    }

    fn stopping(mut pods: Vec<Value>) -> Vec<Value> {
        pods.iter_mut().for_each(|pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        pods
    }

    /// One group is planned. Columns: nodes of eight GPUs, planned size, existing Pods, expected capacity: free, free without old
    /// groups, running old and new groups.
    #[rstest]
    #[case::room(4, 2, group(0, "old", 0, 2, 2), (1, 2, 1, 0))]
    #[case::no_room(3, 2, group(0, "old", 0, 2, 2), (0, 1, 1, 0))]
    #[case::grows(8, 4, group(0, "old", 0, 2, 2), (1, 2, 1, 0))]
    #[case::grows_without_room_beside_the_additional_group(6, 4, group(0, "old", 0, 2, 2), (0, 1, 1, 0))]
    #[case::does_not_fit_at_all(3, 4, group(0, "old", 0, 2, 2), (0, 0, 1, 0))]
    #[case::shrinks(6, 2, group(0, "old", 0, 4, 4), (1, 2, 1, 0))]
    #[case::old_group_lost_a_node(4, 2, group(0, "old", 0, 1, 2), (1, 2, 0, 0))]
    #[case::additional_group_runs(4, 2, [group(0, "old", 0, 2, 2), group(1, "new", 2, 2, 2)].concat(), (0, 1, 1, 1))]
    #[case::additional_group_waits_for_a_pod(4, 2, [group(0, "old", 0, 2, 2), group(1, "new", 2, 1, 2)].concat(), (1, 2, 1, 0))]
    #[case::old_group_stops(4, 2, [stopping(group(0, "old", 0, 2, 2)), group(1, "new", 2, 2, 2)].concat(), (1, 1, 0, 1))]
    fn counts_groups(
        #[case] nodes: u32,
        #[case] size: u32,
        #[case] pods: Vec<Value>,
        #[case] (free, free_without_old, old, new): (u32, u32, u32, u32),
    ) {
        let mut inventory = Inventory::default();
        for name in (0..nodes).map(|node| format!("n{node}")) {
            let allocatable = json!({"nvidia.com/gpu": "8"});
            let node = json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}});
            inventory.set_node(&name, Some(&node));
        }
        for pod in &pods {
            inventory.set_pod("n", metadata_field(pod, "name"), Some(pod));
        }
        let group = json!({"size": size, "workerTemplate": template()});
        let planned = json!({"kind": LEADER_WORKER_SET.kind, "spec": {"leaderWorkerTemplate": group}});
        let live = LiveWorkload {
            object: planned.clone().into(),
            pods: pods.into_iter().map(Into::into).collect(),
            providers: Vec::new(),
        };
        let capacity = rollout_capacity(&planned, &live, Some("new"), 1, &inventory);
        assert_eq!(capacity, Some(RolloutCapacity { free, free_without_old, old, new }));
    }
}
