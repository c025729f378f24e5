//! Additional replicas of roles whose replicas change their number of nodes, or whose only replica changes its port.
//!
//! Each replica of a role is a LeaderWorkerSet of its own, whose Pods stop before their successors start. An
//! additional replica therefore starts first, with the next index and outside of the gang, which does not count it. Once it is
//! ready, the others are updated (`rollout.rs`), and once one of these is ready, it is deleted. If there are no accelerators for
//! it, the others are updated in place, which is announced.
//!
//! The updated replicas of a gang start together. Its roles are therefore updated at the same time: all wait, with the PodGroup, until
//! the additional replicas of all are ready. Once they are updated, an additional replica is given up only if a role of its gang does
//! not serve for lack of nodes.
//!
//! Every reconcile derives the step from the live objects, so restarts of the operator and further edits need no special handling.

mod step;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::sync::Arc;

use cluster::{DesiredObject, is_terminating, kind_and_name, metadata_field};
use decide::Inventory;
use jiff::Timestamp;
use plan::labels::ROLE_NAME;
use plan::{ServicePlan, serving_port};
use serde_json::Value;

use crate::replacement::{SurgeUpdate, serving_pods};
use crate::rollout::{
    LiveGang, WaitingUpdates, adds_pods_to_gang_of_all, has_subgroups, is_in_gang, is_rollout_paused, replica_state,
    requires_member,
};
use crate::workloads::{LiveWorkload, PlannedWorkload, WorkloadReader, group_size, is_surge_replica, pod_template};
use step::{GroupState, RoleState, SurgeStep};

/// The additional replicas of the roles of a service, by name of the role.
#[derive(Clone, Debug, Default)]
pub(crate) struct SurgeReplicas {
    roles: BTreeMap<String, SurgeReplica>,
    /// Roles that are not updated yet because an additional replica starts: with that of another role of their gang, for example.
    waiting: BTreeSet<String>,
}

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

/// The replicas of a role.
struct RoleReplicas<'a> {
    /// The planned replicas; at least one.
    replicas: Vec<&'a PlannedWorkload>,
    /// The planned additional replica. A role has none if another object would have its name.
    surge: Option<PlannedWorkload>,
    /// A replica with its name that the service has no longer, and that stops when the additional replica is applied.
    surplus: Option<LiveWorkload>,
    /// Whether the additional replica was deleted and its Pods still hold their accelerators.
    is_stopping: bool,
    /// Existing additional replicas with other indices.
    others: Vec<&'a PlannedWorkload>,
}

/// A role with its state.
struct Role<'a> {
    name: &'a str,
    replicas: RoleReplicas<'a>,
    state: RoleState,
}

/// Roles that are updated at the same time.
struct Group<'a> {
    roles: Vec<Role<'a>>,
    state: GroupState,
    /// Replicas that the service has no longer, and whether they stop only with the update: the PodGroup counts them until then.
    removed: Vec<(&'a LiveWorkload, bool)>,
    /// The objects of the plan.
    objects: &'a [Value],
}

