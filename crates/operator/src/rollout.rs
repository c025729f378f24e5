//! Rolling updates of the replicas of a role: one replica at a time, stopping at the first one that does not become
//! ready.
//!
//! Each replica of a role is a LeaderWorkerSet of its own, so the operator itself paces the update. The next replica is
//! updated once the previous one is updated and ready (`maxUnavailable` 1). A replica that cannot be scheduled serves
//! no requests, so it is updated immediately. Another service may take the capacity of a stopped replica, so a ready
//! replica is updated only if at least the maximum number of ready replicas since the rollout began, minus
//! `maxUnavailable`, remain ready. Before the number of nodes of a replica changes, an additional replica starts
//! (`surge_replicas.rs`).

mod update_order;

use std::collections::{BTreeMap, BTreeSet};

use cluster::{DesiredObject, is_pod_template_applied, is_spec_applied, is_terminating, metadata_field};
use jiff::{SignedDuration, Timestamp};
use plan::labels::{GROUP_NAME, ROLE_NAME, TASK_SPEC};
use serde_json::{Value, json};

use crate::FIELD_MANAGER;
use crate::kinds::{DEPLOYMENT, LEADER_WORKER_SET, POD_GROUP};
use crate::readiness::{Progress, pod_problem};
use crate::rollout_strategy::RolloutStrategies;
use crate::workloads::{LiveWorkload, PlannedWorkload, group_size};
pub(crate) use update_order::ReplicaState;
use update_order::{Health, TemplateState, UpdateLimits, updatable_replicas};

/// Time that an engine without a readiness probe must run before the next replica is updated. Such an engine is ready
/// as soon as it runs, and a broken one usually fails shortly after.
const MIN_READY_TIME: SignedDuration = SignedDuration::from_secs(10);

/// Name part of the annotation that pauses rollouts if set to `"true"`; its prefix is the API group of the service.
const PAUSED_ANNOTATION: &str = "rollout-paused";

/// How a paused rollout continues, for messages.
pub(crate) const PAUSED: &str = "the rollout is paused, run `ostler rollout resume` to resume it";

/// Progress of the rollout of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rollout {
    /// Desired replicas.
    pub(crate) replicas: usize,
    /// Replicas with the current template.
    pub(crate) updated: usize,
    /// Maximum number of ready replicas since the rollout began.
    pub(crate) max_ready: usize,
    /// Updated replicas that are not ready for a reason other than missing capacity.
    updating: usize,
    /// Whether no replica is updated until additional ones are ready.
    waits_for_surge: bool,
    /// Names of the LeaderWorkerSets that may be applied now.
    updatable: BTreeSet<String>,
    /// Names of the LeaderWorkerSets that serve until the routes have changed.
    waiting_sets: BTreeSet<String>,
    /// Present while the rollout waits for more ready replicas.
    pub(crate) ready_floor: Option<ReadyFloor>,
    /// Time at which a replica without a readiness probe counts as ready; no watch event announces it.
    pub(crate) ready_at: Option<Timestamp>,
}

/// Number of ready replicas that a rollout waits for because some replicas lost their capacity, although no replica is
/// being updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadyFloor {
    /// Ready replicas.
    pub(crate) ready: usize,
    /// Number of ready replicas that are required to update the next replica.
    pub(crate) required: usize,
}

/// Updates that wait although the limits of the rollouts permit them.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingUpdates {
    /// Roles whose additional replica starts.
    pub(crate) roles: BTreeSet<String>,
    /// Names of the LeaderWorkerSets that serve until the routes have changed.
    pub(crate) sets: BTreeSet<String>,
}

/// The existing gang of a service.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveGang<'a> {
    /// Its PodGroup.
    pub(crate) group: Option<&'a Value>,
    /// Replicas that the service has no longer. Those that the PodGroup requires stop once it has changed.
    pub(crate) removed: Vec<LiveWorkload>,
}

/// Rollouts by role name.
pub(crate) type Rollouts = BTreeMap<String, Rollout>;

// === impl Rollout ===

impl Rollout {
    /// Returns whether a replica still has an earlier template.
    pub(crate) fn in_progress(&self) -> bool {
        self.updated < self.replicas
    }

