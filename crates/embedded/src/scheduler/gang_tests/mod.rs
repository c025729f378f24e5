//! Every row that was measured on a live Volcano: which Pods a gang's encoding binds for how many GPUs.
//!
//! Story 4 of the role-based service: prefill 1 replica × 2 Pods, decode 2 × 4 Pods, every Pod a whole node of 8 GPUs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::assign::assign;
use super::{Outcome, World as Seen, gang};
use crate::object;

mod later;
mod reading;
mod table;

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
    fn seen(&self) -> Seen {
        let (pods, nodes, groups) = (self.pods.clone(), self.nodes.clone(), self.groups.clone());
        Seen { pods, nodes, groups, ..Default::default() }
    }

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
        for verdict in assign(&self.seen()) {
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

fn running(gpus: usize, spec: Value) -> World {
    let mut world = World::new(gpus, story(2, Tasks::PerReplica, Groups::One), vec![group("g", 0, spec)]);
    world.turn();
    world
}

fn without_node(mut pod: Value) -> Value {
    object::members(&mut pod["spec"]).remove("nodeName");
    pod
}
