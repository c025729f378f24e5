//! Additional replicas of roles whose replicas change their number of nodes, or whose only replica changes its port.
//!
//! Each replica of a role is a LeaderWorkerSet of its own, whose Pods stop before their successors start. An
//! additional replica therefore starts first, with the next index and outside of the gang, which does not count it. Once it is
//! ready, the others are updated (`rollout.rs`), and once one of these is ready, it is deleted. If there are no accelerators for
//! it, the others are updated in place, which is announced. Every reconcile derives the step from the live objects, so restarts of
//! the operator and further edits need no special handling.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use cluster::{DesiredObject, is_terminating, kind_and_name, metadata_field};
use decide::Inventory;
use jiff::Timestamp;
use plan::labels::ROLE_NAME;
use plan::{ServicePlan, serving_port};
use serde_json::Value;

use crate::replacement::{
    PlannedState, ReplacementCapacity, ReplacementState, ReplacementStep, serving_pods, surge_capacity,
};
use crate::rollout::{WaitingUpdates, adds_pods_to_gang_of_all, is_rollout_paused, replica_state};
use crate::workloads::{LiveWorkload, PlannedWorkload, WorkloadReader, group_size, is_surge_replica, pod_template};

/// The roles that have or need an additional replica, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct SurgeReplicas(BTreeMap<String, SurgeReplica>);

/// The additional replica of a role.
#[derive(Clone, Debug)]
struct SurgeReplica {
    step: SurgeStep,
    /// Its LeaderWorkerSet. After scaling, there may be an earlier one with another index.
    sets: Vec<DesiredObject>,
    /// Kind and name of an earlier LeaderWorkerSet of this name whose Pods have not stopped yet.
    stopping: Option<String>,
    /// When it counts as ready; no watch event announces it.
    ready_at: Option<Timestamp>,
}

/// Step of the update of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SurgeStep {
    /// The additional replica starts. The others serve and are not updated yet.
    Start,
    /// The others are updated. The additional replica serves until one of them is ready.
    Serve,
    /// The others are updated in place because there are no accelerators for an additional replica.
    NoCapacity,
}

/// What the step of a role depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SurgeState {
    /// Whether the rollout is paused.
    paused: bool,
    /// Whether earlier Pods of a replica with the name of the additional one still hold the accelerators of its next Pods.
    is_restarting: bool,
    /// Whether a replica of the planned size and port is ready.
    updated_is_ready: bool,
    /// Whether all replicas have another size or port than planned, and one of them serves.
    outdated_serve: bool,
    /// Whether an additional replica serves.
    surge_serves: bool,
    /// Whether an additional replica of the current plan is ready.
    surge_is_ready: bool,
}

/// The replicas of a role.
struct RoleReplicas<'a> {
    /// The planned replicas; at least one.
    replicas: Vec<&'a PlannedWorkload>,
    /// The planned additional replica.
    surge: PlannedWorkload,
    /// A replica with its name that the service has no longer, and that stops when the additional replica is applied.
    surplus: Option<LiveWorkload>,
    /// Whether the additional replica was deleted and its Pods still hold their accelerators. The capacity is known once they have
    /// stopped.
    is_stopping: bool,
    /// Whether a replica with the name of the additional one exists and earlier Pods of it still hold their accelerators.
    is_restarting: bool,
    /// Existing additional replicas with other indices.
    others: Vec<&'a PlannedWorkload>,
    now: Timestamp,
}

// === impl SurgeStep ===

impl SurgeStep {
    /// Returns the step, or `None` if the role needs no additional replica. `capacity` is only counted when it is needed.
    fn choose(state: SurgeState, capacity: impl FnOnce() -> Option<ReplacementCapacity>) -> Option<SurgeStep> {
        if state.updated_is_ready {
            return None;
        }
        if !state.outdated_serve {
            return state.surge_serves.then_some(SurgeStep::Serve);
        }
        let replacement = ReplacementState {
            paused: state.paused,
            scaled_to_zero: false,
            obsolete_serves: true,
            // If the cluster does not accept the update of a replica, the replica serves unchanged.
            planned: if state.surge_is_ready { PlannedState::Ready } else { PlannedState::Starting },
            capacity: if state.paused || state.is_restarting { None } else { capacity() },
        };
        Some(match ReplacementStep::choose(replacement) {
            ReplacementStep::Retain => SurgeStep::Start,
            ReplacementStep::Complete => SurgeStep::Serve,
            ReplacementStep::StopFirst => SurgeStep::NoCapacity,
        })
    }
}

