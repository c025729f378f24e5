//! Strategy of the rollouts of Deployments, and of the LeaderWorkerSets of `ome.io` services: without room for an additional
//! replica, old replicas stop before new ones start. A replica is a Pod of a Deployment, or a group of a LeaderWorkerSet.
//!
//! The strategy is chosen when a rollout starts and is retained until it ends: a stopped old replica leaves capacity, which
//! must not change the strategy halfway. The only exception is a rollout whose additional replica has lost its capacity to
//! another Pod: it would never end.

mod capacity;
mod groups;
mod strategy;

use std::collections::{BTreeMap, BTreeSet};

use cluster::{is_pod_template_applied, kind_and_name, metadata_field};
use decide::Inventory;
use plan::labels::ROLE_NAME;
use serde_json::Value;

use crate::FIELD_MANAGER;
use crate::kinds::{DEPLOYMENT, LEADER_WORKER_SET};
use crate::readiness::{Progress, is_rollout_complete, pod_problem};
use crate::workloads::{LiveWorkload, PlannedWorkload, template_revision};
use capacity::{RolloutCapacity, rollout_capacity};
use groups::{paused_groups, stalled_groups};
pub(crate) use strategy::RolloutStrategy;
use strategy::strategy_field;

/// Annotation in which the Deployment controller counts the Pod templates of a Deployment.
const DEPLOYMENT_REVISION: &str = "deployment.kubernetes.io/revision";

/// Replicas of a workload whose rollout starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Replicas {
    /// Desired replicas.
    desired: u32,
    /// Groups that are updated only if they may be unavailable.
    stalled: u32,
}

/// Phase of the rollout of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No rollout is in progress.
    Idle,
    /// The Pod template changes now.
    Starting,
    /// A rollout is in progress, and the Pod template may change again.
    InProgress {
        /// Whether a Pod cannot be scheduled, or the Pod templates change now.
        is_blocked: bool,
        /// Whether the Pod template changes now.
        is_changed: bool,
    },
}

/// Values of `spec.strategy` of Deployments and of `spec.rolloutStrategy` of LeaderWorkerSets, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct RolloutStrategies(BTreeMap<String, Value>);

// === impl RolloutStrategies ===

impl RolloutStrategies {
    /// Sets the strategy of a planned object if it is a workload. Other objects may have the same name.
    pub(crate) fn set_strategy(&self, object: &mut Value) {
        let is_workload = [DEPLOYMENT, LEADER_WORKER_SET].iter().any(|kind| object["kind"] == kind.kind);
        let (field, strategy) = (strategy_field(object), self.0.get(metadata_field(object, "name")));
        if let Some(strategy) = strategy.filter(|_| is_workload) {
            object["spec"][field] = strategy.clone();
        }
    }
}

// === impl RolloutStrategy ===

impl RolloutStrategy {
    /// Returns the strategy for a workload. `None`: its Pods request no accelerators.
    fn for_capacity(replicas: Replicas, capacity: Option<RolloutCapacity>) -> RolloutStrategy {
        let Replicas { desired, stalled } = replicas;
        let Some(capacity) = capacity else { return RolloutStrategy::Surge(stalled) };
        let has_room = capacity.free.saturating_add(capacity.old).saturating_add(capacity.new) > desired;
        if has_room || capacity.old_replicas_hold_nothing() {
            return RolloutStrategy::Surge(stalled);
        }
        // Replicas that do not fit are unavailable in any case.
        let schedulable = capacity.free_without_old.saturating_add(capacity.new);
        let max_unavailable = desired.saturating_sub(schedulable).max(stalled).saturating_add(1);
        match max_unavailable < desired {
            true => RolloutStrategy::InPlace(max_unavailable),
            false => RolloutStrategy::Recreate,
        }
    }

    /// Returns the strategy for the phase of the rollout.
    fn choose(
        current: RolloutStrategy,
        phase: Phase,
        replicas: Replicas,
        capacity: Option<RolloutCapacity>,
    ) -> RolloutStrategy {
        match (phase, current) {
            (Phase::Starting, _) | (Phase::InProgress { is_blocked: true, .. }, RolloutStrategy::Surge(_)) => {
                RolloutStrategy::for_capacity(replicas, capacity)
            }
            (Phase::Idle | Phase::InProgress { .. }, _) => current,
        }
    }
}

