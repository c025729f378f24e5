//! Names and objects of the simulated cluster.

use cluster::Kind;
use operator::kinds::OME_SERVICE;
use serde_json::{Value, json};

pub(crate) const NAMESPACE: Kind = Kind::cluster_scoped("", "v1", "Namespace", "namespaces");
pub(crate) const EVENT: Kind = Kind::namespaced("", "v1", "Event", "events");

/// Number of namespaces that contain services.
pub(crate) const NAMESPACE_COUNT: usize = 50;
/// Accelerators per node.
pub(crate) const ACCELERATORS_PER_NODE: usize = 8;
const MODEL: &str = "llama-3-2-3b-instruct";
const PRODUCT: &str = "NVIDIA-H100-80GB-HBM3";

pub(crate) fn namespace(number: usize) -> String {
    format!("team-{}", number % NAMESPACE_COUNT)
}

pub(crate) fn node_name(number: usize) -> String {
    format!("gpu-{number:04}")
}

pub(crate) fn node(number: usize) -> Value {
    let name = node_name(number);
    let resources =
        json!({"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": ACCELERATORS_PER_NODE.to_string()});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "nvidia.com/gpu.product": PRODUCT, "nvidia.com/gpu.count": "8",
            "nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.present": "true"}},
        "status": {"capacity": resources, "allocatable": resources, "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// Returns a Pod that is unrelated to ostler.
pub(crate) fn unrelated_pod(number: usize, nodes: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("other-{number}"), "namespace": namespace(number), "labels": {"app": "other"}},
        "spec": {"nodeName": node_name(number % nodes), "containers": [{"name": "main", "image": "example.com/other:1",
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]}})
}

pub(crate) fn service(number: usize) -> Value {
    json!({"apiVersion": OME_SERVICE.api_version(), "kind": OME_SERVICE.kind,
        "metadata": {"name": format!("chat-{number:04}"), "namespace": namespace(number)},
        "spec": {"model": {"name": MODEL}}})
}