impl GroupState {
    fn new(roles: &[Role<'_>], paused: bool) -> GroupState {
        let waits = |state: &RoleState| state.needs_surge() && state.is_outdated && !state.surge_is_ready;
        GroupState {
            paused,
            surges_are_ready: !roles.iter().any(|role| waits(&role.state)),
            waits_for_nodes: roles.iter().any(|role| role.state.waits_for_nodes),
            is_stopping: roles.iter().any(|role| role.replicas.is_stopping),
        }
    }
}

// === impl Group ===

impl Group<'_> {
    /// Returns the steps of the roles that have or need an additional replica.
    fn steps(&self, inventory: &Inventory, stopping: &dyn Fn() -> Vec<Arc<Value>>) -> Vec<(&Role<'_>, SurgeStep)> {
        let fits_only_without_surges = |update: SurgeUpdate| update.fits_only_without_surges(inventory, &stopping());
        let lacks_accelerators = LazyCell::new(|| fits_only_without_surges(self.update()));
        let starves = LazyCell::new(|| fits_only_without_surges(self.start_of_waiting_replicas()));
        let step = |role: &Role<'_>| {
            let step = role.state.step(self.state)?;
            Some(SurgeStep::choose(step, self.state, || *lacks_accelerators, || *starves))
        };
        self.roles.iter().filter_map(|role| Some((role, step(role)?))).collect()
    }

    /// Returns the next update of all roles.
    fn update(&self) -> SurgeUpdate {
        let mut update = self.surges();
        self.roles.iter().for_each(|role| role.replicas.add_update(self.objects, &mut update));
        for (removed, stops_with_update) in &self.removed {
            if *stops_with_update { update.stop(removed) } else { update.delete(removed) }
        }
        update
    }

    /// Returns the start of the replicas that wait for nodes, as they are.
    fn start_of_waiting_replicas(&self) -> SurgeUpdate {
        let mut update = self.surges();
        for role in self.roles.iter().filter(|role| role.state.waits_for_nodes) {
            role.replicas.replicas.iter().filter_map(|workload| as_live(workload)).for_each(|live| update.keep(&live));
        }
        update
    }

    /// Returns an update of no replica, with the additional replicas.
    fn surges(&self) -> SurgeUpdate {
        let mut update = SurgeUpdate::default();
        for role in &self.roles {
            let surges = role.replicas.running_surges(role.state.step(self.state));
            let runs = |workload: &&PlannedWorkload| surges.iter().any(|surge| is_same_set(surge, workload));
            let stopping = role.replicas.surges().filter(|surge| !runs(surge)).filter_map(live);
            stopping.for_each(|live| update.delete(live));
            surges.iter().for_each(|surge| update.add_surge(surge));
        }
        update
    }
}

// === impl RoleReplicas ===

