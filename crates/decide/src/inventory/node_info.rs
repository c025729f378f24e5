//! Reads the accelerator resources of Node and Pod objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::compute_request::{NodeCompute, is_sidecar};
use crate::taint::Taint;
use crate::units::{CPU, MEMORY, compute_units, extended_resources, value_text, whole_units};

/// Label of a Pod with the name of its `ome.io` service.
pub const SERVICE_LABEL: &str = "ome.io/inferenceservice";

/// A node with its allocatable and requested extended resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeInfo {
    /// Name of the node.
    pub name: String,
    /// Labels of the node.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Whether the node is cordoned.
    pub cordoned: bool,
    /// Whether the condition `Ready` of the node is not true.
    pub not_ready: bool,
    /// Taints that keep Pods without a matching toleration off the node.
    pub taints: Arc<[Taint]>,
    /// Allocatable units per extended resource; CPU in thousandths, memory in MiB.
    pub allocatable: BTreeMap<String, u32>,
    /// Units that non-terminal Pods on the node request, by resource.
    pub requested: BTreeMap<String, u32>,
    /// Units that Pods of the service request for which a decision is made. They are not part of `requested`.
    pub requested_by_service: BTreeMap<String, u32>,
}

impl NodeInfo {
    /// Returns the units of `resource` that no Pod requests; 0 on an unschedulable node.
    #[must_use]
    pub fn free(&self, resource: &str) -> u32 {
        if self.cordoned || self.not_ready { 0 } else { self.unrequested(resource) }
    }

    /// Returns the allocatable units of `resource` that no Pod requests, also on an unschedulable node.
    pub(super) fn unrequested(&self, resource: &str) -> u32 {
        let total = self.allocatable.get(resource).copied().unwrap_or(0);
        total.saturating_sub(self.requested.get(resource).copied().unwrap_or(0))
    }

    /// Returns the CPU and memory of the node.
    pub(super) fn compute(&self) -> NodeCompute {
        let amount = |resource: &str| self.allocatable.get(resource).copied();
        NodeCompute { millicpu: amount(CPU), mebibytes: amount(MEMORY) }
    }

    /// Returns the CPU and memory that no Pod requests.
    pub(super) fn unrequested_compute(&self) -> NodeCompute {
        let amount = |resource: &str| self.allocatable.contains_key(resource).then(|| self.unrequested(resource));
        NodeCompute { millicpu: amount(CPU), mebibytes: amount(MEMORY) }
    }
}

/// Reads nodes with the requests of `pods`. The caller excludes Pods that must not be counted.
#[must_use]
pub fn node_infos(nodes: &[Value], pods: &[Value]) -> Vec<NodeInfo> {
    let mut infos: BTreeMap<String, NodeInfo> = BTreeMap::new();
    for node in nodes {
        let info = node_info(node);
        infos.insert(info.name.clone(), info);
    }
    for pod in pods.iter().filter(|pod| !is_pod_terminal(pod)) {
        let Some(node) = pod.pointer("/spec/nodeName").and_then(Value::as_str) else { continue };
        let Some(info) = infos.get_mut(node) else { continue };
        for (name, units) in pod_requests(pod) {
            let requested = info.requested.entry(name).or_default();
            *requested = requested.saturating_add(units);
        }
    }
    infos.into_values().collect()
}

/// Returns copies of `nodes` without the requests of `pods`, as if these Pods had stopped.
#[must_use]
pub fn nodes_without_pods<'a>(nodes: impl IntoIterator<Item = &'a NodeInfo>, pods: &[&Value]) -> Vec<NodeInfo> {
    let mut nodes: Vec<NodeInfo> = nodes.into_iter().cloned().collect();
    for pod in pods {
        let Some(node) = nodes.iter_mut().find(|node| pod["spec"]["nodeName"] == node.name.as_str()) else { continue };
        for (name, units) in pod_requests(pod) {
            node.requested.entry(name).and_modify(|requested| *requested = requested.saturating_sub(units));
        }
    }
    nodes
}

/// Reads a node without the requests of its Pods. Nodes with equal results are interchangeable for decisions.
#[must_use]
pub fn node_info(node: &Value) -> NodeInfo {
    let conditions =
        node.pointer("/status/conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let not_ready = conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] != "True");
    let cordoned = node.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false);
    // Manually written Node manifests often omit `allocatable`.
    let allocatable = node.pointer("/status/allocatable").or_else(|| node.pointer("/status/capacity"));
    NodeInfo {
        name: node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned(),
        labels: Arc::new(labels_of(node)),
        cordoned,
        not_ready,
        taints: Taint::of_node(node).into(),
        allocatable: allocatable.map(allocatable_units).unwrap_or_default(),
        requested: BTreeMap::new(),
        requested_by_service: BTreeMap::new(),
    }
}

/// Returns extended resources, CPU and memory of a node.
fn allocatable_units(quantities: &Value) -> BTreeMap<String, u32> {
    let mut units = whole_units(quantities);
    units.extend([CPU, MEMORY].iter().filter_map(|name| Some(((*name).to_owned(), compute_units(quantities, name)?))));
    units
}

pub(super) fn labels_of(object: &Value) -> BTreeMap<String, String> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    labels
        .map(|labels| labels.iter().map(|(key, value)| (key.clone(), value_text(value))).collect())
        .unwrap_or_default()
}

/// Whether the Pod has terminated, so that it uses no resources.
#[must_use]
pub fn is_pod_terminal(pod: &Value) -> bool {
    matches!(pod.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"))
}

/// Returns the requests of a Pod by resource: the sum over its containers, or the largest request of an init container if that
/// is greater.
pub(super) fn pod_requests(pod: &Value) -> BTreeMap<String, u32> {
    let mut requests = BTreeMap::new();
    let sidecars = containers(pod, "initContainers").filter(|container| is_sidecar(container));
    for (name, units) in containers(pod, "containers").chain(sidecars).flat_map(container_requests) {
        let sum: &mut u32 = requests.entry(name).or_default();
        *sum = sum.saturating_add(units);
    }
    let init_containers = containers(pod, "initContainers").filter(|container| !is_sidecar(container));
    for (name, units) in init_containers.flat_map(container_requests) {
        let max: &mut u32 = requests.entry(name).or_default();
        *max = units.max(*max);
    }
    requests
}

fn containers<'a>(pod: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    pod.get("spec").and_then(|spec| spec.get(field)).and_then(Value::as_array).into_iter().flatten()
}

fn container_requests(container: &Value) -> BTreeMap<String, u32> {
    let Some(resources) = container.get("resources") else { return BTreeMap::new() };
    let mut requests = extended_resources(resources);
    for name in [CPU, MEMORY] {
        let amount = compute_units(&resources["requests"], name).or_else(|| compute_units(&resources["limits"], name));
        requests.extend(amount.map(|amount| (name.to_owned(), amount)));
    }
    requests
}
