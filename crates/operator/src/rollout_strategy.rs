//! Strategy of the rollouts of Deployments: without room for an additional Pod, old Pods stop before new ones start.
//!
//! The strategy is chosen when a rollout starts and is retained until it ends: a stopped old Pod leaves capacity, which
//! must not change the strategy halfway. The only exception is a rollout whose additional Pod has lost its capacity to
//! another Pod: it would never end.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{controller_of, is_pod_template_applied, is_terminating, kind_and_name, metadata_field};
use decide::{Inventory, free_pod_slots, is_pod_terminal, nodes_without_pods};
use serde_json::{Value, json};

use crate::FIELD_MANAGER;
use crate::condition_reason::WorkloadReason;
use crate::kinds::DEPLOYMENT;
use crate::readiness::{Progress, is_rollout_complete, pod_problem};
use crate::workloads::{LiveWorkload, PlannedWorkload};

/// Annotation in which the Deployment controller counts the Pod templates of a Deployment.
const DEPLOYMENT_REVISION: &str = "deployment.kubernetes.io/revision";

/// How a rollout replaces the Pods of a Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RolloutStrategy {
    /// An additional new Pod is ready before an old one stops.
    Surge,
    /// At most this number of Pods is unavailable: old Pods stop before new ones start.
    InPlace(u32),
    /// All old Pods stop before new ones start.
    Recreate,
}

/// Phase of the rollout of a Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No rollout is in progress.
    Idle,
    /// The Pod template changes now.
    Starting,
    /// A rollout is in progress, and the Pod template may change again.
    InProgress {
        /// Whether a Pod cannot be scheduled, or the Pod template changes now.
        is_blocked: bool,
        /// Whether the Pod template changes now.
        is_changed: bool,
    },
}

/// Accelerators for the Pods of a new template, as numbers of Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RolloutCapacity {
    /// Pods of the new template that fit now.
    free: u32,
    /// Pods of the new template that fit once all Pods of earlier templates have stopped.
    free_without_old: u32,
    /// Running Pods of earlier templates.
    old: u32,
    /// Running Pods of the new template.
    new: u32,
}

/// Deployments and their strategies, by name.
pub(crate) type RolloutStrategies = BTreeMap<String, RolloutStrategy>;

// === impl RolloutCapacity ===

impl RolloutCapacity {
    /// Returns whether old Pods run that no new Pod waits for: they are on nodes of another class, or too small to make
    /// room. Stopping them would interrupt the service without starting a new Pod.
    fn old_pods_hold_nothing(self) -> bool {
        self.old > 0 && self.free_without_old <= self.free
    }
}

// === impl RolloutStrategy ===

impl RolloutStrategy {
    /// Returns the strategy for a Deployment of `replicas` Pods. `None`: its Pods request no accelerators.
    fn for_capacity(replicas: u32, capacity: Option<RolloutCapacity>) -> RolloutStrategy {
        let Some(capacity) = capacity else { return RolloutStrategy::Surge };
        let has_room = capacity.free.saturating_add(capacity.old).saturating_add(capacity.new) > replicas;
        if has_room || capacity.old_pods_hold_nothing() {
            return RolloutStrategy::Surge;
        }
        // Replicas that do not fit are unavailable in any case.
        let schedulable = capacity.free_without_old.saturating_add(capacity.new);
        let max_unavailable = replicas.saturating_sub(schedulable).saturating_add(1);
        match max_unavailable < replicas {
            true => RolloutStrategy::InPlace(max_unavailable),
            false => RolloutStrategy::Recreate,
        }
    }

    /// Returns the strategy for the phase of the rollout.
    fn choose(
        current: RolloutStrategy,
        phase: Phase,
        replicas: u32,
        capacity: Option<RolloutCapacity>,
    ) -> RolloutStrategy {
        match phase {
            Phase::Starting => RolloutStrategy::for_capacity(replicas, capacity),
            Phase::InProgress { is_blocked: true, .. } if current == RolloutStrategy::Surge => {
                RolloutStrategy::for_capacity(replicas, capacity)
            }
            Phase::Idle | Phase::InProgress { .. } => current,
        }
    }