/// Returns the strategy of each existing workload, except those in `user_strategies`, whose strategy a user sets. If the rollout is
/// `paused`, no further group of a LeaderWorkerSet is updated; a Deployment has a field of its own.
pub(crate) fn rollout_strategies(
    workloads: &[PlannedWorkload],
    user_strategies: &BTreeSet<String>,
    inventory: &Inventory,
    paused: bool,
) -> RolloutStrategies {
    let strategy = |(workload, live): (&PlannedWorkload, &LiveWorkload)| {
        let current = RolloutStrategy::from_workload(&live.object);
        let phase = phase(workload, live);
        let desired = u32::try_from(Progress::from_workload(&live.object).desired).unwrap_or(0);
        // The capacity is only counted when it is needed.
        let strategy = match phase {
            Phase::Idle | Phase::InProgress { is_blocked: false, .. } => current,
            Phase::Starting | Phase::InProgress { is_blocked: true, .. } => {
                let current_revision = match phase {
                    Phase::InProgress { is_changed: false, .. } => latest_revision(live),
                    _ => None,
                };
                let replicas = Replicas { desired, stalled: stalled_groups(live, desired) };
                let capacity = rollout_capacity(&workload.planned, live, current_revision, desired, inventory);
                RolloutStrategy::choose(current, phase, replicas, capacity)
            }
        };
        let partition = if paused { paused_groups(&live.object) } else { 0 };
        let strategy = strategy.to_json(&workload.planned["kind"], desired, partition);
        (metadata_field(&workload.planned, "name").to_owned(), strategy)
    };
    RolloutStrategies(chosen_by_operator(workloads, user_strategies).map(strategy).collect())
}

/// Returns a message for each workload whose rollout in progress stops old replicas before new ones start.
pub(crate) fn interruptions(workloads: &[PlannedWorkload], user_strategies: &BTreeSet<String>) -> Vec<String> {
    let message = |(_, live): (&PlannedWorkload, &LiveWorkload)| {
        if is_rollout_complete(live) || is_first_rollout(&live.object) {
            return None;
        }
        let is_set = live.object["kind"] == LEADER_WORKER_SET.kind;
        let (replica, replicas) = if is_set { ("group", "groups") } else { ("Pod", "Pods") };
        let desired = Progress::from_workload(&live.object).desired;
        let interruption = match RolloutStrategy::from_workload(&live.object) {
            RolloutStrategy::Surge(_) => return None,
            RolloutStrategy::InPlace(count) if is_set && i64::from(count) >= desired => {
                "it is unavailable until an updated group is ready".to_owned()
            }
            RolloutStrategy::InPlace(1) => format!("one {replica} at a time stops before its successor starts"),
            RolloutStrategy::InPlace(count) => format!("up to {count} {replicas} stop before their successors start"),
            RolloutStrategy::Recreate => "it is recreated, and unavailable until a new Pod is ready".to_owned(),
        };
        Some(format!(
            "{} is updated without an additional {replica}, for which no accelerators are free: {interruption}",
            kind_and_name(&live.object)
        ))
    };
    chosen_by_operator(workloads, user_strategies).filter_map(message).collect()
}

/// Returns whether the workload has never had another Pod template, so that its rollout replaces no Pods. The first rollout of a
/// LeaderWorkerSet counts as complete.
fn is_first_rollout(workload: &Value) -> bool {
    if workload["kind"] == LEADER_WORKER_SET.kind {
        return false;
    }
    let revision = &workload["metadata"]["annotations"][DEPLOYMENT_REVISION];
    let progress = Progress::from_workload(workload);
    // The controller counts a new template only once it observes it, and with strategy Recreate only once all old Pods have
    // stopped. Until then, no replica has the new template.
    let waits_for_old_pods =
        progress.updated == 0 && RolloutStrategy::from_workload(workload) == RolloutStrategy::Recreate;
    revision.as_str().is_none_or(|revision| revision == "1") && progress.observed && !waits_for_old_pods
}