    /// Renders the entry of `status.rollouts`.
    pub(crate) fn status(&self) -> Value {
        json!({"replicas": self.replicas, "updatedReplicas": self.updated, "readyBefore": self.max_ready})
    }

    fn new(
        replicas: &[(&PlannedWorkload, ReplicaState)],
        old_status: &Value,
        max_unavailable: usize,
        paused: bool,
        waits_for_surge: bool,
    ) -> Rollout {
        let count = |test: &dyn Fn(&ReplicaState) -> bool| replicas.iter().filter(|(_, replica)| test(replica)).count();
        let ready = count(&|replica| replica.health == Health::Ready);
        let before = old_status["readyBefore"].as_u64().and_then(|before| usize::try_from(before).ok()).unwrap_or(0);
        let mut rollout = Rollout {
            replicas: replicas.len(),
            updated: count(&|replica| replica.template == TemplateState::Current),
            max_ready: ready.max(before).min(replicas.len()),
            updating: count(&ReplicaState::is_updating),
            waits_for_surge,
            updatable: BTreeSet::new(),
            waiting_sets: BTreeSet::new(),
            ready_floor: None,
            ready_at: replicas.iter().filter_map(|(_, replica)| replica.ready_at).min(),
        };
        let states: Vec<ReplicaState> = replicas.iter().map(|(_, replica)| *replica).collect();
        let waits = paused || waits_for_surge;
        let limits = UpdateLimits { max_unavailable, max_ready: rollout.max_ready, paused: waits };
        let updatable = updatable_replicas(&states, limits);
        let updates_no_outdated_replica = updatable.iter().all(|index| !is_outdated(states.get(*index)));
        if !waits && rollout.in_progress() && rollout.updating == 0 && updates_no_outdated_replica {
            let required = rollout.max_ready.saturating_add(1).saturating_sub(max_unavailable);
            rollout.ready_floor = Some(ReadyFloor { ready, required });
        }
        let set_name = |index: usize| {
            replicas.get(index).map(|(workload, _)| metadata_field(&workload.planned, "name").to_owned())
        };
        rollout.updatable = updatable.into_iter().filter_map(set_name).collect();
        rollout
    }
}

fn is_outdated(replica: Option<&ReplicaState>) -> bool {
    replica.is_some_and(|replica| replica.template == TemplateState::Outdated)
}

/// Returns the annotation that pauses rollouts of services with `api_version`.
#[must_use]
pub fn rollout_pause_annotation(api_version: &str) -> String {
    format!("{}/{PAUSED_ANNOTATION}", api_version.split('/').next().unwrap_or_default())
}

/// Returns whether rollouts of the service are paused.
#[must_use]
pub fn is_rollout_paused(service: &Value) -> bool {
    let annotation = rollout_pause_annotation(service["apiVersion"].as_str().unwrap_or_default());
    service["metadata"]["annotations"][annotation] == "true"
}

/// Returns the rollouts of all roles by name, including completed ones. Updates of `waiting` wait.
pub(crate) fn rollouts(
    service: &Value,
    workloads: &[PlannedWorkload],
    waiting: &WaitingUpdates,
    now: Timestamp,
) -> Rollouts {
    let mut roles: BTreeMap<String, Vec<(&PlannedWorkload, ReplicaState)>> = BTreeMap::new();
    for workload in workloads {
        if let Some(role) = role_of(&workload.planned) {
            roles.entry(role.to_owned()).or_default().push((workload, replica_state(workload, now)));
        }
    }
    let paused = is_rollout_paused(service);
    let rollout = |(role, replicas): (String, Vec<(&PlannedWorkload, ReplicaState)>)| {
        let old_status = &service["status"]["rollouts"][&role];
        let waits_for_surge = waiting.roles.contains(&role);
        let mut rollout = Rollout::new(&replicas, old_status, max_unavailable(service, &role), paused, waits_for_surge);
        rollout.waiting_sets = waiting.sets.clone();
        (role, rollout)
    };
    roles.into_iter().map(rollout).collect()
}

