//! Which replicas may take a new template now: one of a role at a time, and none after the first that does not come back.
//!
//! Each replica of a role is a LeaderWorkerSet of its own, so nobody but us holds an update back. The next replica is
//! touched once the last is updated and ready (`maxUnavailable` 1). A replica that finds no room runs nothing and is
//! updated at once; and as its place may go to one that waited longer, what is counted is how many are ready: never fewer
//! than there were at most since the rollout began, less `maxUnavailable`.

mod turns;

use std::collections::{BTreeMap, BTreeSet};

use cluster::apply::{Desired, spec_already_applied};
use cluster::object::{meta, terminating};
use jiff::{SignedDuration, Timestamp};
use plan::labels::{GROUP_NAME, ROLE_NAME};
use serde_json::{Value, json};

use crate::MANAGER;
use crate::kinds::{DEPLOYMENT, LEADER_WORKER_SET, POD_GROUP};
use crate::readiness::{Code, Progress, pod_trouble};
use crate::readings::{Wanted, Workload};
use turns::{Health, Limits, Replica, Stage, turns};

/// How long an engine without a readiness probe has to run before the next replica is touched: it is ready as soon as it
/// runs, and a bad one ends soon after.
const PROVING: SignedDuration = SignedDuration::from_secs(10);

/// Annotation on a service: `"true"` while no running replica may take another template. Its prefix is the service's group.
const PAUSED: &str = "rollout-paused";

/// The annotation that pauses rollouts of services of `api_version`.
#[must_use]
pub fn pause_annotation(api_version: &str) -> String {
    format!("{}/{PAUSED}", api_version.split('/').next().unwrap_or_default())
}

/// Whether the service's owner has paused its rollouts.
#[must_use]
pub fn is_paused(service: &Value) -> bool {
    let annotation = pause_annotation(service["apiVersion"].as_str().unwrap_or_default());
    service["metadata"]["annotations"][annotation] == "true"
}

/// How far one role is with its present template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollout {
    /// Replicas wanted.
    pub replicas: usize,
    /// Those that have the present template.
    pub updated: usize,
    /// The most replicas that were ready since the rollout began.
    pub ready_before: usize,
    /// Updated ones that are not ready, and not because there is no room.
    under_way: usize,
    /// Names of the LeaderWorkerSets that may be applied now.
    turns: BTreeSet<String>,
    /// It goes on only when more replicas are ready.
    pub(crate) floor: Option<Floor>,
    /// When a replica will have run for long enough, and nothing else tells.
    pub(crate) due: Option<Timestamp>,
}

/// Why no ready replica is taken down, though none is being updated: too many others have lost their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) ready: usize,
    /// From so many ready ones on the next one is taken down.
    pub(crate) needed: usize,
}

/// Rollouts by the name of their role.
pub type Rollouts = BTreeMap<String, Rollout>;

// === impl Rollout ===

impl Rollout {
    /// Whether some replica still has another template.
    #[must_use]
    pub fn in_progress(&self) -> bool {
        self.updated < self.replicas
    }

    /// As it stands in `status.rollouts`.
    #[must_use]
    pub fn status(&self) -> Value {
        json!({"replicas": self.replicas, "updatedReplicas": self.updated, "readyBefore": self.ready_before})
    }

    fn of(replicas: &[(&Wanted, Replica)], old: &Value, max_unavailable: usize, paused: bool) -> Rollout {
        let count = |test: &dyn Fn(&Replica) -> bool| replicas.iter().filter(|(_, replica)| test(replica)).count();
        let ready = count(&|one| one.health == Health::Ready);
        let before = old["readyBefore"].as_u64().and_then(|before| usize::try_from(before).ok()).unwrap_or(0);
        let mut rollout = Rollout {
            replicas: replicas.len(),
            updated: count(&|one| one.stage == Stage::Current),
            ready_before: ready.max(before).min(replicas.len()),
            under_way: count(&Replica::is_under_way),
            turns: BTreeSet::new(),
            floor: None,
            due: replicas.iter().filter_map(|(_, replica)| replica.due).min(),
        };
        let only: Vec<Replica> = replicas.iter().map(|(_, replica)| *replica).collect();
        let limits = Limits { max_unavailable, ready_before: rollout.ready_before, paused };
        let named = |index: usize| replicas.get(index).map(|(wanted, _)| meta(&wanted.planned, "name").to_owned());
        let next = turns(&only, limits);
        if !paused && rollout.in_progress() && rollout.under_way == 0 && next.iter().all(|at| !outdated(only.get(*at)))
        {
            let needed = (rollout.ready_before + 1).saturating_sub(max_unavailable);
            rollout.floor = Some(Floor { ready, needed });
        }
        rollout.turns = next.into_iter().filter_map(named).collect();
        rollout
    }
}

