//! Compares gang scheduling with measurements on a real Volcano scheduler: which Pods are bound for a given PodGroup
//! spec and number of GPUs in the cluster.
//!
//! The workload is a disaggregated multi-node service (seed 002, Story 4): 1 prefill replica of 2 Pods and 2 decode
//! replicas of 4 Pods. Every Pod requests all 8 GPUs of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::object;
use serde_json::{Value, json};

use super::assign::schedule_pending;
use super::decision::Outcome;
use super::{SchedulingSnapshot, gang};

mod outcome_table;
mod parsing;
mod running_services;

const GPUS_PER_NODE: usize = 8;

/// The objects of a simulated cluster. `schedule` runs one scheduling cycle and applies its bindings.
struct SchedulerFixture {
    nodes: Vec<Arc<Value>>,
    pods: Vec<Arc<Value>>,
    groups: Vec<Arc<Value>>,
}

/// How Pods are assigned to Volcano tasks.
#[derive(Clone, Copy)]
enum TaskNaming {
    /// One task per replica: `decode-0`, `decode-1`.
    PerReplica,
    /// One task per role: `decode`.
    PerRole,
}

/// How Pods are assigned to PodGroups.
#[derive(Clone, Copy)]
enum Grouping {
    Single,
    /// `prefill-0` and `decode-0` are in one group, `decode-1` is in another.
    Surplus,
    PerReplica,
}

/// Returns the Pods of one replica of a role.
fn replica(role: &str, index: usize, size: usize, tasks: TaskNaming, group: &str) -> Vec<Value> {
    let task = match tasks {
        TaskNaming::PerReplica => format!("{role}-{index}"),
        TaskNaming::PerRole => role.to_owned(),
    };
    let pod = |pod_index: usize| {
        json!({
            "metadata": {
                "name": format!("{role}-{index}-{pod_index}"), "namespace": "n", "uid": format!("{role}-{index}-{pod_index}"),
                "labels": {"fusioninfer.io/role-name": role, "fusioninfer.io/replica-index": index.to_string()},
                "annotations": {"volcano.sh/task-spec": task, "scheduling.k8s.io/group-name": group},
            },
            "spec": {"schedulerName": "volcano",
                     "containers": [{"resources": {"limits": {"nvidia.com/gpu": GPUS_PER_NODE}}}]},
        })
    };
    (0..size).map(pod).collect()
}

/// Returns the Pods of the workload with `decodes` decode replicas.
fn workload(decodes: usize, tasks: TaskNaming, groups: Grouping) -> Vec<Arc<Value>> {
    let group = |role: &str, index: usize| match (groups, role, index) {
        (Grouping::Single, ..) => "g".to_owned(),
        (Grouping::Surplus, "decode", 1..) => "surplus".to_owned(),
        (Grouping::Surplus, ..) => "first".to_owned(),
        (Grouping::PerReplica, ..) => format!("{role}-{index}"),
    };
    let decodes = (0..decodes).flat_map(|index| replica("decode", index, 4, tasks, &group("decode", index)));
    replica("prefill", 0, 2, tasks, &group("prefill", 0)).into_iter().chain(decodes).map(Arc::new).collect()
}

/// Returns a PodGroup. `created` is the seconds part of its creation timestamp.
fn group(name: &str, created: u32, spec: Value) -> Arc<Value> {
    let created = format!("2026-01-01T00:00:{created:02}Z");
    Arc::new(json!({"metadata": {"name": name, "namespace": "n", "creationTimestamp": created}, "spec": spec}))
}

/// Returns the PodGroup spec `base` with the fields of `more` added.
fn with_fields(base: Value, more: Value) -> Value {
    let mut spec = base;
    object::members(&mut spec).extend(more.as_object().cloned().unwrap_or_default());
    spec
}

fn without_field(mut base: Value, field: &str) -> Value {
    object::members(&mut base).remove(field);
    base
}

/// Encoding A: `minTaskMember` with one task per replica, with 2, 4 and 4 Pods.
fn encoding_a() -> Value {
    json!({"minMember": 10, "minTaskMember": {"prefill-0": 2, "decode-0": 4, "decode-1": 4}})
}

fn policy(role: &str, size: u32) -> Value {
    json!({"name": role, "labelSelector": {"matchLabels": {"fusioninfer.io/role-name": role}},
           "matchLabelKeys": ["fusioninfer.io/replica-index"], "subGroupSize": size, "minSubGroups": 1})
}