/// Returns the rollouts to report in `status.rollouts` after an apply: those in progress, and those whose last replicas
/// are not ready yet. `before` are the rollouts before the apply.
pub(crate) fn reported_rollouts(service: &Value, before: &Rollouts, after: Rollouts) -> Rollouts {
    let was_in_progress = |role: &str| {
        service["status"]["rollouts"][role].is_object() || before.get(role).is_some_and(Rollout::in_progress)
    };
    let reported = after
        .into_iter()
        .filter(|(role, rollout)| rollout.in_progress() || (was_in_progress(role) && rollout.updating > 0));
    let with_max_ready = |(role, rollout): (String, Rollout)| {
        let max_ready = before.get(&role).map_or(0, |before| before.max_ready).min(rollout.replicas);
        (role, Rollout { max_ready: rollout.max_ready.max(max_ready), ..rollout })
    };
    reported.map(with_max_ready).collect()
}

/// Returns the role of a LeaderWorkerSet that is a replica of a role.
fn role_of(object: &Value) -> Option<&str> {
    let is_set = object["kind"] == LEADER_WORKER_SET.kind;
    object["metadata"]["labels"][ROLE_NAME].as_str().filter(|_| is_set)
}

fn max_unavailable(service: &Value, role_name: &str) -> usize {
    let mut roles = service["spec"]["roles"].as_array().into_iter().flatten();
    let value = roles.find(|role| role["name"] == role_name).and_then(|role| role["maxUnavailable"].as_u64());
    value.and_then(|value| usize::try_from(value).ok()).unwrap_or(1).max(1)
}

/// Returns the state of a replica.
pub(crate) fn replica_state(workload: &PlannedWorkload, now: Timestamp) -> ReplicaState {
    let Some(live) = workload.live.as_ref().filter(|live| !is_terminating(&live.object)) else {
        return ReplicaState { template: TemplateState::Missing, health: Health::Unready, ready_at: None };
    };
    let template = match is_spec_applied(&live.object, &workload.planned, FIELD_MANAGER) {
        true => TemplateState::Current,
        false => TemplateState::Outdated,
    };
    let is_complete = Progress::from_workload(&live.object).is_complete();
    let ready_at =
        min_ready_time_end(live).filter(|end| is_complete && template == TemplateState::Current && *end > now);
    let is_unschedulable = |pod: &Value| pod_problem(pod).is_some_and(|problem| problem.is_waiting_for_node());
    let is_bound = |pod: &Value| pod["spec"]["nodeName"].is_string();
    let health = match () {
        () if is_complete && ready_at.is_none() => Health::Ready,
        // Until all Pods exist, the others wait for them and not for a node.
        () if u64::try_from(live.pods.len()).is_ok_and(|pods| pods >= group_size(&live.object))
            && live.pods().any(is_unschedulable)
            && !live.pods().any(is_bound) =>
        {
            Health::Unschedulable
        }
        () => Health::Unready,
    };
    ReplicaState { template, health, ready_at }
}

/// Returns the time at which a replica without readiness probes counts as working.
fn min_ready_time_end(live: &LiveWorkload) -> Option<Timestamp> {
    let has_probe = |pod: &Value| {
        let mut containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        containers.any(|container| container["readinessProbe"].is_object())
    };
    let ready_since = |pod: &Value| -> Option<Timestamp> {
        let ready = cluster::find_condition(&pod["status"]["conditions"], "Ready")?;
        ready["lastTransitionTime"].as_str()?.parse().ok()
    };
    let latest = live.pods().filter_map(ready_since).max().filter(|_| !live.pods().any(has_probe))?;
    latest.checked_add(MIN_READY_TIME).ok()
}

