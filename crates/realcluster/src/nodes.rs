//! Simulated nodes.

use serde_json::{Value, json};

/// Returns the Nodes `gpu-FIRST` to `gpu-(END-1)` with eight H100 GPUs each.
#[must_use]
pub fn gpu_nodes(first: usize, end: usize) -> Vec<Value> {
    (first..end).map(|number| node(&format!("gpu-{number}"))).collect()
}

fn node(name: &str) -> Value {
    let resources = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8",
                "nvidia.com/gpu.memory": "81559",
            },
        },
        "status": {"capacity": resources, "allocatable": resources},
    })
}
