//! Strategy of the rollouts of Deployments: without room for an additional Pod, old Pods stop before new ones start.
//!
//! The strategy is chosen when a rollout starts and is retained until it ends: a stopped old Pod leaves capacity, which
//! must not change the strategy halfway. The only exception is a rollout whose additional Pod has lost its capacity to
//! another Pod: it would never end.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{is_pod_template_applied, is_terminating, kind_and_name, metadata_field};
use decide::{Inventory, free_pod_slots, is_pod_terminal};
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
    },
}

/// Deployments and their strategies, by name.
pub(crate) type RolloutStrategies = BTreeMap<String, RolloutStrategy>;

// === impl RolloutStrategy ===

impl RolloutStrategy {
    /// Returns the strategy for a Deployment of `replicas` Pods, of which `schedulable` fit on the accelerators that are
    /// free or in use by the Deployment. `None` if its Pods request no accelerators.
    fn for_capacity(replicas: u32, schedulable: Option<u32>) -> RolloutStrategy {
        match schedulable {
            None => RolloutStrategy::Surge,
            Some(schedulable) if schedulable > replicas => RolloutStrategy::Surge,
            Some(schedulable) => {
                // Replicas that do not fit are unavailable in any case.
                let max_unavailable = replicas.saturating_sub(schedulable).saturating_add(1);
                match max_unavailable < replicas {
                    true => RolloutStrategy::InPlace(max_unavailable),
                    false => RolloutStrategy::Recreate,
                }
            }
        }
    }

    /// Returns the strategy for the phase of the rollout.
    fn choose(current: RolloutStrategy, phase: Phase, replicas: u32, schedulable: Option<u32>) -> RolloutStrategy {
        match phase {
            Phase::Starting => RolloutStrategy::for_capacity(replicas, schedulable),
            Phase::InProgress { is_blocked: true } if current == RolloutStrategy::Surge => {
                RolloutStrategy::for_capacity(replicas, schedulable)
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
            Phase::Idle | Phase::InProgress { is_blocked: false } => current,
            Phase::Starting | Phase::InProgress { is_blocked: true } => {
                let replicas = u32::try_from(Progress::from_workload(&live.object).desired).unwrap_or(0);
                let schedulable = schedulable_pods(&workload.planned["spec"]["template"], live, inventory);
                RolloutStrategy::choose(current, phase, replicas, schedulable)
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
    // The controller counts a new template only once it observes it.
    revision.as_str().is_none_or(|revision| revision == "1") && Progress::from_workload(deployment).observed
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
    let is_unschedulable =
        |pod: &Value| pod_problem(pod).is_some_and(|problem| problem.reason == WorkloadReason::Unschedulable);
    let is_blocked = is_changed || (live.pods().any(is_unschedulable) && !is_first_rollout(&live.object));
    Phase::InProgress { is_blocked }
}

/// Returns how many Pods of `template` fit on the accelerators that are free or in use by the Deployment.
fn schedulable_pods(template: &Value, live: &LiveWorkload, inventory: &Inventory) -> Option<u32> {
    if !inventory.has_nodes() {
        return None;
    }
    let is_running =
        |pod: &&Value| pod["spec"]["nodeName"].is_string() && !is_terminating(pod) && !is_pod_terminal(pod);
    let running = u32::try_from(live.pods().filter(is_running).count()).unwrap_or(u32::MAX);
    Some(free_pod_slots(inventory.nodes(), template)?.saturating_add(running))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::RolloutStrategy::{InPlace, Recreate, Surge};
    use super::*;

    const BLOCKED: Phase = Phase::InProgress { is_blocked: true };
    const PROGRESSING: Phase = Phase::InProgress { is_blocked: false };

    /// Columns: current strategy, phase, replicas, Pods that fit including the running ones, expected strategy.
    #[rstest]
    #[case::no_accelerators(Surge, Phase::Starting, 1, None, Surge)]
    #[case::room(Surge, Phase::Starting, 1, Some(2), Surge)]
    #[case::single_replica_on_full_class(Surge, Phase::Starting, 1, Some(1), Recreate)]
    #[case::single_replica_that_waits(Surge, Phase::Starting, 1, Some(0), Recreate)]
    #[case::several_replicas_on_full_class(Surge, Phase::Starting, 3, Some(3), InPlace(1))]
    #[case::one_of_three_waits(Surge, Phase::Starting, 3, Some(2), InPlace(2))]
    #[case::one_of_two_waits(Surge, Phase::Starting, 2, Some(1), Recreate)]
    #[case::scaled_to_zero(Surge, Phase::Starting, 0, Some(0), Recreate)]
    #[case::earlier_rollout_was_in_place(Recreate, Phase::Starting, 1, Some(2), Surge)]
    #[case::idle(Recreate, Phase::Idle, 1, Some(2), Recreate)]
    #[case::retained_although_an_old_pod_stopped(InPlace(1), PROGRESSING, 3, Some(4), InPlace(1))]
    #[case::retained_after_another_edit(Recreate, BLOCKED, 1, Some(2), Recreate)]
    #[case::surge_with_room(Surge, PROGRESSING, 1, Some(2), Surge)]
    #[case::surge_waits_for_the_scheduler(Surge, BLOCKED, 1, Some(2), Surge)]
    #[case::surge_lost_its_capacity(Surge, BLOCKED, 1, Some(1), Recreate)]
    fn follows_capacity(
        #[case] current: RolloutStrategy,
        #[case] phase: Phase,
        #[case] replicas: u32,
        #[case] schedulable: Option<u32>,
        #[case] expected: RolloutStrategy,
    ) {
        assert_eq!(RolloutStrategy::choose(current, phase, replicas, schedulable), expected);
    }

    /// Columns: revision of the Deployment, generation that its controller observed of generation 2, expected announcement.
    #[rstest]
    #[case::waits_for_its_first_pod("1", 2, false)]
    #[case::template_changed_now("1", 1, true)]
    #[case::replaces_pods("2", 2, true)]
    fn new_deployment_interrupts_nothing(
        #[case] revision: &str,
        #[case] observed_generation: i64,
        #[case] expected: bool,
    ) {
        let metadata = json!({
            "name": "chat", "namespace": "n", "generation": 2, "annotations": {DEPLOYMENT_REVISION: revision}
        });
        let deployment = json!({"kind": "Deployment", "metadata": metadata, "spec": {"strategy": Recreate.to_json()},
            "status": {"observedGeneration": observed_generation, "replicas": 1, "updatedReplicas": 1}});
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