/// Returns the desired objects with the action for each of them. A PodGroup is applied first, and is retained as long
/// as Pods of an earlier template belong to it.
pub(crate) fn desired_objects(
    service: &Value,
    objects: &[Value],
    workloads: &[PlannedWorkload],
    rollouts: &Rollouts,
    strategies: &RolloutStrategies,
    live_gang: &LiveGang<'_>,
) -> Vec<DesiredObject> {
    let paused = is_rollout_paused(service);
    let live_set = |planned: &Value| {
        let workload = workloads.iter().find(|workload| is_same_object(&workload.planned, planned))?;
        workload.live.as_ref().map(|live| &*live.object)
    };
    let changes_gang = |planned: &Value| {
        live_set(planned).is_some_and(|live| !is_in_gang(live) || group_size(live) != group_size(planned))
    };
    let waits = |planned: &Value| {
        let rollout = role_of(planned).and_then(|role| rollouts.get(role));
        rollout.is_some_and(|rollout| rollout.waits_for_surge) || (paused && changes_gang(planned))
    };
    let is_updated_at_once =
        |live: &Value, planned: &Value| !waits(planned) && adds_pods_to_gang_of_all(live, planned, objects);
    // The PodGroup counts the planned members.
    let is_group_deferred = objects.iter().any(|object| is_in_gang(object) && waits(object));
    let counts = |set: &Value| live_gang.group.is_some_and(|group| counts_member(group, set));
    let requires = |set: &Value| live_gang.group.is_some_and(|group| requires_member(group, set));
    let action = |object: &Value| match object["kind"] == POD_GROUP.kind {
        true if is_group_deferred => DesiredObject::Defer(object.clone()),
        true => DesiredObject::ApplyFirst(object.clone()),
        false => {
            let desired = desired_object(object, workloads, rollouts, strategies, paused, &is_updated_at_once);
            match desired {
                DesiredObject::Apply(set) if is_group_deferred && is_in_gang(&set) && !counts(&set) => {
                    DesiredObject::Defer(set)
                }
                desired => desired,
            }
        }
    };
    let mut desired: Vec<DesiredObject> = objects.iter().map(action).collect();
    if is_group_deferred {
        let required = live_gang.removed.iter().filter(|set| requires(&set.object));
        desired.extend(required.map(|set| DesiredObject::Defer(Value::clone(&set.object))));
    }
    let is_deferred_set =
        |object: &DesiredObject| matches!(object, DesiredObject::Defer(set) if set["kind"] == LEADER_WORKER_SET.kind);
    if desired.iter().any(is_deferred_set) && !objects.iter().any(|object| object["kind"] == POD_GROUP.kind) {
        let metadata = json!({"namespace": service["metadata"]["namespace"], "name": service["metadata"]["name"]});
        let group = json!({"apiVersion": POD_GROUP.api_version(), "kind": POD_GROUP.kind, "metadata": metadata});
        desired.push(DesiredObject::Defer(group));
    }
    desired
}

fn desired_object(
    object: &Value,
    workloads: &[PlannedWorkload],
    rollouts: &Rollouts,
    strategies: &RolloutStrategies,
    paused: bool,
    is_updated_at_once: &dyn Fn(&Value, &Value) -> bool,
) -> DesiredObject {
    let mut object = object.clone();
    strategies.set_strategy(&mut object);
    if object["kind"] == DEPLOYMENT.kind {
        let mut deployment = object;
        if paused {
            // A paused Deployment still scales.
            deployment["spec"]["paused"] = json!(true);
        }
        return DesiredObject::Apply(deployment);
    }
    if object["kind"] != LEADER_WORKER_SET.kind {
        return DesiredObject::Apply(object);
    }
    let workload = workloads.iter().find(|workload| is_same_object(&workload.planned, &object));
    let Some(live) = workload.and_then(|workload| workload.live.as_ref()) else {
        return DesiredObject::Apply(object);
    };
    let is_deferred = match role_of(&object).and_then(|role| rollouts.get(role)) {
        Some(rollout) if rollout.waiting_sets.contains(metadata_field(&object, "name")) => true,
        Some(rollout) => {
            !rollout.updatable.contains(metadata_field(&object, "name")) && !is_updated_at_once(&live.object, &object)
        }
        // A paused LeaderWorkerSet still scales.
        None => paused && !is_pod_template_applied(&live.object, &object, FIELD_MANAGER),
    };
    if is_deferred { DesiredObject::Defer(object) } else { DesiredObject::Apply(object) }
}

fn is_same_object(a: &Value, b: &Value) -> bool {
    a["kind"] == b["kind"] && metadata_field(a, "name") == metadata_field(b, "name")
}