    /// Reads the strategy of a live Deployment.
    fn from_deployment(deployment: &Value) -> RolloutStrategy {
        let strategy = &deployment["spec"]["strategy"];
        match (&strategy["type"], &strategy["rollingUpdate"]) {
            (kind, _) if kind == "Recreate" => RolloutStrategy::Recreate,
            (_, rolling) if rolling["maxSurge"] == 0 => {
                let max_unavailable = rolling["maxUnavailable"].as_u64().and_then(|count| u32::try_from(count).ok());
                RolloutStrategy::InPlace(max_unavailable.unwrap_or(1).max(1))
            }
            _ => RolloutStrategy::Surge,
        }
    }

    /// Returns the strategy as a `DeploymentStrategy`.
    pub(crate) fn to_json(self) -> Value {
        let rolling_update = |max_surge: u32, max_unavailable: u32| {
            let limits = json!({"maxSurge": max_surge, "maxUnavailable": max_unavailable});
            json!({"type": "RollingUpdate", "rollingUpdate": limits})
        };
        match self {
            RolloutStrategy::Surge => rolling_update(1, 0),
            RolloutStrategy::InPlace(max_unavailable) => rolling_update(0, max_unavailable),
            RolloutStrategy::Recreate => json!({"type": "Recreate"}),
        }
    }
}

/// Returns the strategy of each existing Deployment, except those in `user_strategies`, whose strategy a user sets.
pub(crate) fn rollout_strategies(
    workloads: &[PlannedWorkload],
    user_strategies: &BTreeSet<String>,
    inventory: &Inventory,
) -> RolloutStrategies {
    let deployments = chosen_by_operator(workloads, user_strategies);
    let strategy = |(workload, live): (&PlannedWorkload, &LiveWorkload)| {
        let current = RolloutStrategy::from_deployment(&live.object);
        let phase = phase(workload, live);
        // The capacity is only counted when it is needed.
        let strategy = match phase {
            Phase::Idle | Phase::InProgress { is_blocked: false, .. } => current,
            Phase::Starting | Phase::InProgress { is_blocked: true, .. } => {
                let replicas = u32::try_from(Progress::from_workload(&live.object).desired).unwrap_or(0);
                let current_replica_set = match phase {
                    Phase::InProgress { is_changed: false, .. } => latest_replica_set(live),
                    _ => None,
                };
                let template = &workload.planned["spec"]["template"];
                let capacity = rollout_capacity(template, live, current_replica_set, inventory);
                RolloutStrategy::choose(current, phase, replicas, capacity)
            }
        };
        (metadata_field(&workload.planned, "name").to_owned(), strategy)
    };
    deployments.map(strategy).collect()
}

/// Returns a message for each Deployment whose rollout in progress stops old Pods before new ones start.
pub(crate) fn interruptions(workloads: &[PlannedWorkload], user_strategies: &BTreeSet<String>) -> Vec<String> {
    let message = |(_, live): (&PlannedWorkload, &LiveWorkload)| {
        let deployment = kind_and_name(&live.object);
        let interruption = match RolloutStrategy::from_deployment(&live.object) {
            _ if is_rollout_complete(live) || is_first_rollout(&live.object) => return None,
            RolloutStrategy::Surge => return None,
            RolloutStrategy::InPlace(1) => "one Pod at a time stops before its successor starts".to_owned(),
            RolloutStrategy::InPlace(count) => format!("up to {count} Pods stop before their successors start"),
            RolloutStrategy::Recreate => "it is recreated, and unavailable until a new Pod is ready".to_owned(),
        };
        Some(format!(
            "{deployment} is updated without an additional Pod, for which no accelerators are free: {interruption}"
        ))
    };
    chosen_by_operator(workloads, user_strategies).filter_map(message).collect()
}

/// Returns whether the Deployment has never had another Pod template, so that its rollout replaces no Pods.
fn is_first_rollout(deployment: &Value) -> bool {
    let revision = &deployment["metadata"]["annotations"][DEPLOYMENT_REVISION];
    let progress = Progress::from_workload(deployment);
    // The controller counts a new template only once it observes it, and with strategy Recreate only once all old Pods have
    // stopped. Until then, no replica has the new template.
    let waits_for_old_pods =
        progress.updated == 0 && RolloutStrategy::from_deployment(deployment) == RolloutStrategy::Recreate;
    revision.as_str().is_none_or(|revision| revision == "1") && progress.observed && !waits_for_old_pods
}