impl RoleReplicas<'_> {
    /// Returns whether a replica has another number of nodes than planned, or is the only one and serves on another port:
    /// the routes change their port once a replica serves on the planned one.
    fn is_outdated(&self, set: &Value) -> bool {
        let Some(workload) = self.replicas.first() else { return false };
        let port = |set| serving_port(pod_template(set));
        group_size(set) != group_size(&workload.planned)
            || (self.replicas.len() == 1 && port(set) != port(&workload.planned))
    }

    /// Returns whether the live object of a replica is outdated.
    fn runs_outdated(&self, workload: &PlannedWorkload) -> bool {
        live(workload).is_some_and(|live| self.is_outdated(&live.object))
    }

    /// Returns whether the role is a member of the gang.
    fn is_in_gang(&self) -> bool {
        self.replicas.iter().any(|workload| is_in_gang(&workload.planned))
    }

    /// Returns whether all replicas start together. `objects` are those of the plan.
    fn start_together(&self, objects: &[Value]) -> bool {
        self.is_in_gang() && !has_subgroups(objects)
    }

    /// Whether the additional replica takes the place of a replica that the service has no longer.
    fn is_surplus(&self, set: &LiveWorkload) -> bool {
        let name = |set: &LiveWorkload| metadata_field(&set.object, "name").to_owned();
        self.surplus.as_ref().is_some_and(|surplus| name(surplus) == name(set))
    }

    fn surges(&self) -> impl Iterator<Item = &PlannedWorkload> {
        self.others.iter().copied().chain(&self.surge)
    }

    fn state(&self, objects: &[Value], now: Timestamp) -> RoleState {
        let is_ready = |workload: &PlannedWorkload| replica_state(workload, now).is_ready();
        // A replica that starts together with the others serves as late as they do.
        let is_missing = |workload: &PlannedWorkload| live(workload).is_none() && self.start_together(objects);
        let mut updated = self.replicas.iter().filter(|workload| !self.runs_outdated(workload));
        let is_surge_ready = |surge: &PlannedWorkload| match &self.surge {
            Some(planned) if is_same_set(planned, surge) => {
                let state = replica_state(surge, now);
                state.is_current() && state.is_ready()
            }
            _ => !self.is_outdated(&surge.planned) && is_ready(surge),
        };
        let has_outdated = self.replicas.iter().any(|workload| self.runs_outdated(workload));
        let replica_serves = self.replicas.iter().copied().any(serves);
        let serves = replica_serves || self.surges().any(serves);
        RoleState {
            updated_is_ready: updated.any(|workload| is_ready(workload)),
            is_outdated: has_outdated
                && (replica_serves || !self.surges().any(is_ready))
                && self.replicas.iter().all(|workload| self.runs_outdated(workload) || is_missing(workload)),
            waits_for_nodes: !serves
                && self.replicas.iter().any(|workload| replica_state(workload, now).is_unschedulable()),
            serves,
            has_surge: self.is_stopping || self.surges().any(|surge| live(surge).is_some()),
            surge_is_ready: self.surge.is_none() || self.surges().any(is_surge_ready),
        }
    }

    /// Returns the additional replicas that run in a step.
    fn running_surges(&self, step: Option<SurgeStep>) -> Vec<PlannedWorkload> {
        let with_surplus = |surge: &PlannedWorkload| {
            let live = surge.live.clone().or_else(|| self.surplus.clone());
            PlannedWorkload { live, ..surge.clone() }
        };
        match step {
            None | Some(SurgeStep::Wait | SurgeStep::NoCapacity) => Vec::new(),
            Some(SurgeStep::Start) => {
                let others = self.others.iter().copied().filter(|workload| serves(workload)).filter_map(as_live);
                others.chain(self.surge.as_ref().map(with_surplus)).collect()
            }
            // An update would interrupt it.
            Some(SurgeStep::Serve) => self.surges().filter_map(as_live).collect(),
        }
    }

    /// Adds what the next update starts: all replicas if they start together, otherwise the first that is updated already, or the first
    /// one.
    fn add_update(&self, objects: &[Value], update: &mut SurgeUpdate) {
        let next_outdated = self.replicas.iter().position(|workload| self.runs_outdated(workload));
        let first = self.replicas.iter().position(|workload| !self.runs_outdated(workload)).unwrap_or(0);
        let all_start = self.start_together(objects);
        for (index, workload) in self.replicas.iter().enumerate().filter(|(index, _)| all_start || *index == first) {
            let adds_pods = |live: &LiveWorkload| adds_pods_to_gang_of_all(&live.object, &workload.planned, objects);
            let restarts = Some(index) == next_outdated || workload.live.as_ref().is_some_and(adds_pods);
            if restarts { update.restart(workload) } else { update.keep(workload) }
        }
    }

    /// Returns the LeaderWorkerSets of the additional replicas in a step.
    fn sets(&self, step: SurgeStep, paused: bool) -> Vec<DesiredObject> {
        let is_started = |workload: &PlannedWorkload| {
            step == SurgeStep::Start && self.surge.as_ref().is_some_and(|surge| is_same_set(workload, surge))
        };
        let exists = self.surge.as_ref().is_some_and(|surge| surge.live.is_some());
        let set = |workload: PlannedWorkload| match is_started(&workload) {
            true if paused => exists.then_some(DesiredObject::Defer(workload.planned)),
            true => (!self.is_stopping).then_some(DesiredObject::Apply(workload.planned)),
            false => Some(DesiredObject::Defer(workload.planned)),
        };
        self.running_surges(Some(step)).into_iter().filter_map(set).collect()
    }

    /// Returns the additional replica of the role in a step.
    fn surge_replica(&self, step: SurgeStep, paused: bool, now: Timestamp) -> SurgeReplica {
        let surge = self.surge.as_ref();
        let stopping = surge.filter(|_| step == SurgeStep::Start && self.is_stopping);
        SurgeReplica {
            step,
            sets: self.sets(step, paused),
            stopping: stopping.map(|surge| kind_and_name(&surge.planned)),
            ready_at: surge.and_then(|surge| replica_state(surge, now).ready_at),
        }
    }
}

// === impl SurgeReplicas ===