/// Returns the existing workloads whose strategy no user sets. The replicas of a role are LeaderWorkerSets of their own, which
/// `rollout.rs` updates.
fn chosen_by_operator<'a>(
    workloads: &'a [PlannedWorkload],
    user_strategies: &'a BTreeSet<String>,
) -> impl Iterator<Item = (&'a PlannedWorkload, &'a LiveWorkload)> {
    let is_chosen = |workload: &&PlannedWorkload| {
        let PlannedWorkload { planned, .. } = workload;
        let is_replica = planned["metadata"]["labels"][ROLE_NAME].is_string();
        (planned["kind"] == DEPLOYMENT.kind || (planned["kind"] == LEADER_WORKER_SET.kind && !is_replica))
            && !user_strategies.contains(metadata_field(planned, "name"))
    };
    workloads.iter().filter(is_chosen).filter_map(|workload| Some((workload, workload.live.as_ref()?)))
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

/// Returns the revision of the latest Pod.
fn latest_revision(live: &LiveWorkload) -> Option<&str> {
    let latest = live.pods().max_by_key(|pod| {
        // Timestamps have a resolution of one second.
        (metadata_field(pod, "creationTimestamp"), !pod["spec"]["nodeName"].is_string())
    })?;
    template_revision(latest)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::RolloutStrategy::{InPlace, Recreate, Surge};
    use super::*;

    const SURGE: RolloutStrategy = Surge(0);
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
    #[case::no_accelerators(SURGE, Phase::Starting, 1, None, SURGE)]
    #[case::room(SURGE, Phase::Starting, 1, room(1, 1), SURGE)]
    #[case::single_replica_on_full_class(SURGE, Phase::Starting, 1, room(0, 1), Recreate)]
    #[case::single_replica_that_waits(SURGE, Phase::Starting, 1, room(0, 0), Recreate)]
    #[case::several_replicas_on_full_class(SURGE, Phase::Starting, 3, room(0, 3), InPlace(1))]
    #[case::one_of_three_waits(SURGE, Phase::Starting, 3, room(0, 2), InPlace(2))]
    #[case::one_of_two_waits(SURGE, Phase::Starting, 2, room(0, 1), Recreate)]
    #[case::scaled_to_zero(SURGE, Phase::Starting, 0, room(0, 0), Recreate)]
    #[case::earlier_rollout_was_in_place(Recreate, Phase::Starting, 1, room(1, 1), SURGE)]
    #[case::other_class_with_room(SURGE, Phase::Starting, 1, other_nodes(1, 1, 0), SURGE)]
    #[case::other_class_is_full(SURGE, Phase::Starting, 1, other_nodes(0, 1, 0), SURGE)]
    #[case::other_class_with_room_for_some(SURGE, BLOCKED, 2, other_nodes(0, 1, 1), SURGE)]
    #[case::larger_pod_needs_the_room_of_the_old_one(
        SURGE, Phase::Starting, 1, Some(RolloutCapacity { free: 0, free_without_old: 1, old: 1, new: 0 }), Recreate
    )]
    #[case::larger_pod_fits_only_without_both_old_ones(
        SURGE, Phase::Starting, 2, Some(RolloutCapacity { free: 0, free_without_old: 1, old: 2, new: 0 }), Recreate
    )]
    #[case::last_old_pod_holds_the_room_of_the_last_new_one(
        SURGE, BLOCKED, 2, Some(RolloutCapacity { free: 0, free_without_old: 1, old: 1, new: 1 }), InPlace(1)
    )]
    #[case::idle(Recreate, Phase::Idle, 1, room(1, 1), Recreate)]
    #[case::retained_although_an_old_pod_stopped(InPlace(1), PROGRESSING, 3, room(2, 2), InPlace(1))]
    #[case::retained_after_another_edit(Recreate, BLOCKED, 1, room(1, 1), Recreate)]
    #[case::surge_with_room(SURGE, PROGRESSING, 1, room(1, 1), SURGE)]
    #[case::surge_waits_for_the_scheduler(SURGE, BLOCKED, 1, room(1, 1), SURGE)]
    #[case::surge_lost_its_capacity(SURGE, BLOCKED, 1, room(0, 1), Recreate)]
    fn follows_capacity(
        #[case] current: RolloutStrategy,
        #[case] phase: Phase,
        #[case] desired: u32,
        #[case] capacity: Option<RolloutCapacity>,
        #[case] expected: RolloutStrategy,
    ) {
        assert_eq!(RolloutStrategy::choose(current, phase, Replicas { desired, stalled: 0 }, capacity), expected);
    }

    /// Groups that are not ready are unavailable in any case. Columns: replicas, capacity, expected strategy.
    #[rstest]
    #[case::room(3, room(1, 3), Surge(1))]
    #[case::no_accelerators(3, None, Surge(1))]
    #[case::no_room(3, room(0, 3), InPlace(2))]
    #[case::no_room_for_one_of_two(2, room(0, 2), Recreate)]
    fn stalled_group_is_updated(
        #[case] desired: u32,
        #[case] capacity: Option<RolloutCapacity>,
        #[case] expected: RolloutStrategy,
    ) {
        assert_eq!(RolloutStrategy::for_capacity(Replicas { desired, stalled: 1 }, capacity), expected);
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
        let deployment = json!({"kind": "Deployment", "metadata": metadata, "spec": {"strategy": Recreate.to_json(&json!("Deployment"), 1, 0)},
            "status": {"observedGeneration": observed_generation, "replicas": 1, "updatedReplicas": updated_replicas}});
        let workload = PlannedWorkload::new(deployment.clone(), Some(deployment), Vec::new());
        assert_eq!(!interruptions(&[workload], &BTreeSet::new()).is_empty(), expected);
    }

    #[rstest]
    #[case::deployment("Deployment", "strategy", Recreate)]
    #[case::set("LeaderWorkerSet", "rolloutStrategy", InPlace(3))]
    fn strategy_can_be_read_from_the_workload(
        #[case] kind: &str,
        #[case] field: &str,
        #[case] recreated: RolloutStrategy,
    ) {
        for strategy in [SURGE, Surge(1), InPlace(1), InPlace(2), Recreate] {
            let workload = json!({"kind": kind, "spec": {field: strategy.to_json(&json!(kind), 3, 0)}});
            let expected = if strategy == Recreate { recreated } else { strategy };
            assert_eq!(RolloutStrategy::from_workload(&workload), expected);
        }
    }

    #[test]
    fn only_workloads_have_a_strategy() {
        let strategies = RolloutStrategies(BTreeMap::from([("chat".to_owned(), json!({"type": "Recreate"}))]));
        for (kind, expected) in [("Deployment", json!({"type": "Recreate"})), ("Service", Value::Null)] {
            let mut object = json!({"kind": kind, "metadata": {"name": "chat"}, "spec": {}});
            strategies.set_strategy(&mut object);
            assert_eq!(object["spec"]["strategy"], expected, "{kind}");
        }
    }

    /// Columns: strategy, replicas, status of `UpdateInProgress`, expected end of the announcement.
    #[rstest]
    #[case::only_group(
        InPlace(1),
        1,
        "True",
        Some("group, for which no accelerators are free: it is unavailable until an updated group is ready")
    )]
    #[case::several_groups(InPlace(1), 2, "True", Some("one group at a time stops before its successor starts"))]
    #[case::additional_group(SURGE, 1, "True", None)]
    #[case::complete(InPlace(1), 1, "False", None)]
    fn update_of_groups_in_place_is_announced(
        #[case] strategy: RolloutStrategy,
        #[case] replicas: u32,
        #[case] is_updating: &str,
        #[case] expected: Option<&str>,
    ) {
        let kind = json!("LeaderWorkerSet");
        let set = json!({"kind": kind, "metadata": {"name": "chat", "namespace": "n"},
            "spec": {"replicas": replicas, "rolloutStrategy": strategy.to_json(&kind, replicas, 0)},
            "status": {"conditions": [{"type": "UpdateInProgress", "status": is_updating}]}});
        let workload = PlannedWorkload::new(set.clone(), Some(set), Vec::new());
        let messages = interruptions(&[workload], &BTreeSet::new());
        assert_eq!(messages.len(), usize::from(expected.is_some()), "{messages:?}");
        assert!(messages.iter().zip(expected).all(|(message, end)| message.ends_with(end)), "{messages:?}");
    }
}
