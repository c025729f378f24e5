//! The Node object of this host.

use serde_json::{Value, json};

use crate::gpus::HostAccelerators;

/// Annotation that marks the node of this host.
pub(crate) const HOST_ANNOTATION: &str = "ostler.dev/this-machine";
/// Annotation of the node of this host with the accelerators that it pretends to have, such as `2×L4`; empty if none.
pub(crate) const SIMULATED_ACCELERATORS_ANNOTATION: &str = "ostler.dev/simulated-accelerators";
/// Maximum number of Pods of a node: the default of the kubelet.
const MAX_PODS: &str = "110";

/// Returns the Node object with the CPUs and memory of this host and `accelerators`, named after the host.
pub(crate) fn node(accelerators: &HostAccelerators) -> Value {
    let name = node_name();
    let cpu = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut resources = json!({"cpu": cpu.to_string(), "memory": memory(), "pods": MAX_PODS});
    if !accelerators.ids.is_empty() {
        resources[&accelerators.resource] = json!(accelerators.ids.len().to_string());
    }
    let simulated = accelerators.simulated.as_deref().unwrap_or_default();
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": std::env::consts::OS,
                "kubernetes.io/arch": std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64"),
            },
            "annotations": {HOST_ANNOTATION: "true", SIMULATED_ACCELERATORS_ANNOTATION: simulated},
        },
        "spec": {},
        "status": {"capacity": resources, "allocatable": resources},
    });
    if let Some(labels) = node["metadata"]["labels"].as_object_mut() {
        labels.extend(accelerators.labels.clone());
    }
    node
}

/// Returns the name of the node of this host, if it is one of `nodes`.
pub(crate) fn find(nodes: &[Value]) -> Option<&str> {
    nodes.iter().find(|node| is_host(node))?["metadata"]["name"].as_str()
}

/// Returns whether `node` represents this host.
pub(crate) fn is_host(node: &Value) -> bool {
    node["metadata"]["annotations"][HOST_ANNOTATION] == "true"
}

/// Returns the host name, converted to a valid node name.
pub(crate) fn node_name() -> String {
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let valid_character = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let name: String = hostname.trim().chars().take(63).map(valid_character).collect();
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() { "this-machine".to_owned() } else { name.to_owned() }
}

/// Returns `MemTotal` of /proc/meminfo in Ki, or `0Ki` if it cannot be read.
fn memory() -> String {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    format!("{}Ki", kib.unwrap_or(0))
}
