//! This machine as a node.

use serde_json::{Value, json};

use crate::gpus::{self, Gpus};

/// Of a kubelet.
const PODS: &str = "110";

/// The Node object: processors, memory and accelerators as they are, under the machine's own name.
pub(crate) fn node(gpus: &Gpus) -> Value {
    let name = name();
    let cpu = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut resources = json!({"cpu": cpu.to_string(), "memory": memory(), "pods": PODS});
    if !gpus.all().is_empty() {
        resources[gpus::RESOURCE] = json!(gpus.all().len().to_string());
    }
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
            "annotations": {"ostler.dev/this-machine": "true"},
        },
        "spec": {},
        "status": {"capacity": resources, "allocatable": resources},
    });
    if let Some(labels) = node["metadata"]["labels"].as_object_mut() {
        labels.extend(gpus.labels());
    }
    node
}

/// The host's name as a node may be called.
fn name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let letter = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let name: String = host.trim().chars().take(63).map(letter).collect();
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() { "this-machine".to_owned() } else { name.to_owned() }
}

/// `MemTotal` in `Ki`; a machine that does not tell has none to give.
fn memory() -> String {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    format!("{}Ki", kib.unwrap_or(0))
}