fn outdated(replica: Option<&Replica>) -> bool {
    replica.is_some_and(|replica| replica.stage == Stage::Outdated)
}

/// The rollouts of every role, by its name: those in progress and those that have nothing to do.
#[must_use]
pub fn rollouts(service: &Value, workloads: &[Wanted], now: Timestamp) -> Rollouts {
    let mut roles: BTreeMap<String, Vec<(&Wanted, Replica)>> = BTreeMap::new();
    for wanted in workloads {
        if let Some(role) = role_of(&wanted.planned) {
            roles.entry(role.to_owned()).or_default().push((wanted, replica(wanted, now)));
        }
    }
    let paused = is_paused(service);
    let rollout = |(role, replicas): (String, Vec<(&Wanted, Replica)>)| {
        let old = &service["status"]["rollouts"][&role];
        let rollout = Rollout::of(&replicas, old, max_unavailable(service, &role), paused);
        (role, rollout)
    };
    roles.into_iter().map(rollout).collect()
}

/// `status.rollouts`: what is going on after what was `before` has had its turns, and nothing where nothing is. A rollout
/// whose last replicas are not ready yet is still told.
#[must_use]
pub fn told(service: &Value, before: &Rollouts, after: Rollouts) -> Rollouts {
    let goes_on = |role: &str| {
        service["status"]["rollouts"][role].is_object() || before.get(role).is_some_and(Rollout::in_progress)
    };
    let told = after.into_iter().filter(|(role, one)| one.in_progress() || (goes_on(role) && one.under_way > 0));
    let with_peak = |(role, one): (String, Rollout)| {
        let peak = before.get(&role).map_or(0, |before| before.ready_before).min(one.replicas);
        (role, Rollout { ready_before: one.ready_before.max(peak), ..one })
    };
    told.map(with_peak).collect()
}

/// The role of which `object` is a replica, if it is a LeaderWorkerSet of one.
fn role_of(object: &Value) -> Option<&str> {
    let is_set = object["kind"] == LEADER_WORKER_SET.kind;
    object["metadata"]["labels"][ROLE_NAME].as_str().filter(|_| is_set)
}

fn max_unavailable(service: &Value, role: &str) -> usize {
    let mut roles = service["spec"]["roles"].as_array().into_iter().flatten();
    let stated = roles.find(|one| one["name"] == role).and_then(|role| role["maxUnavailable"].as_u64());
    stated.and_then(|stated| usize::try_from(stated).ok()).unwrap_or(1).max(1)
}

fn replica(wanted: &Wanted, now: Timestamp) -> Replica {
    let Some(live) = wanted.live.as_ref().filter(|live| !terminating(&live.object)) else {
        return Replica { stage: Stage::Missing, health: Health::Unready, due: None };
    };
    let stage = match spec_already_applied(&live.object, &wanted.planned, MANAGER) {
        true => Stage::Current,
        false => Stage::Outdated,
    };
    let complete = Progress::of(&live.object).complete();
    let due = proven_at(live).filter(|at| complete && stage == Stage::Current && *at > now);
    let waits = |pod: &Value| pod_trouble(pod).is_some_and(|trouble| trouble.code == Code::Unschedulable);
    let bound = |pod: &Value| pod["spec"]["nodeName"].is_string();
    let health = match () {
        () if complete && due.is_none() => Health::Ready,
        () if live.pods().any(waits) && !live.pods().any(bound) => Health::Waiting,
        () => Health::Unready,
    };
    Replica { stage, health, due }
}

/// When a replica of which no container has a readiness probe is believed to work.
fn proven_at(live: &Workload) -> Option<Timestamp> {
    let probed = |pod: &Value| {
        let mut containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        containers.any(|container| container["readinessProbe"].is_object())
    };
    let since = |pod: &Value| -> Option<Timestamp> {
        let ready = cluster::conditions::find(&pod["status"]["conditions"], "Ready")?;
        ready["lastTransitionTime"].as_str()?.parse().ok()
    };
    let latest = live.pods().filter_map(since).max().filter(|_| !live.pods().any(probed))?;
    latest.checked_add(PROVING).ok()
}

