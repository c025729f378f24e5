//! Every row that was measured on a live Volcano: which Pods a gang's encoding binds for how many GPUs.
//!
//! Story 4 of the role-based service: prefill 1 replica × 2 Pods, decode 2 × 4 Pods, every Pod a whole node of 8 GPUs.

use std::collections::BTreeMap;
use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};

use super::{Outcome, assign, gang};
use crate::object;

const GPUS_PER_NODE: usize = 8;

/// Objects of one cluster; a turn binds what the scheduler says.
struct World {
    nodes: Vec<Arc<Value>>,
    pods: Vec<Arc<Value>>,
    groups: Vec<Arc<Value>>,
}

/// Names the tasks of the Pods.
#[derive(Clone, Copy)]
enum Tasks {
    /// `decode-0`
    PerReplica,
    /// `decode`
    PerRole,
}

/// Who belongs to which PodGroup.
#[derive(Clone, Copy)]
enum Groups {
    One,
    /// P and D0 together, D1 alone.
    Surplus,
    PerReplica,
}

fn replica(role: &str, index: usize, size: usize, tasks: Tasks, group: &str) -> Vec<Value> {
    let task = match tasks {
        Tasks::PerReplica => format!("{role}-{index}"),
        Tasks::PerRole => role.to_owned(),
    };
    let pod = |at: usize| {
        json!({
            "metadata": {
                "name": format!("{role}-{index}-{at}"), "namespace": "n", "uid": format!("{role}-{index}-{at}"),
                "labels": {"fusioninfer.io/role-name": role, "fusioninfer.io/replica-index": index.to_string()},
                "annotations": {"volcano.sh/task-spec": task, "scheduling.k8s.io/group-name": group},
            },
            "spec": {"schedulerName": "volcano",
                     "containers": [{"resources": {"limits": {"nvidia.com/gpu": GPUS_PER_NODE}}}]},
        })
    };
    (0..size).map(pod).collect()
}

fn story(decodes: usize, tasks: Tasks, groups: Groups) -> Vec<Arc<Value>> {
    let group = |role: &str, index: usize| match (groups, role, index) {
        (Groups::One, ..) => "g".to_owned(),
        (Groups::Surplus, "decode", 1..) => "surplus".to_owned(),
        (Groups::Surplus, ..) => "first".to_owned(),
        (Groups::PerReplica, ..) => format!("{role}-{index}"),
    };
    let decodes = (0..decodes).flat_map(|index| replica("decode", index, 4, tasks, &group("decode", index)));
    replica("prefill", 0, 2, tasks, &group("prefill", 0)).into_iter().chain(decodes).map(Arc::new).collect()
}

fn group(name: &str, created: u32, spec: Value) -> Arc<Value> {
    let created = format!("2026-01-01T00:00:{created:02}Z");
    Arc::new(json!({"metadata": {"name": name, "namespace": "n", "creationTimestamp": created}, "spec": spec}))
}

/// A group's spec from a base and more fields.
fn with(base: Value, more: Value) -> Value {
    let mut spec = base;
    object::members(&mut spec).extend(more.as_object().cloned().unwrap_or_default());
    spec
}

fn without(mut base: Value, field: &str) -> Value {
    object::members(&mut base).remove(field);
    base
}

/// The specification's own encoding: keys 2/4/4.
fn a() -> Value {
    json!({"minMember": 10, "minTaskMember": {"prefill-0": 2, "decode-0": 4, "decode-1": 4}})
}

fn policy(role: &str, size: u32) -> Value {
    json!({"name": role, "labelSelector": {"matchLabels": {"fusioninfer.io/role-name": role}},
           "matchLabelKeys": ["fusioninfer.io/replica-index"], "subGroupSize": size, "minSubGroups": 1})
}

/// A policy per role: `MinimumAvailable`.
fn c() -> Value {
    json!({"minMember": 6, "subGroupPolicy": [policy("prefill", 2), policy("decode", 4)]})
}

fn resources(gpus: usize) -> Value {
    json!({"minResources": {"nvidia.com/gpu": gpus.to_string()}})
}

// === impl World ===