/// Returns whether the update adds Pods to a gang whose members all start together, so that its replicas cannot be updated one at a
/// time: the gang misses Pods of each replica until it is updated.
pub(crate) fn adds_pods_to_gang_of_all(live: &Value, planned: &Value, objects: &[Value]) -> bool {
    let adds_pods = !is_in_gang(live) || group_size(live) < group_size(planned);
    is_in_gang(planned) && adds_pods && !has_subgroups(objects)
}

/// Returns whether the PodGroup of a plan has subgroups, so that one replica of each role is enough to start.
pub(crate) fn has_subgroups(objects: &[Value]) -> bool {
    objects.iter().any(|object| object["kind"] == POD_GROUP.kind && object["spec"]["subGroupPolicy"].is_array())
}

/// Returns whether a PodGroup counts a replica of this size, or one of its role.
fn counts_member(group: &Value, set: &Value) -> bool {
    let size = group_size(set);
    let task = set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"][TASK_SPEC].as_str();
    let mut subgroups = group["spec"]["subGroupPolicy"].as_array().into_iter().flatten();
    task.is_some_and(|task| group["spec"]["minTaskMember"][task] == size)
        || subgroups.any(|subgroup| {
            subgroup["name"] == set["metadata"]["labels"][ROLE_NAME] && subgroup["subGroupSize"] == size
        })
}

/// Returns whether the gang of a PodGroup starts only with this replica.
pub(crate) fn requires_member(group: &Value, set: &Value) -> bool {
    let task = set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"][TASK_SPEC].as_str();
    task.is_some_and(|task| group["spec"]["minTaskMember"].get(task).is_some())
}