/// `objects` with what is to become of each now. A gang's group comes first and is kept for as long as Pods of an earlier
/// template belong to it.
#[must_use]
pub fn scheduled(service: &Value, objects: &[Value], workloads: &[Wanted], rollouts: &Rollouts) -> Vec<Desired> {
    let paused = is_paused(service);
    let mut desired: Vec<Desired> = objects.iter().map(|object| turn(object, workloads, rollouts, paused)).collect();
    let held =
        desired.iter().any(|one| matches!(one, Desired::Later(object) if object["kind"] == LEADER_WORKER_SET.kind));
    if held && !objects.iter().any(|object| object["kind"] == POD_GROUP.kind) {
        let metadata = json!({"namespace": service["metadata"]["namespace"], "name": service["metadata"]["name"]});
        let group = json!({"apiVersion": POD_GROUP.api_version(), "kind": POD_GROUP.kind, "metadata": metadata});
        desired.push(Desired::Later(group));
    }
    desired
}

fn turn(object: &Value, workloads: &[Wanted], rollouts: &Rollouts, paused: bool) -> Desired {
    let own = object.clone();
    let live = || {
        let same = |wanted: &&Wanted| {
            wanted.planned["kind"] == own["kind"] && meta(&wanted.planned, "name") == meta(&own, "name")
        };
        workloads.iter().find(same).and_then(|wanted| wanted.live.as_ref())
    };
    if own["kind"] == POD_GROUP.kind {
        return Desired::First(own);
    }
    if own["kind"] == DEPLOYMENT.kind && paused {
        // A Deployment that is paused still scales.
        let mut held = own;
        held["spec"]["paused"] = json!(true);
        return Desired::Exactly(held);
    }
    if own["kind"] != LEADER_WORKER_SET.kind {
        return Desired::Exactly(own);
    }
    let Some(live) = live() else { return Desired::Exactly(own) };
    let waits = match role_of(&own).and_then(|role| rollouts.get(role)) {
        Some(rollout) => !rollout.turns.contains(meta(&own, "name")) && !joins_gang(&live.object, &own),
        None => paused && !spec_already_applied(&live.object, &own, MANAGER),
    };
    if waits { Desired::Later(own) } else { Desired::Exactly(own) }
}