impl World {
    fn new(gpus: usize, pods: Vec<Arc<Value>>, groups: Vec<Arc<Value>>) -> Self {
        let mut world = Self { nodes: Vec::new(), pods, groups };
        world.grow(gpus);
        world
    }

    /// Nodes for so many GPUs in all.
    fn grow(&mut self, gpus: usize) {
        for at in self.nodes.len()..gpus / GPUS_PER_NODE {
            self.nodes.push(Arc::new(json!({
                "metadata": {"name": format!("node-{at:02}")},
                "status": {"allocatable": {"nvidia.com/gpu": GPUS_PER_NODE.to_string()}},
            })));
        }
    }

    fn turn(&mut self) {
        for verdict in assign(&self.pods, &self.nodes, &self.groups) {
            let Outcome::Bind { node } = verdict.outcome else { continue };
            let pod = self.pods.iter_mut().find(|pod| object::uid(pod) == object::uid(&verdict.pod)).unwrap();
            let mut bound = Value::clone(pod);
            bound["spec"]["nodeName"] = json!(node);
            *pod = Arc::new(bound);
        }
    }

    /// A node goes with the Pod on it.
    fn lose(&mut self, pod: &str) -> Arc<Value> {
        let at = self.pods.iter().position(|it| object::name(it) == pod).unwrap();
        let gone = self.pods.remove(at);
        self.nodes.retain(|node| object::name(node) != object::text(&gone, "/spec/nodeName"));
        gone
    }

    /// The Pods of a replica are made anew.
    fn recreate(&mut self, replica: &str) {
        for pod in &mut self.pods {
            if object::name(pod).starts_with(replica) {
                let mut fresh = Value::clone(pod);
                object::members(&mut fresh["spec"]).remove("nodeName");
                *pod = Arc::new(fresh);
            }
        }
    }

    fn add(&mut self, pods: Vec<Value>) {
        self.pods.extend(pods.into_iter().map(Arc::new));
    }

    fn set(&mut self, spec: Value) {
        self.groups = vec![group("g", 0, spec)];
    }

    /// Bound Pods of each replica: `P2 D4+4`; broken replicas of one role in no order, as it is left to chance which
    /// of them is first.
    fn bound(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| !object::text(pod, "/spec/nodeName").is_empty()) {
            let name = object::name(pod);
            *counts.entry(name.rsplit_once('-').map_or(name, |(replica, _)| replica)).or_default() += 1;
        }
        counts.iter().map(|(replica, count)| format!("{replica}:{count}")).collect::<Vec<_>>().join(" ")
    }
}

const ALL: &str = "decode-0:4 decode-1:4 prefill-0:2";
const P_D0: &str = "decode-0:4 prefill-0:2";
const P_D1: &str = "decode-1:4 prefill-0:2";
const ROUND_8: &str = "decode-0:3 decode-1:3 prefill-0:2";
const ROUND_6: &str = "decode-0:2 decode-1:2 prefill-0:2";
/// Measured ½P 1+2; which of the two decode replicas is first is chance.
const ROUND_4: &str = "decode-0:2 decode-1:1 prefill-0:1";
const ROUND_2: &str = "decode-0:1 decode-1:1";

