//! Nodes and their Pods: those already bound and those that the current scheduling cycle has placed on the node.

use std::sync::Arc;

use apimachinery::{Quantity, ResourceList, add_resources, catch_panic, object, parse_resource_list};
use serde_json::Value;

use super::decision::SchedulingFailure;
use super::pod_info::is_bound;

/// A node, its Pods and the sum of their requests (`framework.NodeInfo`).
#[derive(Debug, Clone)]
pub(crate) struct NodeInfo {
    pub(crate) node: Arc<Value>,
    pub(crate) requested: ResourceList,
    /// CPU and memory requests for scoring, with default requests for containers that specify none
    /// (`NonZeroRequested`).
    pub(crate) non_zero_requested: CpuMemory,
    pub(crate) pods: Vec<Arc<Value>>,
    /// The Pods that specify Pod affinity or anti-affinity.
    pub(crate) pods_with_affinity: Vec<Arc<Value>>,
}

/// CPU in cores and memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CpuMemory {
    pub(crate) cpu: f64,
    pub(crate) memory: f64,
}

/// Returns the nodes with their bound Pods, sorted by node name. Nodes that are being deleted are omitted, and nodes
/// whose free resources are unknown because one of their Pods causes a panic.
pub(super) fn node_infos(pods: &[Arc<Value>], nodes: &[Arc<Value>]) -> (Vec<NodeInfo>, Vec<SchedulingFailure>) {
    add_bound_pods(pods, nodes, NodeInfo::add_pod)
}

fn add_bound_pods(
    pods: &[Arc<Value>],
    nodes: &[Arc<Value>],
    add_pod: impl Fn(&mut NodeInfo, &Arc<Value>),
) -> (Vec<NodeInfo>, Vec<SchedulingFailure>) {
    let active = nodes.iter().filter(|node| !object::is_deleting(node));
    let mut nodes: Vec<NodeInfo> = active.map(|node| NodeInfo::new(Arc::clone(node))).collect();
    nodes.sort_by(|a, b| a.name().cmp(b.name()));
    let mut failures = Vec::new();
    for pod in pods.iter().filter(|pod| is_bound(pod)) {
        let Some(node_info) = find_node(&mut nodes, object::text(pod, "/spec/nodeName")) else { continue };
        if let Err(panic) = catch_panic(|| add_pod(node_info, pod)) {
            failures.push(SchedulingFailure { pods: vec![Arc::clone(pod)], panic });
        }
    }
    let has_failed = |node: &NodeInfo| {
        let mut pods = failures.iter().flat_map(|failure| &failure.pods);
        pods.any(|pod| object::text(pod, "/spec/nodeName") == node.name())
    };
    nodes.retain(|node| !has_failed(node));
    (nodes, failures)
}

/// Returns the node with this name; `nodes` must be sorted by name.
pub(super) fn find_node<'a>(nodes: &'a mut [NodeInfo], name: &str) -> Option<&'a mut NodeInfo> {
    let index = nodes.binary_search_by(|node_info| node_info.name().cmp(name)).ok()?;
    nodes.get_mut(index)
}

/// Returns the allocatable resources of a node. If the node does not report `pods`, the limit is 110, the default of
/// the kubelet.
pub(crate) fn allocatable(node: &Value) -> ResourceList {
    let status = node.get("status").unwrap_or(&Value::Null);
    let mut resources = parse_resource_list(status.get("allocatable").or_else(|| status.get("capacity")));
    resources.entry("pods".to_owned()).or_insert_with(|| Quantity::from_units(110));
    resources
}

/// Returns the resource requests of a Pod, including 1 unit of the resource `pods`.
pub(crate) fn requests(pod: &Value) -> ResourceList {
    let mut total = apimachinery::pod_requests(pod);
    total.insert("pods".to_owned(), Quantity::from_units(1));
    total
}

// === impl NodeInfo ===