/// Replicas that become a gang only now start together or not at all: they cannot take turns.
fn joins_gang(live: &Value, planned: &Value) -> bool {
    let group = |set: &Value| {
        let template = &set["spec"]["leaderWorkerTemplate"]["workerTemplate"];
        template["metadata"]["annotations"][GROUP_NAME].is_string()
    };
    group(planned) && !group(live)
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

    /// A replica whose live object was applied with `image` and is ready.
    fn wanted(name: &str, planned: Value, image: &str, gang: bool) -> Wanted {
        let mut live = set(name, image, gang);
        let template = &live["spec"]["leaderWorkerTemplate"]["workerTemplate"];
        let metadata = if gang { json!({"f:annotations": {format!("f:{GROUP_NAME}"): {}}}) } else { json!({}) };
        assert!(template["image"].is_string());
        live["metadata"]["managedFields"] = json!([{"manager": MANAGER, "operation": "Apply",
            "apiVersion": LEADER_WORKER_SET.api_version(), "fieldsV1": {"f:spec": {"f:leaderWorkerTemplate":
                {"f:workerTemplate": {"f:image": {}, "f:metadata": metadata}}}}}]);
        live["status"] = json!({"readyReplicas": 1, "updatedReplicas": 1});
        Wanted::of(planned, Some(live), Vec::new())
    }

    fn service(annotations: Value, rollouts: Value) -> Value {
        json!({"apiVersion": "fusioninfer.io/v1alpha1", "metadata": {"namespace": "n", "name": "s", "annotations": annotations},
            "spec": {"roles": [{"name": "w"}]}, "status": {"rollouts": rollouts}})
    }

    fn fate(desired: &[Desired]) -> Vec<String> {
        let word = |one: &Desired| match one {
            Desired::Exactly(_) => "exactly",
            Desired::First(_) => "first",
            Desired::Later(_) => "later",
        };
        desired.iter().map(|one| format!("{} {}", word(one), meta(one.object(), "name"))).collect()
    }

    fn run(service: &Value, live: &str, live_gang: bool, gang: bool) -> Vec<String> {
        let planned: Vec<Value> = ["s-w-0", "s-w-1"].map(|name| set(name, "new", gang)).to_vec();
        let workloads: Vec<Wanted> =
            planned.iter().map(|one| wanted(meta(one, "name"), one.clone(), live, live_gang)).collect();
        let rollouts = rollouts(service, &workloads, Timestamp::UNIX_EPOCH);
        fate(&scheduled(service, &planned, &workloads, &rollouts))
    }

    #[test]
    fn what_waits_is_left_as_it_is() {
        let service = service(Value::Null, Value::Null);
        assert_eq!(run(&service, "new", true, true), ["exactly s-w-0", "exactly s-w-1"]);
        assert_eq!(
            run(&service, "old", true, true),
            ["exactly s-w-0", "later s-w-1", "later s"],
            "and so is its group"
        );
    }

    // Ready since the beginning of time.
    #[rstest]
    #[case::without_a_probe_it_has_to_run_for_a_while(json!([{}]), 9, Health::Unready, Some(10))]
    #[case::it_has(json!([{}]), 10, Health::Ready, None)]
    #[case::a_probe_knows_better(json!([{}, {"readinessProbe": {}}]), 0, Health::Ready, None)]
    fn an_engine_without_a_probe_has_to_prove_itself(
        #[case] containers: Value,
        #[case] now: i64,
        #[case] health: Health,
        #[case] due: Option<i64>,
    ) {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}, "status": {"conditions":
            [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}});
        let mut wanted = wanted("s-w-0", set("s-w-0", "new", false), "new", false);
        if let Some(live) = &mut wanted.live {
            live.pods = vec![std::sync::Arc::new(pod)];
        }
        let at = |second| Timestamp::from_second(second).unwrap();
        let found = replica(&wanted, at(now));
        assert_eq!((found.stage, found.health, found.due), (Stage::Current, health, due.map(at)));
    }

    /// The updated one has lost its place, and the other is all that answers.
    #[test]
    fn a_rollout_whose_room_is_gone_says_what_it_waits_for() {
        let planned: Vec<Value> = ["s-w-0", "s-w-1"].map(|name| set(name, "new", false)).to_vec();
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{}]}, "status": {"conditions":
            [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}]}});
        let mut workloads =
            [wanted("s-w-0", planned[0].clone(), "new", false), wanted("s-w-1", planned[1].clone(), "old", false)];
        let lost = workloads[0].live.as_mut().unwrap();
        lost.pods = vec![std::sync::Arc::new(pod)];
        std::sync::Arc::make_mut(&mut lost.object)["status"] = json!({"readyReplicas": 0, "updatedReplicas": 1});
        let floor = |annotations: Value| {
            let service = service(annotations, json!({"w": {"readyBefore": 2}}));
            rollouts(&service, &workloads, Timestamp::UNIX_EPOCH)["w"].floor
        };
        assert_eq!(floor(Value::Null), Some(Floor { ready: 1, needed: 2 }));
        assert_eq!(floor(json!({"fusioninfer.io/rollout-paused": "true"})), None, "who pauses knows why");
    }

    #[test]
    fn who_joins_a_gang_does_not_take_turns() {
        let service = service(Value::Null, Value::Null);
        assert_eq!(run(&service, "old", false, true), ["exactly s-w-0", "exactly s-w-1"]);
    }

    #[test]
    fn a_pause_is_an_annotation_of_the_services_group() {
        let service = service(json!({"fusioninfer.io/rollout-paused": "true"}), Value::Null);
        assert_eq!(run(&service, "old", false, false), ["later s-w-0", "later s-w-1", "later s"]);
        let deployment = json!({"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 3}});
        let desired = scheduled(&service, &[deployment], &[], &BTreeMap::new());
        assert_eq!(desired[0].object()["spec"], json!({"replicas": 3, "paused": true}));
    }

    #[test]
    fn what_was_ready_at_most_is_remembered_while_it_lasts() {
        let planned = set("s-w-0", "new", false);
        let old = json!({"w": {"readyBefore": 7}});
        let told_of = |live: &str, rollouts_before: Value| {
            let service = service(Value::Null, rollouts_before);
            let workloads = [wanted("s-w-0", planned.clone(), live, false)];
            told(&service, &BTreeMap::new(), rollouts(&service, &workloads, Timestamp::UNIX_EPOCH))
                .get("w")
                .map(Rollout::status)
        };
        assert_eq!(told_of("old", old.clone()), Some(json!({"replicas": 1, "updatedReplicas": 0, "readyBefore": 1})));
        assert_eq!(told_of("new", old), None);
    }
}