// === impl RoleReplicas ===

impl RoleReplicas<'_> {
    /// Returns whether a replica has another number of nodes than planned, or is the only one and serves on another port:
    /// the routes change their port once a replica serves on the planned one.
    fn is_outdated(&self, set: &Value) -> bool {
        let port = |set| serving_port(pod_template(set));
        group_size(set) != group_size(&self.surge.planned)
            || (self.replicas.len() == 1 && port(set) != port(&self.surge.planned))
    }

    fn state(&self, paused: bool) -> SurgeState {
        let is_ready = |workload: &PlannedWorkload| replica_state(workload, self.now).is_ready();
        let is_outdated = |workload: &&PlannedWorkload| {
            let live = workload.live.as_ref().filter(|live| !is_terminating(&live.object));
            live.is_some_and(|live| self.is_outdated(&live.object))
        };
        let updated_is_ready = self.replicas.iter().any(|workload| !is_outdated(workload) && is_ready(workload));
        let surge = replica_state(&self.surge, self.now);
        let is_other_ready = |workload: &&PlannedWorkload| !self.is_outdated(&workload.planned) && is_ready(workload);
        SurgeState {
            paused,
            is_restarting: self.is_restarting,
            updated_is_ready,
            outdated_serve: self.replicas.iter().all(is_outdated) && self.replicas.iter().copied().any(serves),
            surge_serves: serves(&self.surge) || self.others.iter().copied().any(serves),
            surge_is_ready: (surge.is_current() && surge.is_ready()) || self.others.iter().any(is_other_ready),
        }
    }

    /// Returns the additional replica of the role, if it has or needs one. `starts_together`: whether all replicas stop at once.
    fn surge_replica(&self, paused: bool, starts_together: bool, inventory: &Inventory) -> Option<SurgeReplica> {
        let state = self.state(paused);
        let updated =
            if starts_together { self.replicas.as_slice() } else { self.replicas.get(..1).unwrap_or_default() };
        let capacity = || {
            let live = self.surge.live.clone().or_else(|| self.surplus.clone());
            surge_capacity(&PlannedWorkload { live, ..self.surge.clone() }, &self.replicas, updated, inventory)
        };
        let step = SurgeStep::choose(state, capacity)?;
        let serving_others = self.others.iter().filter(|workload| serves(workload));
        let mut sets: Vec<DesiredObject> = match step {
            SurgeStep::Start | SurgeStep::Serve => {
                serving_others.map(|workload| DesiredObject::Defer(workload.planned.clone())).collect()
            }
            SurgeStep::NoCapacity => Vec::new(),
        };
        let stopping = (step == SurgeStep::Start && self.is_stopping).then(|| kind_and_name(&self.surge.planned));
        let surge = self.surge.planned.clone();
        match step {
            SurgeStep::Start if self.is_stopping => {}
            SurgeStep::Start if !paused => sets.push(DesiredObject::Apply(surge)),
            SurgeStep::Start if self.surge.live.is_some() => sets.push(DesiredObject::Defer(surge)),
            // An update would interrupt it.
            SurgeStep::Serve if serves(&self.surge) => sets.push(DesiredObject::Defer(surge)),
            SurgeStep::Start | SurgeStep::Serve | SurgeStep::NoCapacity => {}
        }
        Some(SurgeReplica { step, sets, stopping, ready_at: replica_state(&self.surge, self.now).ready_at })
    }
}

// === impl SurgeReplicas ===