impl NodeInfo {
    pub(super) fn new(node: Arc<Value>) -> Self {
        let (requested, pods, pods_with_affinity) = Default::default();
        Self { node, requested, non_zero_requested: CpuMemory::default(), pods, pods_with_affinity }
    }

    pub(super) fn name(&self) -> &str {
        object::name(&self.node)
    }

    /// Adds a Pod to the node.
    pub(super) fn add_pod(&mut self, pod: &Arc<Value>) {
        add_resources(&mut self.requested, &requests(pod));
        self.non_zero_requested = self.non_zero_requested.plus(CpuMemory::non_zero_requests(pod));
        self.pods.push(Arc::clone(pod));
        if has_pod_affinity(pod) {
            self.pods_with_affinity.push(Arc::clone(pod));
        }
    }

    /// Removes a Pod from the node.
    pub(super) fn remove_pod(&mut self, pod: &Value) {
        for (name, amount) in requests(pod) {
            if let Some(requested) = self.requested.get_mut(&name) {
                *requested -= amount;
            }
        }
        self.non_zero_requested = self.non_zero_requested.minus(CpuMemory::non_zero_requests(pod));
        for list in [&mut self.pods, &mut self.pods_with_affinity] {
            list.retain(|existing_pod| object::uid(existing_pod) != object::uid(pod));
        }
    }
}

/// Whether the Pod specifies Pod affinity or anti-affinity.
fn has_pod_affinity(pod: &Value) -> bool {
    let affinity = pod.pointer("/spec/affinity");
    affinity.is_some_and(|affinity| affinity.get("podAffinity").or_else(|| affinity.get("podAntiAffinity")).is_some())
}

// === impl CpuMemory ===

impl CpuMemory {
    /// Returns the requests of a Pod for scoring. A container without a CPU or memory request counts as 0.1 cores or
    /// 200 MiB (`k8s.io/kubernetes/pkg/scheduler/util`).
    pub(super) fn non_zero_requests(pod: &Value) -> Self {
        const DEFAULT_CPU: f64 = 0.1;
        const DEFAULT_MEMORY: f64 = 200.0 * 1024.0 * 1024.0;
        let requests = apimachinery::pod_requests(pod);
        let containers = || pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
        let total = |name: &str, default: f64| {
            let has_resource = |container: &&Value| {
                let is_set = |list: &str| container.pointer(&format!("/resources/{list}/{name}")).is_some();
                is_set("requests") || is_set("limits")
            };
            let without_requests = containers().filter(|container| !has_resource(container)).count();
            requests.get(name).map_or(0.0, Quantity::as_f64) + default * without_requests as f64
        };
        Self { cpu: total("cpu", DEFAULT_CPU), memory: total("memory", DEFAULT_MEMORY) }
    }

    /// Returns the sum of both amounts.
    pub(super) fn plus(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, memory: self.memory + other.memory }
    }

    /// Returns this amount minus `other`.
    fn minus(self, other: Self) -> Self {
        Self { cpu: self.cpu - other.cpu, memory: self.memory - other.memory }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn node_of_a_pod_that_panics_is_omitted() {
        let node = |name: &str| Arc::new(json!({"metadata": {"name": name}}));
        let pod = |name: &str, node: &str| Arc::new(json!({"metadata": {"name": name}, "spec": {"nodeName": node}}));
        let add_pod = |node: &mut NodeInfo, pod: &Arc<Value>| {
            assert_ne!(object::name(pod), "broken");
            node.add_pod(pod);
        };
        let pods = [pod("a", "x"), pod("broken", "x"), pod("b", "y")];
        let (nodes, failures) = add_bound_pods(&pods, &[node("y"), node("x")], add_pod);
        assert_eq!(nodes.iter().map(|node| (node.name(), node.pods.len())).collect::<Vec<_>>(), [("y", 1)]);
        assert_eq!(failures.len(), 1);
        assert_eq!(object::name(&failures[0].pods[0]), "broken");
    }
}