/// The outcome table; columns are 80, 64, 48, 32 and 16 GPUs.
#[rstest]
#[case::a(a(), Tasks::PerReplica, [ALL, "", "", "", ""])]
#[case::a_6(with(a(), json!({"minMember": 6})), Tasks::PerReplica, [ALL, ROUND_8, ROUND_6, "", ""])]
#[case::a_without(without(a(), "minMember"), Tasks::PerReplica, [ALL, ROUND_8, ROUND_6, ROUND_4, ROUND_2])]
// 64 is – or P D0 0+2, by the order of creation.
#[case::b(json!({"minMember": 6, "minTaskMember": {"prefill-0": 2, "decode-0": 4}}), Tasks::PerReplica, [ALL, "", "", "", ""])]
#[case::b_by_role(json!({"minMember": 6, "minTaskMember": {"prefill": 2, "decode": 4}}), Tasks::PerRole, [ALL, ROUND_8, ROUND_6, "", ""])]
// spec: TOP-60
// spec: TOP-61
// spec: TOP-62
// spec: TOP-63
// spec: TOP-64
#[case::c(c(), Tasks::PerReplica, [ALL, P_D0, P_D0, "", ""])]
#[case::c_and_keys_of_a(with(c(), json!({"minTaskMember": a()["minTaskMember"]})), Tasks::PerReplica, [ALL, P_D0, P_D0, "", ""])]
#[case::c_10(with(c(), json!({"minMember": 10})), Tasks::PerReplica, [ALL, "", "", "", ""])]
#[case::c_without(without(c(), "minMember"), Tasks::PerReplica, [ALL, P_D0, P_D0, "", ""])]
#[case::c_no_label_keys(
    json!({"minMember": 6, "subGroupPolicy": [without(policy("prefill", 2), "matchLabelKeys"), without(policy("decode", 4), "matchLabelKeys")]}),
    Tasks::PerReplica, ["", "", "", "", ""]
)]
#[case::c_resources_of_the_minimum(with(c(), resources(48)), Tasks::PerReplica, [ALL, P_D0, P_D0, "", ""])]
#[case::c_resources_of_the_total(with(c(), resources(80)), Tasks::PerReplica, [ALL, "", "", "", ""])]
fn one_group(#[case] spec: Value, #[case] tasks: Tasks, #[case] expect: [&str; 5]) {
    let outcome = |gpus: usize| {
        let mut world = World::new(gpus, story(2, tasks, Groups::One), vec![group("g", 0, spec.clone())]);
        world.turn();
        world.turn();
        world.bound()
    };
    assert_eq!([80, 64, 48, 32, 16].map(outcome), expect.map(str::to_owned));
}

/// Several groups; `first` is the second at which P+D0's group was made, D1's at 5.
#[rstest]
#[case::d(Groups::Surplus, 5, [ALL, P_D0, P_D0, "decode-1:4", ""])]
#[case::d_surplus_first(Groups::Surplus, 9, [ALL, "decode-1:4", "decode-1:4", "decode-1:4", ""])]
#[case::e(Groups::PerReplica, 5, [ALL, "decode-0:4 decode-1:4", P_D0, "decode-0:4", "prefill-0:2"])]
fn several_groups(#[case] split: Groups, #[case] first: u32, #[case] expect: [&str; 5]) {
    let minimum = |name: &str, made: u32, members: u32| group(name, made, json!({"minMember": members}));
    let groups = match split {
        Groups::PerReplica => vec![minimum("prefill-0", 5, 2), minimum("decode-0", 5, 4), minimum("decode-1", 5, 4)],
        _ => vec![minimum("first", first, 6), minimum("surplus", 5, 4)],
    };
    let outcome = |gpus: usize| {
        let mut world = World::new(gpus, story(2, Tasks::PerReplica, split), groups.clone());
        world.turn();
        world.bound()
    };
    assert_eq!([80, 64, 48, 32, 16].map(outcome), expect.map(str::to_owned));
}

#[test]
fn a_surplus_group_that_is_made_once_the_first_runs_follows_the_table() {
    let outcome = |gpus: usize| {
        let first = group("first", 0, json!({"minMember": 6}));
        let mut world = World::new(gpus, story(1, Tasks::PerReplica, Groups::Surplus), vec![first]);
        world.turn();
        if !world.bound().is_empty() {
            world.groups.push(group("surplus", 9, json!({"minMember": 4})));
            world.add(replica("decode", 1, 4, Tasks::PerReplica, "surplus"));
            world.turn();
        }
        world.bound()
    };
    assert_eq!([80, 64, 48, 32, 16].map(outcome), [ALL, P_D0, P_D0, "", ""].map(str::to_owned));
}

/// GPUs added later: 32, 48, 64, 80.
#[rstest]
#[case::a(vec![group("g", 0, a())], Groups::One, ["", "", "", ALL])]
#[case::c(vec![group("g", 0, c())], Groups::One, ["", P_D0, P_D0, ALL])]
#[case::d(
    vec![group("first", 0, json!({"minMember": 6})), group("surplus", 0, json!({"minMember": 4}))], Groups::Surplus,
    ["decode-1:4", "decode-1:4", "decode-1:4", ALL]
)]
fn growing(#[case] groups: Vec<Arc<Value>>, #[case] split: Groups, #[case] expect: [&str; 4]) {
    let mut world = World::new(0, story(2, Tasks::PerReplica, split), groups);
    let outcome = |gpus: usize| {
        world.grow(gpus);
        world.turn();
        world.bound()
    };
    assert_eq!([32, 48, 64, 80].map(outcome), expect.map(str::to_owned));
}