impl SurgeReplicas {
    /// Returns the additional replicas of the roles of a service. `workloads` are its planned workloads, and `existing` its
    /// existing additional replicas.
    pub(crate) fn new(
        service: &Value,
        plan: &ServicePlan,
        workloads: &[PlannedWorkload],
        existing: &[PlannedWorkload],
        reader: WorkloadReader<'_>,
        inventory: &Inventory,
    ) -> SurgeReplicas {
        let paused = is_rollout_paused(service);
        let surge_replica = |(role, planned): (&String, &Value)| {
            let of_role = |workload: &&PlannedWorkload| workload.planned["metadata"]["labels"][ROLE_NAME] == **role;
            let is_other = |workload: &&PlannedWorkload| {
                metadata_field(&workload.planned, "name") != metadata_field(planned, "name")
            };
            // LeaderWorkerSet names the workers' StatefulSet of a set like this other set.
            let workers = format!("{}-0", metadata_field(planned, "name"));
            if workloads.iter().any(|workload| metadata_field(&workload.planned, "name") == workers) {
                return None;
            }
            let mut surge = reader.planned_workloads(service, slice::from_ref(planned)).pop()?;
            let namespace = metadata_field(service, "namespace");
            let name = metadata_field(planned, "name");
            let is_stopping = surge.live.is_none() && reader.has_pods_of_set(namespace, name);
            let is_restarting = surge.live.is_some() && reader.has_stopping_pods_of_set(namespace, name);
            // After scaling down, the name may be that of another replica.
            let surplus = surge.live.take_if(|live| !is_surge_replica(&live.object));
            let replicas = RoleReplicas {
                replicas: workloads.iter().filter(of_role).collect(),
                surge,
                surplus,
                is_stopping,
                is_restarting,
                others: existing.iter().filter(of_role).filter(is_other).collect(),
                now: reader.now,
            };
            let starts_together = replicas.replicas.iter().any(|workload| {
                workload
                    .live
                    .as_ref()
                    .is_some_and(|live| adds_pods_to_gang_of_all(&live.object, &workload.planned, &plan.objects))
            });
            Some((role.clone(), replicas.surge_replica(paused, starts_together, inventory)?))
        };
        SurgeReplicas(plan.surge_replicas.iter().filter_map(surge_replica).collect())
    }

    /// Returns the LeaderWorkerSets of the additional replicas, and those of `existing` that serve until the routes have
    /// changed.
    pub(crate) fn desired_objects(&self, existing: &[PlannedWorkload], waiting: &WaitingUpdates) -> Vec<DesiredObject> {
        let mut desired: Vec<DesiredObject> = self.0.values().flat_map(|surge| surge.sets.iter().cloned()).collect();
        for workload in existing {
            let name = metadata_field(&workload.planned, "name");
            let is_desired = desired.iter().any(|set| metadata_field(set.object(), "name") == name);
            if waiting.sets.contains(name) && !is_desired {
                desired.push(DesiredObject::Defer(workload.planned.clone()));
            }
        }
        desired
    }

    /// Returns the roles whose replicas are not updated yet because their additional replica starts.
    pub(crate) fn waiting_roles(&self) -> BTreeSet<String> {
        let waiting = self.0.iter().filter(|(_, surge)| surge.step == SurgeStep::Start);
        waiting.map(|(role, _)| role.clone()).collect()
    }

    /// Returns when the next additional replica counts as ready.
    pub(crate) fn ready_at(&self) -> Option<Timestamp> {
        self.0.values().filter_map(|surge| surge.ready_at).min()
    }

    /// Returns a sentence about the replicas that serve while others start, or `None` if there are none.
    pub(crate) fn message(&self) -> Option<String> {
        let sentence = |(role, surge): (&String, &SurgeReplica)| {
            if let Some(stopping) = &surge.stopping {
                return Some(format!("Role {role} is updated once the Pods of the deleted {stopping} have stopped"));
            }
            let name = kind_and_name(surge.sets.last()?.object());
            match surge.step {
                SurgeStep::Start => {
                    Some(format!("Role {role} is updated once {name}, an additional replica, is ready"))
                }
                SurgeStep::Serve => Some(format!(
                    "{name}, an additional replica, serves until an updated replica of role {role} is ready"
                )),
                SurgeStep::NoCapacity => None,
            }
        };
        let sentences: Vec<String> = self.0.iter().filter_map(sentence).collect();
        (!sentences.is_empty()).then(|| sentences.join(". "))
    }

    /// Returns a message if the `replicas` of a role are updated in place for lack of accelerators: since this reconcile, or since an
    /// earlier one that announced it as `announced`.
    pub(crate) fn interruption(&self, role: &str, replicas: i64, announced: &str) -> Option<String> {
        let interruption = match replicas {
            1 => "it is unavailable until its updated replica is ready",
            _ => "replicas stop before their successors start",
        };
        let message = format!(
            "Role {role} is updated without an additional replica, for which no accelerators are free: {interruption}"
        );
        let stops = self.0.get(role).is_some_and(|surge| surge.step == SurgeStep::NoCapacity);
        (stops || announced.contains(&message)).then_some(message)
    }
}