impl SurgeReplicas {
    /// Returns the additional replicas of the roles of a service. `workloads` are its planned workloads, and `existing` its
    /// existing additional replicas. `live_gang` is its gang.
    pub(crate) fn new(
        service: &Value,
        plan: &ServicePlan,
        workloads: &[PlannedWorkload],
        existing: &[PlannedWorkload],
        live_gang: &LiveGang<'_>,
        reader: WorkloadReader<'_>,
        inventory: &Inventory,
    ) -> SurgeReplicas {
        let paused = is_rollout_paused(service);
        let roles = plan.surge_replicas.iter().map(|(name, surge)| {
            let replicas = role_replicas(service, name, surge, workloads, existing, reader);
            let state = replicas.state(&plan.objects, reader.now);
            Role { name, replicas, state }
        });
        let (gang, others): (Vec<Role<'_>>, Vec<Role<'_>>) = roles.partition(|role| role.replicas.is_in_gang());
        let groups = others.into_iter().map(|role| vec![role]).chain([gang]).filter(|roles| !roles.is_empty());
        let mut surge_replicas = SurgeReplicas::default();
        for roles in groups {
            let is_gang = roles.iter().any(|role| role.replicas.is_in_gang());
            let stops_with_update = |set: &LiveWorkload| {
                is_gang && live_gang.group.is_some_and(|group| requires_member(group, &set.object))
            };
            let state = GroupState::new(&roles, paused);
            let is_other = |set: &&LiveWorkload| !roles.iter().any(|role| role.replicas.is_surplus(set));
            let removed = live_gang.removed.iter().filter(is_other).map(|set| (set, stops_with_update(set))).collect();
            let group = Group { roles, state, removed, objects: &plan.objects };
            let steps = group.steps(inventory, &|| reader.stopping_pods(service));
            if steps.iter().any(|(_, step)| step.waits()) {
                // A role that is down and retains its size is updated: its update may repair it.
                let waiting = group.roles.iter().filter(|role| role.state.serves || role.state.is_outdated);
                surge_replicas.waiting.extend(waiting.map(|role| role.name.to_owned()));
            }
            for (role, step) in steps {
                let surge_replica = role.replicas.surge_replica(step, paused, reader.now);
                surge_replicas.roles.insert(role.name.to_owned(), surge_replica);
            }
        }
        surge_replicas
    }

    /// Returns the LeaderWorkerSets of the additional replicas, and those of `existing` that serve until the routes have
    /// changed.
    pub(crate) fn desired_objects(&self, existing: &[PlannedWorkload], waiting: &WaitingUpdates) -> Vec<DesiredObject> {
        let surges = self.roles.values().flat_map(|surge| surge.sets.iter().cloned());
        let mut desired: Vec<DesiredObject> = surges.collect();
        let waiting = existing
            .iter()
            .map(|workload| &workload.planned)
            .filter(|set| waiting.sets.contains(metadata_field(set, "name")));
        for set in waiting {
            let name = metadata_field(set, "name");
            if !desired.iter().any(|other| metadata_field(other.object(), "name") == name) {
                desired.push(DesiredObject::Defer(set.clone()));
            }
        }
        desired
    }

    /// Returns the roles whose replicas are not updated yet because additional replicas start.
    pub(crate) fn waiting_roles(&self) -> BTreeSet<String> {
        self.waiting.clone()
    }

    /// Returns when the next additional replica counts as ready.
    pub(crate) fn ready_at(&self) -> Option<Timestamp> {
        self.roles.values().filter_map(|surge| surge.ready_at).min()
    }

    /// Returns a sentence about the replicas that serve while others start, or `None` if there are none.
    pub(crate) fn message(&self) -> Option<String> {
        let sentence = |(role, surge): (&String, &SurgeReplica)| {
            if let Some(stopping) = &surge.stopping {
                return Some(format!("Role {role} is updated once the Pods of the deleted {stopping} have stopped"));
            }
            if surge.step == SurgeStep::Wait {
                return Some(format!("Role {role} is updated once all roles of its gang serve"));
            }
            let name = kind_and_name(surge.sets.last()?.object());
            match surge.step {
                SurgeStep::Start => {
                    Some(format!("Role {role} is updated once {name}, an additional replica, is ready"))
                }
                SurgeStep::Serve => Some(format!(
                    "{name}, an additional replica, serves until an updated replica of role {role} is ready"
                )),
                SurgeStep::Wait | SurgeStep::NoCapacity => None,
            }
        };
        let sentences: Vec<String> = self.roles.iter().filter_map(sentence).collect();
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
        let stops = self.roles.get(role).is_some_and(|surge| surge.step == SurgeStep::NoCapacity);
        (stops || announced.contains(&message)).then_some(message)
    }
}