fn running(gpus: usize, spec: Value) -> World {
    let mut world = World::new(gpus, story(2, Tasks::PerReplica, Groups::One), vec![group("g", 0, spec)]);
    world.turn();
    world
}

#[test]
fn a_third_replica_waits_whole_with_the_group_unchanged() {
    let mut world = running(104, c());
    assert_eq!(world.bound(), ALL);
    world.add(replica("decode", 2, 4, Tasks::PerReplica, "g"));
    world.turn();
    assert_eq!(world.bound(), ALL, "three nodes are free, it needs four");
    world.grow(112);
    world.turn();
    assert_eq!(world.bound(), "decode-0:4 decode-1:4 decode-2:4 prefill-0:2");
}

#[test]
fn a_replaced_pod_of_a_running_service_is_bound_again() {
    let mut world = running(80, c());
    world.recreate("decode-0-3");
    assert_eq!(world.bound(), "decode-0:3 decode-1:4 prefill-0:2");
    world.turn();
    assert_eq!(world.bound(), ALL);
}

#[test]
fn after_a_node_loss_that_replica_waits_whole_and_the_others_and_a_restarted_prefill_go_on() {
    let mut world = running(80, c());
    let lost = Value::clone(&world.lose("decode-0-2"));
    // The set makes the whole group anew.
    world.add(vec![without_node(lost)]);
    world.recreate("decode-0-");
    world.turn();
    assert_eq!(world.bound(), P_D1);
    world.recreate("prefill-0-");
    world.turn();
    assert_eq!(world.bound(), P_D1);
    world.grow(88);
    world.turn();
    assert_eq!(world.bound(), ALL);
}

#[test]
fn under_a_a_restarted_prefill_never_returns_after_a_node_loss() {
    let mut world = running(80, a());
    world.lose("decode-0-2");
    world.recreate("prefill-0-");
    world.turn();
    assert_eq!(world.bound(), "decode-0:3 decode-1:4");
}

#[test]
fn under_a_scaling_up_keeps_a_replaced_pod_from_its_free_gpus() {
    let mut world = running(80, a());
    let keys = json!({"prefill-0": 2, "decode-0": 4, "decode-1": 4, "decode-2": 4});
    world.set(json!({"minMember": 14, "minTaskMember": keys}));
    world.add(replica("decode", 2, 4, Tasks::PerReplica, "g"));
    world.recreate("decode-0-3");
    world.turn();
    assert_eq!(world.bound(), "decode-0:3 decode-1:4 prefill-0:2");
}

#[test]
fn a_replica_that_fits_nowhere_does_not_block_the_others() {
    let mut world = World::new(80, story(2, Tasks::PerReplica, Groups::One), vec![group("g", 0, c())]);
    for pod in world.pods.iter_mut().filter(|pod| object::name(pod).starts_with("decode-0-")) {
        let mut picky = Value::clone(pod);
        picky["spec"]["nodeSelector"] = json!({"no": "where"});
        *pod = Arc::new(picky);
    }
    world.turn();
    assert_eq!(world.bound(), P_D1);
}

#[test]
fn of_two_services_one_runs_and_the_other_holds_nothing() {
    let mut world = World::new(64, story(1, Tasks::PerReplica, Groups::One), vec![group("g", 0, c())]);
    let second = story(1, Tasks::PerReplica, Groups::One).into_iter().map(|pod| {
        let mut pod = Value::clone(&pod);
        pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = json!("second");
        let name = format!("second-{}", object::name(&pod));
        (pod["metadata"]["name"], pod["metadata"]["uid"]) = (json!(name), json!(name));
        pod
    });
    world.add(second.collect());
    world.groups.push(group("second", 1, c()));
    world.turn();
    assert_eq!(world.bound(), P_D0);
}

#[test]
fn a_replica_lacking_a_pod_is_not_bound() {
    let mut world = World::new(80, story(2, Tasks::PerReplica, Groups::One), vec![group("g", 0, c())]);
    world.pods.retain(|pod| object::name(pod) != "decode-0-3");
    world.turn();
    assert_eq!(world.bound(), P_D1);
}