/// Returns whether a Pod of the replica serves requests.
fn serves(workload: &PlannedWorkload) -> bool {
    let live = workload.live.as_ref().filter(|live| !is_terminating(&live.object));
    live.is_some_and(|live| serving_pods(live).next().is_some())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::SurgeStep::{NoCapacity, Serve, Start};
    use super::*;
    use crate::replacement::Room;

    const ROOM: Room = Room { missing_pods: 0, has_replica: true };
    const FULL: Room = Room { missing_pods: 2, has_replica: false };
    const OUTDATED: SurgeState = SurgeState {
        paused: false,
        is_restarting: false,
        updated_is_ready: false,
        outdated_serve: true,
        surge_serves: false,
        surge_is_ready: false,
    };
    const UPDATING: SurgeState = SurgeState { outdated_serve: false, ..OUTDATED };

    /// The Pods of the deleted additional replica hold accelerators, so that it isn't created again and the role waits.
    #[rstest]
    #[case::stopped(
        false,
        1,
        "Role decode is updated once LeaderWorkerSet n/s-decode-1, an additional replica, is ready"
    )]
    #[case::stopping(
        true,
        0,
        "Role decode is updated once the Pods of the deleted LeaderWorkerSet n/s-decode-1 have stopped"
    )]
    fn additional_replica_waits_for_the_pods_of_the_deleted_one(
        #[case] is_stopping: bool,
        #[case] sets: usize,
        #[case] message: &str,
    ) {
        let set = |index: u8, size: u8| {
            json!({"kind": "LeaderWorkerSet", "metadata": {"namespace": "n", "name": format!("s-decode-{index}")},
                "spec": {"leaderWorkerTemplate": {"size": size, "workerTemplate": {}}}})
        };
        let pod = json!({"metadata": {"name": "p", "labels": {plan::labels::WORKER_INDEX: "0"}}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let outdated = PlannedWorkload::new(set(0, 2), Some(set(0, 1)), vec![pod]);
        let replicas = RoleReplicas {
            replicas: vec![&outdated],
            surge: PlannedWorkload::new(set(1, 2), None, Vec::new()),
            surplus: None,
            is_stopping,
            is_restarting: false,
            others: Vec::new(),
            now: Timestamp::UNIX_EPOCH,
        };
        let surge = replicas.surge_replica(false, false, &Inventory::default()).unwrap();
        assert_eq!((surge.step, surge.sets.len()), (Start, sets));
        let surge_replicas = SurgeReplicas([("decode".to_owned(), surge)].into());
        assert_eq!(surge_replicas.message().as_deref(), Some(message));
        assert_eq!(surge_replicas.waiting_roles(), ["decode".to_owned()].into());
    }

    /// Columns: state, accelerators with and without the outdated replicas, expected step.
    #[rstest]
    #[case::starts(OUTDATED, Some((ROOM, ROOM)), Some(Start))]
    #[case::unknown_capacity(OUTDATED, None, Some(Start))]
    #[case::outdated_hold_what_it_needs(OUTDATED, Some((FULL, ROOM)), Some(NoCapacity))]
    #[case::stopping_frees_too_little(OUTDATED, Some((FULL, FULL)), Some(Start))]
    #[case::is_ready(SurgeState { surge_serves: true, surge_is_ready: true, ..OUTDATED }, Some((ROOM, ROOM)), Some(Serve))]
    #[case::serves_an_earlier_plan(SurgeState { surge_serves: true, ..OUTDATED }, Some((ROOM, ROOM)), Some(Start))]
    #[case::paused(SurgeState { paused: true, ..OUTDATED }, Some((FULL, ROOM)), Some(Start))]
    #[case::restarts(SurgeState { is_restarting: true, ..OUTDATED }, Some((FULL, ROOM)), Some(Start))]
    #[case::others_are_updated(SurgeState { surge_serves: true, surge_is_ready: true, ..UPDATING }, None, Some(Serve))]
    #[case::edited_while_others_are_updated(SurgeState { surge_serves: true, ..UPDATING }, None, Some(Serve))]
    #[case::updated_in_place(UPDATING, None, None)]
    #[case::updated(SurgeState { updated_is_ready: true, surge_serves: true, ..UPDATING }, None, None)]
    #[case::reverted(SurgeState { updated_is_ready: true, ..UPDATING }, None, None)]
    fn additional_replica_serves_while_others_are_updated(
        #[case] state: SurgeState,
        #[case] capacity: Option<(Room, Room)>,
        #[case] expected: Option<SurgeStep>,
    ) {
        let capacity =
            capacity.map(|(with_obsolete, without_obsolete)| ReplacementCapacity { with_obsolete, without_obsolete });
        assert_eq!(SurgeStep::choose(state, || capacity), expected);
    }
}