fn role_replicas<'a>(
    service: &Value,
    role: &str,
    surge: &Value,
    workloads: &'a [PlannedWorkload],
    existing: &'a [PlannedWorkload],
    reader: WorkloadReader<'_>,
) -> RoleReplicas<'a> {
    let (namespace, name) = (metadata_field(service, "namespace"), metadata_field(surge, "name"));
    let has_name = |workload: &PlannedWorkload, name: &str| metadata_field(&workload.planned, "name") == name;
    let is_of_role = |object: &Value| object["metadata"]["labels"][ROLE_NAME] == *role;
    let of_role = |workload: &&PlannedWorkload| is_of_role(&workload.planned);
    // LeaderWorkerSet names the workers' StatefulSet of a set like this other set.
    let workers = format!("{name}-0");
    let is_name_free = !workloads.iter().any(|workload| has_name(workload, &workers));
    let mut surge = reader.planned_workloads(service, slice::from_ref(surge)).pop().filter(|_| is_name_free);
    // After scaling down, the name may be that of another replica.
    let surplus = surge.as_mut().and_then(|surge| surge.live.take_if(|live| !is_surge_replica(&live.object)));
    let is_deleted = surge.as_ref().is_some_and(|surge| surge.live.is_none()) && surplus.is_none();
    RoleReplicas {
        replicas: workloads.iter().filter(of_role).collect(),
        is_stopping: is_deleted && reader.has_pods_of_set(namespace, name),
        others: existing.iter().filter(of_role).filter(|workload| !has_name(workload, name)).collect(),
        surge,
        surplus,
    }
}

/// Returns a replica as it is, which is not updated.
fn as_live(workload: &PlannedWorkload) -> Option<PlannedWorkload> {
    let live = live(workload)?;
    Some(PlannedWorkload { planned: (*live.object).clone(), ..workload.clone() })
}

/// Returns the live object of a replica that does not stop.
fn live(workload: &PlannedWorkload) -> Option<&LiveWorkload> {
    workload.live.as_ref().filter(|live| !is_terminating(&live.object))
}

fn is_same_set(a: &PlannedWorkload, b: &PlannedWorkload) -> bool {
    metadata_field(&a.planned, "name") == metadata_field(&b.planned, "name")
}

/// Returns whether a Pod of the replica serves requests.
fn serves(workload: &PlannedWorkload) -> bool {
    live(workload).is_some_and(|live| serving_pods(live).next().is_some())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::SurgeStep::{NoCapacity, Start};
    use super::*;

    fn set(index: u8, size: u8) -> Value {
        json!({"kind": "LeaderWorkerSet", "metadata": {"namespace": "n", "name": format!("s-decode-{index}")},
            "spec": {"leaderWorkerTemplate": {"size": size, "workerTemplate": {}}}})
    }

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
        let pod = json!({"metadata": {"name": "p", "labels": {plan::labels::WORKER_INDEX: "0"}}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let outdated = PlannedWorkload::new(set(0, 2), Some(set(0, 1)), vec![pod]);
        let replicas = RoleReplicas {
            replicas: vec![&outdated],
            surge: Some(PlannedWorkload::new(set(1, 2), None, Vec::new())),
            surplus: None,
            is_stopping,
            others: Vec::new(),
        };
        let now = Timestamp::UNIX_EPOCH;
        let group = GroupState { paused: false, surges_are_ready: false, waits_for_nodes: false, is_stopping };
        let step = SurgeStep::choose(replicas.state(&[], now).step(group).unwrap(), group, || true, || true);
        assert_eq!(step, if is_stopping { Start } else { NoCapacity });
        let surge = replicas.surge_replica(Start, false, now);
        assert_eq!(surge.sets.len(), sets);
        let roles = [("decode".to_owned(), surge)].into();
        assert_eq!(SurgeReplicas { roles, ..SurgeReplicas::default() }.message().as_deref(), Some(message));
    }
}
