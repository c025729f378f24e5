//! Reading Node and Pod objects: what a node has, what a Pod holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::units::{extended_resources, text_of, whole_units};

/// Label of a Pod that names the `ome.io` service it belongs to.
pub const SERVICE_LABEL: &str = "ome.io/inferenceservice";

/// One node as accelerator accounting sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeInfo {
    pub name: String,
    pub labels: Arc<BTreeMap<String, String>>,
    /// Ready and not cordoned.
    pub schedulable: bool,
    /// Whole units per resource name.
    pub allocatable: BTreeMap<String, u32>,
    /// Requests of the Pods on it that have not ended.
    pub requested: BTreeMap<String, u32>,
}

impl NodeInfo {
    /// Units that are free to Pods: none on a node that takes no Pods.
    #[must_use]
    pub fn free(&self, resource: &str) -> u32 {
        if !self.schedulable {
            return 0;
        }
        let total = self.allocatable.get(resource).copied().unwrap_or(0);
        total.saturating_sub(self.requested.get(resource).copied().unwrap_or(0))
    }
}

/// Reads nodes and what runs on them. Pods that should not count (the service's own) are left out by the caller.
#[must_use]
pub fn node_infos(nodes: &[Value], pods: &[Value]) -> Vec<NodeInfo> {
    let mut facts: BTreeMap<String, NodeInfo> = BTreeMap::new();
    for node in nodes {
        let fact = node_info(node);
        facts.insert(fact.name.clone(), fact);
    }
    for pod in pods.iter().filter(|pod| !is_pod_terminal(pod)) {
        let Some(node) = pod.pointer("/spec/nodeName").and_then(Value::as_str) else { continue };
        let Some(fact) = facts.get_mut(node) else { continue };
        for (name, units) in pod_requests(pod) {
            let requested = fact.requested.entry(name).or_default();
            *requested = requested.saturating_add(units);
        }
    }
    facts.into_values().collect()
}

/// What accounting needs of a Node; nothing is requested of it yet. Two equal ones are one to every decision.
#[must_use]
pub fn node_info(node: &Value) -> NodeInfo {
    let conditions =
        node.pointer("/status/conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let not_ready = conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] != "True");
    let cordoned = node.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false);
    // A snapshot written by hand often has capacity only.
    let allocatable = node.pointer("/status/allocatable").or_else(|| node.pointer("/status/capacity"));
    NodeInfo {
        name: node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned(),
        labels: Arc::new(labels_of(node)),
        schedulable: !not_ready && !cordoned,
        allocatable: allocatable.map(whole_units).unwrap_or_default(),
        requested: BTreeMap::new(),
    }
}

pub(super) fn labels_of(object: &Value) -> BTreeMap<String, String> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    labels.map(|labels| labels.iter().map(|(key, value)| (key.clone(), text_of(value))).collect()).unwrap_or_default()
}

/// Whether the Pod has run to its end, and so holds nothing any more.
#[must_use]
pub fn is_pod_terminal(pod: &Value) -> bool {
    matches!(pod.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"))
}

/// What a Pod holds: the sum over its containers, or the largest init container if that is more.
pub(super) fn pod_requests(pod: &Value) -> BTreeMap<String, u32> {
    let mut held = BTreeMap::new();
    for (name, units) in containers(pod, "containers").flat_map(container_requests) {
        let sum: &mut u32 = held.entry(name).or_default();
        *sum = sum.saturating_add(units);
    }
    for (name, units) in containers(pod, "initContainers").flat_map(container_requests) {
        let most: &mut u32 = held.entry(name).or_default();
        *most = units.max(*most);
    }
    held
}

fn containers<'a>(pod: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    pod.get("spec").and_then(|spec| spec.get(field)).and_then(Value::as_array).into_iter().flatten()
}

fn container_requests(container: &Value) -> BTreeMap<String, u32> {
    container.get("resources").map(extended_resources).unwrap_or_default()
}
