//! The memory of nodes, which their simulated engines share: of each accelerator and of the host.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use embedded::Server;
use embedded::ports::{ContainerConfig, Devices};
use engine::{EngineMemory, InferenceServer, NodeMemory, ServerCommand};
use serde_json::Value;
use tokio::sync::SetOnce;

use crate::gpus::{GPU_RESOURCE, VISIBLE_DEVICES_ENV};
use crate::model_weights::weight_bytes;
use crate::node_devices::NodeDevices;

/// Label of GPU feature discovery with the memory of a GPU in MiB.
const GPU_MEMORY_LABEL: &str = "nvidia.com/gpu.memory";

/// The memory of all nodes.
#[derive(Default)]
pub(crate) struct NodeMemories {
    devices: Arc<NodeDevices>,
    server: SetOnce<Server>,
    /// Memory of nodes with engines, by UID of the node.
    nodes: Mutex<BTreeMap<String, NodeMemory>>,
}

// === impl NodeMemories ===

impl NodeMemories {
    /// Returns the memory of the nodes of [`Self::set_server`], whose devices are `devices`.
    pub(crate) fn new(devices: Arc<NodeDevices>) -> Self {
        Self { devices, ..Self::default() }
    }

    /// Sets the API server with the nodes; engines wait for it.
    pub(crate) fn set_server(&self, server: Server) {
        // An error means that it is set.
        let _ = self.server.set(server);
    }

    /// Returns the memory of the engine that `command` starts in `container`. `None` unless it is a vLLM engine on GPUs of known
    /// size.
    pub(crate) async fn engine_memory(
        &self,
        container: &ContainerConfig,
        command: &ServerCommand,
    ) -> Option<EngineMemory> {
        if command.server != InferenceServer::Vllm {
            return None;
        }
        let node = self.server.wait().await.get("nodes", "", &container.node)?;
        let gpus = self.gpus(&node);
        let devices: Vec<String> =
            visible_gpus(container, &gpus).into_iter().take(command.tensor_parallel_size).collect();
        let gpu_bytes = gpu_bytes(&node).filter(|_| !devices.is_empty())?;
        let node = self.node_memory(&node, gpus, gpu_bytes);
        Some(EngineMemory { node, devices, weight_bytes: weight_bytes(command) })
    }

    /// Returns the IDs of the GPUs of the node with this name in the order of their indexes.
    pub(crate) async fn gpu_ids(&self, node: &str) -> Vec<String> {
        self.server.wait().await.get("nodes", "", node).map(|node| self.gpus(&node)).unwrap_or_default()
    }

    /// Returns the IDs of the GPUs of a node in the order of their indexes.
    fn gpus(&self, node: &Value) -> Vec<String> {
        let count = node["status"]["allocatable"][GPU_RESOURCE].as_str().and_then(|count| count.parse().ok());
        self.devices.device_ids(node["metadata"]["name"].as_str().unwrap_or_default(), GPU_RESOURCE, count.unwrap_or(0))
    }

    /// Returns the memory of a node, and forgets nodes without engines.
    fn node_memory(&self, node: &Value, gpus: Vec<String>, gpu_bytes: u64) -> NodeMemory {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.retain(|_, memory| memory.is_shared());
        let uid = cluster::metadata_field(node, "uid").to_owned();
        let new = || NodeMemory::new(gpus.into_iter().map(|id| (id, gpu_bytes)), host_bytes(node));
        nodes.entry(uid).or_insert_with(new).clone()
    }
}

/// Returns the GPUs that an engine sees: those of its container, otherwise those of `CUDA_VISIBLE_DEVICES`, which contains
/// indexes or IDs.
fn visible_gpus(container: &ContainerConfig, gpus: &[String]) -> Vec<String> {
    if let Some(ids) = container.devices.get(GPU_RESOURCE) {
        return ids.clone();
    }
    let variable = container.env.iter().rev().find(|(name, _)| name == VISIBLE_DEVICES_ENV);
    let entries = variable.into_iter().flat_map(|(_, value)| value.split(',')).map(str::trim);
    let gpu = |entry: &str| match entry.parse::<usize>() {
        Ok(index) => gpus.get(index).cloned(),
        Err(_) => gpus.iter().find(|id| *id == entry).cloned(),
    };
    // As in CUDA, an invalid entry hides the ones after it.
    entries.map_while(gpu).collect()
}

fn gpu_bytes(node: &Value) -> Option<u64> {
    node["metadata"]["labels"][GPU_MEMORY_LABEL].as_str()?.parse::<u64>().ok()?.checked_mul(1 << 20)
}

fn host_bytes(node: &Value) -> u64 {
    let allocatable = apimachinery::parse_resource_list(node.pointer("/status/allocatable"));
    allocatable.get("memory").and_then(|memory| u64::try_from(memory.value()).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::container_fixture::container;

    #[rstest]
    #[case::own(&["b"], Some("0"), &["b"])]
    #[case::indexes(&[], Some("2, 0"), &["c", "a"])]
    #[case::ids(&[], Some("b"), &["b"])]
    #[case::invalid(&[], Some("1,7,0"), &["b"])]
    #[case::empty(&[], Some(""), &[])]
    #[case::unset(&[], None, &[])]
    fn finds_visible_gpus(#[case] own: &[&str], #[case] variable: Option<&str>, #[case] expected: &[&str]) {
        let mut container = container(&["vllm", "serve", "m"]);
        container.env.extend(variable.map(|value| (VISIBLE_DEVICES_ENV.to_owned(), value.to_owned())));
        if !own.is_empty() {
            container.devices.insert(GPU_RESOURCE.to_owned(), own.iter().map(|id| (*id).to_owned()).collect());
        }
        let gpus = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(visible_gpus(&container, &gpus), expected);
    }
}