/// Pods may exist before their group, which is read from one annotation only.
#[rstest]
#[case::no_group_yet("scheduling.k8s.io/group-name", "g is not there", "")]
#[case::another_annotation("scheduling.volcano.sh/group-name", "each Pod is a group of its own", "prefill-0:1")]
fn the_group_of_a_pod(#[case] annotation: &str, #[case] why: &str, #[case] expect: &str) {
    let mut pods = replica("prefill", 0, 2, Tasks::PerReplica, "g");
    for pod in &mut pods {
        pod["metadata"]["annotations"] = json!({annotation: "g"});
    }
    let mut world = World::new(8, pods.into_iter().map(Arc::new).collect(), Vec::new());
    world.turn();
    assert_eq!(world.bound(), expect, "{why}");
    world.grow(16);
    world.groups = vec![group("g", 0, json!({"minMember": 2}))];
    world.turn();
    assert_eq!(world.bound(), "prefill-0:2");
}

#[test]
fn the_task_is_read_from_the_annotation_else_from_the_label() {
    let mut pods = replica("prefill", 0, 2, Tasks::PerRole, "g");
    object::members(&mut pods[1]["metadata"]["annotations"]).remove("volcano.sh/task-spec");
    pods[1]["metadata"]["labels"]["volcano.sh/task-spec"] = json!("prefill");
    let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
    let spec = |task: &str| json!({"minMember": 2, "minTaskMember": {task: 2}});
    let mut world = World::new(16, pods.clone(), vec![group("g", 0, spec("prefill"))]);
    world.turn();
    assert_eq!(world.bound(), "prefill-0:2");
    // A key that no Pod carries blocks the group for ever.
    let mut blocked = World::new(16, pods, vec![group("g", 0, spec("nobody"))]);
    blocked.turn();
    assert_eq!(blocked.bound(), "");
}

#[test]
fn a_role_scaled_to_none_must_lose_its_policy() {
    let pods: Vec<_> = replica("prefill", 0, 2, Tasks::PerReplica, "g").into_iter().map(Arc::new).collect();
    let two = |policies: Value| json!({"minMember": 2, "subGroupPolicy": policies});
    let both = two(json!([policy("prefill", 2), policy("decode", 4)]));
    let mut world = World::new(80, pods, vec![group("g", 0, both)]);
    world.turn();
    assert_eq!(world.bound(), "");
    world.set(two(json!([policy("prefill", 2)])));
    world.turn();
    assert_eq!(world.bound(), "prefill-0:2");
}

#[test]
fn a_changed_spec_counts_from_the_next_turn() {
    let mut world = running(48, a());
    assert_eq!(world.bound(), "");
    world.set(c());
    world.turn();
    assert_eq!(world.bound(), P_D0);
}

#[rstest]
#[case::nobody(c(), 0..0, "Inqueue")]
#[case::only_one_role(c(), 0..2, "Inqueue")]
#[case::a_replica_lacks_a_pod(c(), 0..5, "Inqueue")]
#[case::with_resources(with(c(), resources(48)), 0..5, "Pending")]
#[case::the_minimum(c(), 0..6, "Running")]
#[case::more(c(), 0..10, "Running")]
#[case::no_minimum(without(c(), "minMember"), 0..0, "Completed")]
fn the_phase_follows_what_is_bound(#[case] spec: Value, #[case] bound: std::ops::Range<usize>, #[case] expect: &str) {
    let pods = story(2, Tasks::PerReplica, Groups::One);
    assert_eq!(gang::phase(&json!({"spec": spec}), &pods[bound]), expect);
}

#[test]
fn a_group_that_does_not_exist_is_named() {
    let verdicts = gang::assign("g", None, &story(1, Tasks::PerReplica, Groups::One), &[], &mut Vec::new());
    let Outcome::Wait { message, .. } = &verdicts[0].outcome else { panic!() };
    assert_eq!(message, "pod group g is not found");
}

fn without_node(mut pod: Value) -> Value {
    object::members(&mut pod["spec"]).remove("nodeName");
    pod
}