/// Encoding C (`gangPolicy: MinimumAvailable`): a `subGroupPolicy` entry per role.
fn encoding_c() -> Value {
    json!({"minMember": 6, "subGroupPolicy": [policy("prefill", 2), policy("decode", 4)]})
}

/// Returns a `minResources` field that requires `gpus` GPUs.
fn min_resources(gpus: usize) -> Value {
    json!({"minResources": {"nvidia.com/gpu": gpus.to_string()}})
}

// === impl SchedulerFixture ===

impl SchedulerFixture {
    fn snapshot(&self) -> SchedulingSnapshot {
        let (pods, nodes, groups) = (self.pods.clone(), self.nodes.clone(), self.groups.clone());
        SchedulingSnapshot { pods, nodes, groups, ..Default::default() }
    }

    fn new(gpus: usize, pods: Vec<Arc<Value>>, groups: Vec<Arc<Value>>) -> Self {
        let mut cluster = Self { nodes: Vec::new(), pods, groups };
        cluster.grow_to(gpus);
        cluster
    }

    /// Adds nodes until the cluster has `gpus` GPUs.
    fn grow_to(&mut self, gpus: usize) {
        for index in self.nodes.len()..gpus / GPUS_PER_NODE {
            self.nodes.push(Arc::new(json!({
                "metadata": {"name": format!("node-{index:02}")},
                "status": {"allocatable": {"nvidia.com/gpu": GPUS_PER_NODE.to_string()}},
            })));
        }
    }

    fn schedule(&mut self) {
        for decision in schedule_pending(&self.snapshot(), &BTreeSet::new()).decisions {
            let Outcome::Bind { node } = decision.outcome else { continue };
            let pod = self.pods.iter_mut().find(|pod| object::uid(pod) == object::uid(&decision.pod)).unwrap();
            let mut bound = Value::clone(pod);
            bound["spec"]["nodeName"] = json!(node);
            *pod = Arc::new(bound);
        }
    }

    /// Removes a Pod and the node that it is bound to. Returns the Pod.
    fn remove_node_of(&mut self, pod: &str) -> Arc<Value> {
        let index = self.pods.iter().position(|candidate| object::name(candidate) == pod).unwrap();
        let removed = self.pods.remove(index);
        self.nodes.retain(|node| object::name(node) != object::text(&removed, "/spec/nodeName"));
        removed
    }

    /// Replaces the Pods whose names start with `replica` by unbound ones.
    fn recreate_pods(&mut self, replica: &str) {
        for pod in &mut self.pods {
            if object::name(pod).starts_with(replica) {
                let mut recreated = Value::clone(pod);
                object::members(&mut recreated["spec"]).remove("nodeName");
                *pod = Arc::new(recreated);
            }
        }
    }

    fn add_pods(&mut self, pods: Vec<Value>) {
        self.pods.extend(pods.into_iter().map(Arc::new));
    }

    fn set_group_spec(&mut self, spec: Value) {
        self.groups = vec![group("g", 0, spec)];
    }

    /// Returns the number of bound Pods of each replica, for example `decode-0:4 prefill-0:2`.
    fn bound_counts(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| !object::text(pod, "/spec/nodeName").is_empty()) {
            let name = object::name(pod);
            *counts.entry(name.rsplit_once('-').map_or(name, |(replica, _)| replica)).or_default() += 1;
        }
        counts.iter().map(|(replica, count)| format!("{replica}:{count}")).collect::<Vec<_>>().join(" ")
    }
}

const ALL_BOUND: &str = "decode-0:4 decode-1:4 prefill-0:2";
const PREFILL_DECODE_0: &str = "decode-0:4 prefill-0:2";
const PREFILL_DECODE_1: &str = "decode-1:4 prefill-0:2";
const ROUND_ROBIN_8: &str = "decode-0:3 decode-1:3 prefill-0:2";
const ROUND_ROBIN_6: &str = "decode-0:2 decode-1:2 prefill-0:2";

fn scheduled_cluster(gpus: usize, spec: Value) -> SchedulerFixture {
    let mut cluster =
        SchedulerFixture::new(gpus, workload(2, TaskNaming::PerReplica, Grouping::Single), vec![group("g", 0, spec)]);
    cluster.schedule();
    cluster
}

fn unbound(mut pod: Value) -> Value {
    object::members(&mut pod["spec"]).remove("nodeName");
    pod
}