/// Returns the existing Deployments whose strategy no user sets.
fn chosen_by_operator<'a>(
    workloads: &'a [PlannedWorkload],
    user_strategies: &'a BTreeSet<String>,
) -> impl Iterator<Item = (&'a PlannedWorkload, &'a LiveWorkload)> {
    let deployments = workloads.iter().filter(|workload| {
        workload.planned["kind"] == DEPLOYMENT.kind
            && !user_strategies.contains(metadata_field(&workload.planned, "name"))
    });
    deployments.filter_map(|workload| Some((workload, workload.live.as_ref()?)))
}

fn phase(workload: &PlannedWorkload, live: &LiveWorkload) -> Phase {
    let is_changed = !is_pod_template_applied(&live.object, &workload.planned, FIELD_MANAGER);
    if is_rollout_complete(live) {
        return if is_changed { Phase::Starting } else { Phase::Idle };
    }
    let is_unschedulable = |pod: &Value| pod_problem(pod).is_some_and(|problem| problem.is_waiting_for_node());
    let is_blocked = is_changed || (live.pods().any(is_unschedulable) && !is_first_rollout(&live.object));
    Phase::InProgress { is_blocked, is_changed }
}

/// Returns the name of the ReplicaSet that created the latest Pod.
fn latest_replica_set(live: &LiveWorkload) -> Option<&str> {
    let latest = live.pods().max_by_key(|pod| {
        // Timestamps have a resolution of one second.
        (metadata_field(pod, "creationTimestamp"), !pod["spec"]["nodeName"].is_string())
    })?;
    controller_of(latest)?["name"].as_str()
}