/// Returns whether a LeaderWorkerSet is a member of a gang.
pub(crate) fn is_in_gang(set: &Value) -> bool {
    let template = &set["spec"]["leaderWorkerTemplate"]["workerTemplate"];
    template["metadata"]["annotations"][GROUP_NAME].is_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn set(name: &str, image: &str, gang: bool) -> Value {
        let metadata = if gang { json!({"annotations": {GROUP_NAME: "s"}}) } else { json!({}) };
        json!({"apiVersion": LEADER_WORKER_SET.api_version(), "kind": LEADER_WORKER_SET.kind,
            "metadata": {"namespace": "n", "name": name, "labels": {ROLE_NAME: "w"}},
            "spec": {"leaderWorkerTemplate": {"workerTemplate": {"metadata": metadata, "image": image}}}})
    }

    /// Returns a ready replica whose live object was applied with `image`.
    fn ready_workload(name: &str, planned: Value, image: &str, gang: bool) -> PlannedWorkload {
        let mut live = set(name, image, gang);
        let template = &live["spec"]["leaderWorkerTemplate"]["workerTemplate"];
        let metadata = if gang { json!({"f:annotations": {format!("f:{GROUP_NAME}"): {}}}) } else { json!({}) };
        assert!(template["image"].is_string());
        live["metadata"]["managedFields"] = json!([{"manager": FIELD_MANAGER, "operation": "Apply",
            "apiVersion": LEADER_WORKER_SET.api_version(), "fieldsV1": {"f:spec": {"f:leaderWorkerTemplate":
                {"f:workerTemplate": {"f:image": {}, "f:metadata": metadata}}}}}]);
        live["status"] = json!({"readyReplicas": 1, "updatedReplicas": 1});
        PlannedWorkload::new(planned, Some(live), Vec::new())
    }

    fn service(annotations: Value, rollouts: Value) -> Value {
        json!({"apiVersion": "fusioninfer.io/v1alpha1", "metadata": {"namespace": "n", "name": "s", "annotations": annotations},
            "spec": {"roles": [{"name": "w"}]}, "status": {"rollouts": rollouts}})
    }

    fn actions(desired: &[DesiredObject]) -> Vec<String> {
        let action = |object: &DesiredObject| match object {
            DesiredObject::Apply(_) => "apply",
            DesiredObject::ApplyFirst(_) => "apply-first",
            DesiredObject::Defer(_) => "defer",
            DesiredObject::Obsolete(_) => "obsolete",
        };
        desired.iter().map(|object| format!("{} {}", action(object), metadata_field(object.object(), "name"))).collect()
    }

    fn planned_actions(service: &Value, live_image: &str, is_live_in_gang: bool, is_in_gang: bool) -> Vec<String> {
        let planned: Vec<Value> = ["s-w-0", "s-w-1"].map(|name| set(name, "new", is_in_gang)).to_vec();
        let workloads: Vec<PlannedWorkload> = planned
            .iter()
            .map(|set| ready_workload(metadata_field(set, "name"), set.clone(), live_image, is_live_in_gang))
            .collect();
        let rollouts = rollouts(service, &workloads, &WaitingUpdates::default(), Timestamp::UNIX_EPOCH);
        actions(&desired_objects(
            service,
            &planned,
            &workloads,
            &rollouts,
            &RolloutStrategies::default(),
            &LiveGang::default(),
        ))
    }

    #[test]
    fn defers_replicas_after_the_first_outdated_one() {
        let service = service(Value::Null, Value::Null);
        assert_eq!(planned_actions(&service, "new", true, true), ["apply s-w-0", "apply s-w-1"]);
        assert_eq!(
            planned_actions(&service, "old", true, true),
            ["apply s-w-0", "defer s-w-1", "defer s"],
            "the PodGroup is deferred too"
        );
    }

    // The Pods have been ready since the epoch.
    #[rstest]
    #[case::without_probe_before_min_ready_time(json!([{}]), 9, Health::Unready, Some(10))]
    #[case::without_probe_after_min_ready_time(json!([{}]), 10, Health::Ready, None)]
    #[case::with_probe(json!([{}, {"readinessProbe": {}}]), 0, Health::Ready, None)]
    fn engine_without_probe_must_run_for_min_ready_time(
        #[case] containers: Value,
        #[case] now: i64,
        #[case] health: Health,
        #[case] ready_at: Option<i64>,
    ) {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}, "status": {"conditions":
            [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}});
        let mut workload = ready_workload("s-w-0", set("s-w-0", "new", false), "new", false);
        if let Some(live) = &mut workload.live {
            live.pods = vec![std::sync::Arc::new(pod)];
        }
        let timestamp = |second| Timestamp::from_second(second).unwrap();
        let state = replica_state(&workload, timestamp(now));
        assert_eq!(
            (state.template, state.health, state.ready_at),
            (TemplateState::Current, health, ready_at.map(timestamp))
        );
    }

    /// The updated replica lost its node, and the other one is the only ready replica.
    #[test]
    fn reports_ready_floor_if_updated_replica_lost_its_node() {
        let planned: Vec<Value> = ["s-w-0", "s-w-1"].map(|name| set(name, "new", false)).to_vec();
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{}]}, "status": {"conditions":
            [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}]}});
        let mut workloads = [
            ready_workload("s-w-0", planned[0].clone(), "new", false),
            ready_workload("s-w-1", planned[1].clone(), "old", false),
        ];
        let unscheduled = workloads[0].live.as_mut().unwrap();
        unscheduled.pods = vec![std::sync::Arc::new(pod)];
        std::sync::Arc::make_mut(&mut unscheduled.object)["status"] = json!({"readyReplicas": 0, "updatedReplicas": 1});
        let ready_floor = |annotations: Value| {
            let service = service(annotations, json!({"w": {"readyBefore": 2}}));
            rollouts(&service, &workloads, &WaitingUpdates::default(), Timestamp::UNIX_EPOCH)["w"].ready_floor
        };
        assert_eq!(ready_floor(Value::Null), Some(ReadyFloor { ready: 1, required: 2 }));
        assert_eq!(
            ready_floor(json!({"fusioninfer.io/rollout-paused": "true"})),
            None,
            "a paused rollout waits for nothing"
        );
    }

    /// LeaderWorkerSet creates the leader of a group first.
    #[rstest]
    #[case::leader(1, Health::Unready)]
    #[case::all_pods(2, Health::Unschedulable)]
    fn replica_lacks_nodes_once_all_its_pods_wait(#[case] pods: usize, #[case] expected: Health) {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{}]}, "status": {"conditions":
            [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}]}});
        let mut workload = ready_workload("s-w-0", set("s-w-0", "new", false), "new", false);
        let live = workload.live.as_mut().unwrap();
        live.pods = std::iter::repeat_n(std::sync::Arc::new(pod), pods).collect();
        let object = std::sync::Arc::make_mut(&mut live.object);
        object["spec"]["leaderWorkerTemplate"]["size"] = json!(2);
        object["status"] = json!({"readyReplicas": 0, "updatedReplicas": 1});
        assert_eq!(replica_state(&workload, Timestamp::UNIX_EPOCH).health, expected);
    }

    /// Columns: PodGroup, roles that wait for an additional replica, whether the replicas already belong to the gang, expected
    /// actions. Each replica gets a second Pod.
    #[rstest]
    #[case::all_start_together(json!({"minMember": 4}), &[], false, &["apply-first s", "apply s-w-0", "apply s-w-1"])]
    #[case::one_is_enough(json!({"subGroupPolicy": []}), &[], false, &["apply-first s", "apply s-w-0", "defer s-w-1"])]
    #[case::role_waits(json!({"minMember": 4}), &["w"], false, &["defer s", "defer s-w-0", "defer s-w-1"])]
    #[case::other_role_waits(json!({"minMember": 4}), &["v"], false, &["apply-first s", "apply s-w-0", "apply s-w-1"])]
    #[case::gang_grows(json!({"minMember": 4}), &[], true, &["apply-first s", "apply s-w-0", "apply s-w-1"])]
    #[case::subgroups_grow(json!({"subGroupPolicy": []}), &[], true, &["apply-first s", "apply s-w-0", "defer s-w-1"])]
    fn replicas_that_add_pods_to_a_gang_are_updated_together_if_it_needs_all(
        #[case] group: Value,
        #[case] waiting_roles: &[&str],
        #[case] is_in_gang: bool,
        #[case] expected: &[&str],
    ) {
        let service = service(Value::Null, Value::Null);
        let roles = waiting_roles.iter().map(|role| (*role).to_owned()).collect();
        let waiting = WaitingUpdates { roles, sets: BTreeSet::new() };
        let sets = ["s-w-0", "s-w-1"].map(|name| {
            let mut set = set(name, "new", true);
            set["spec"]["leaderWorkerTemplate"]["size"] = json!(2);
            set
        });
        let workloads = sets.clone().map(|set| {
            let name = metadata_field(&set, "name").to_owned();
            ready_workload(&name, set, "old", is_in_gang)
        });
        let group = json!({"kind": POD_GROUP.kind, "metadata": {"namespace": "n", "name": "s"}, "spec": group});
        let objects: Vec<Value> = [group].into_iter().chain(sets).collect();
        let rollouts = rollouts(&service, &workloads, &waiting, Timestamp::UNIX_EPOCH);
        let strategies = RolloutStrategies::default();
        let desired = desired_objects(&service, &objects, &workloads, &rollouts, &strategies, &LiveGang::default());
        assert_eq!(actions(&desired), expected);
    }

    #[test]
    fn pause_annotation_defers_sets_and_pauses_deployments() {
        let service = service(json!({"fusioninfer.io/rollout-paused": "true"}), Value::Null);
        assert_eq!(planned_actions(&service, "old", false, false), ["defer s-w-0", "defer s-w-1", "defer s"]);
        let deployment = json!({"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 3}});
        let desired = desired_objects(
            &service,
            &[deployment],
            &[],
            &BTreeMap::new(),
            &RolloutStrategies::default(),
            &LiveGang::default(),
        );
        assert_eq!(desired[0].object()["spec"], json!({"replicas": 3, "paused": true}));
    }

    #[test]
    fn reports_max_ready_replicas_while_in_progress() {
        let planned = set("s-w-0", "new", false);
        let old = json!({"w": {"readyBefore": 7}});
        let status = |live_image: &str, old_rollouts: Value| {
            let service = service(Value::Null, old_rollouts);
            let workloads = [ready_workload("s-w-0", planned.clone(), live_image, false)];
            reported_rollouts(
                &service,
                &BTreeMap::new(),
                rollouts(&service, &workloads, &WaitingUpdates::default(), Timestamp::UNIX_EPOCH),
            )
            .get("w")
            .map(Rollout::status)
        };
        assert_eq!(status("old", old.clone()), Some(json!({"replicas": 1, "updatedReplicas": 0, "readyBefore": 1})));
        assert_eq!(status("new", old), None);
    }
}