/// Returns the accelerators for Pods of `template`; `None` if they request none. All Pods are old, except those of
/// `current_replica_set`.
fn rollout_capacity(
    template: &Value,
    live: &LiveWorkload,
    current_replica_set: Option<&str>,
    inventory: &Inventory,
) -> Option<RolloutCapacity> {
    if !inventory.has_nodes() {
        return None;
    }
    let is_running =
        |pod: &&Value| pod["spec"]["nodeName"].is_string() && !is_terminating(pod) && !is_pod_terminal(pod);
    let is_new = |pod: &&Value| {
        let controller = controller_of(pod).and_then(|controller| controller["name"].as_str());
        current_replica_set.is_some_and(|current| controller == Some(current))
    };
    let (new, old): (Vec<&Value>, Vec<&Value>) = live.pods().filter(is_running).partition(is_new);
    let count = |pods: &[&Value]| u32::try_from(pods.len()).unwrap_or(u32::MAX);
    let free = free_pod_slots(inventory.nodes(), template)?;
    let waits_for_quota =
        |pod: &Value| pod_problem(pod).is_some_and(|problem| problem.reason == WorkloadReason::WaitingForQuota);
    Some(match live.pods().any(waits_for_quota) {
        // Without quota, a new Pod starts only once an old one has stopped, even if nodes have free accelerators.
        true => RolloutCapacity { free: 0, free_without_old: count(&old), old: count(&old), new: count(&new) },
        false => RolloutCapacity {
            free,
            free_without_old: free_pod_slots(&nodes_without_pods(inventory.nodes(), &old), template)?,
            old: count(&old),
            new: count(&new),
        },
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::RolloutStrategy::{InPlace, Recreate, Surge};
    use super::*;

    const BLOCKED: Phase = Phase::InProgress { is_blocked: true, is_changed: false };
    const PROGRESSING: Phase = Phase::InProgress { is_blocked: false, is_changed: false };

    /// Returns a capacity where each old Pod holds the accelerators of one new Pod.
    fn room(free: u32, old: u32) -> Option<RolloutCapacity> {
        Some(RolloutCapacity { free, free_without_old: free + old, old, new: 0 })
    }

    /// Returns a capacity where the old Pods hold no accelerators that new Pods could use.
    fn other_nodes(free: u32, old: u32, new: u32) -> Option<RolloutCapacity> {
        Some(RolloutCapacity { free, free_without_old: free, old, new })
    }

    /// Columns: current strategy, phase, replicas, capacity, expected strategy.
    #[rstest]
    #[case::no_accelerators(Surge, Phase::Starting, 1, None, Surge)]
    #[case::room(Surge, Phase::Starting, 1, room(1, 1), Surge)]
    #[case::single_replica_on_full_class(Surge, Phase::Starting, 1, room(0, 1), Recreate)]
    #[case::single_replica_that_waits(Surge, Phase::Starting, 1, room(0, 0), Recreate)]
    #[case::several_replicas_on_full_class(Surge, Phase::Starting, 3, room(0, 3), InPlace(1))]
    #[case::one_of_three_waits(Surge, Phase::Starting, 3, room(0, 2), InPlace(2))]
    #[case::one_of_two_waits(Surge, Phase::Starting, 2, room(0, 1), Recreate)]
    #[case::scaled_to_zero(Surge, Phase::Starting, 0, room(0, 0), Recreate)]
    #[case::earlier_rollout_was_in_place(Recreate, Phase::Starting, 1, room(1, 1), Surge)]
    #[case::other_class_with_room(Surge, Phase::Starting, 1, other_nodes(1, 1, 0), Surge)]
    #[case::other_class_is_full(Surge, Phase::Starting, 1, other_nodes(0, 1, 0), Surge)]
    #[case::other_class_with_room_for_some(Surge, BLOCKED, 2, other_nodes(0, 1, 1), Surge)]
    #[case::larger_pod_needs_the_room_of_the_old_one(
        Surge, Phase::Starting, 1, Some(RolloutCapacity { free: 0, free_without_old: 1, old: 1, new: 0 }), Recreate
    )]
    #[case::larger_pod_fits_only_without_both_old_ones(
        Surge, Phase::Starting, 2, Some(RolloutCapacity { free: 0, free_without_old: 1, old: 2, new: 0 }), Recreate
    )]
    #[case::last_old_pod_holds_the_room_of_the_last_new_one(
        Surge, BLOCKED, 2, Some(RolloutCapacity { free: 0, free_without_old: 1, old: 1, new: 1 }), InPlace(1)
    )]
    #[case::idle(Recreate, Phase::Idle, 1, room(1, 1), Recreate)]
    #[case::retained_although_an_old_pod_stopped(InPlace(1), PROGRESSING, 3, room(2, 2), InPlace(1))]
    #[case::retained_after_another_edit(Recreate, BLOCKED, 1, room(1, 1), Recreate)]
    #[case::surge_with_room(Surge, PROGRESSING, 1, room(1, 1), Surge)]
    #[case::surge_waits_for_the_scheduler(Surge, BLOCKED, 1, room(1, 1), Surge)]
    #[case::surge_lost_its_capacity(Surge, BLOCKED, 1, room(0, 1), Recreate)]
    fn follows_capacity(
        #[case] current: RolloutStrategy,
        #[case] phase: Phase,
        #[case] replicas: u32,
        #[case] capacity: Option<RolloutCapacity>,
        #[case] expected: RolloutStrategy,
    ) {
        assert_eq!(RolloutStrategy::choose(current, phase, replicas, capacity), expected);
    }

    /// Columns: revision of the Deployment, generation that its controller observed of generation 2, replicas with the current
    /// template, expected announcement.
    #[rstest]
    #[case::waits_for_its_first_pod("1", 2, 1, false)]
    #[case::template_changed_now("1", 1, 1, true)]
    #[case::recreated_pods_stop("1", 2, 0, true)]
    #[case::replaces_pods("2", 2, 1, true)]
    fn new_deployment_interrupts_nothing(
        #[case] revision: &str,
        #[case] observed_generation: i64,
        #[case] updated_replicas: i64,
        #[case] expected: bool,
    ) {
        let metadata = json!({
            "name": "chat", "namespace": "n", "generation": 2, "annotations": {DEPLOYMENT_REVISION: revision}
        });
        let deployment = json!({"kind": "Deployment", "metadata": metadata, "spec": {"strategy": Recreate.to_json()},
            "status": {"observedGeneration": observed_generation, "replicas": 1, "updatedReplicas": updated_replicas}});
        let workload = PlannedWorkload::new(deployment.clone(), Some(deployment), Vec::new());
        assert_eq!(!interruptions(&[workload], &BTreeSet::new()).is_empty(), expected);
    }

    #[rstest]
    fn strategy_can_be_read_from_the_deployment(
        #[values(Surge, InPlace(1), InPlace(2), Recreate)] strategy: RolloutStrategy,
    ) {
        let deployment = json!({"spec": {"strategy": strategy.to_json()}});
        assert_eq!(RolloutStrategy::from_deployment(&deployment), strategy);
    }
}
