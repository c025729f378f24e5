//! The ConfigMap `gpu-map`: the index of each GPU of the nodes of `ostler up`, by which a controller of dual Pods translates
//! IDs to values of `CUDA_VISIBLE_DEVICES`.

use std::collections::BTreeMap;

use actuation::is_own_gpu_map_entry;
use api::dual_pods::GPU_MAP;
use apimachinery::Status;
use embedded::Server;
use embedded::ports::Devices;
use serde_json::{Value, json};

use crate::gpus::GPU_RESOURCE;
use crate::host_node;
use crate::node_devices::NodeDevices;
use crate::node_groups::SIMULATED_ANNOTATION;

/// Namespace of the ConfigMap of `ostler up`.
pub(crate) const NAMESPACE: &str = "default";
/// Field manager of the entries, the same as that of `ostler actuation gpu-map`.
const MANAGER: &str = actuation::GPU_MAP_MANAGER;

/// Writes the entries of the nodes that `ostler up` registers. An entry that a user wrote is not changed.
///
/// # Errors
/// The API server rejects the ConfigMap.
pub(crate) fn update(server: &Server, devices: &NodeDevices) -> Result<(), Status> {
    let live = server.get("configmaps", NAMESPACE, GPU_MAP);
    let nodes = server.list("nodes");
    let registered = nodes
        .iter()
        .filter(|node| host_node::is_host(node) || node["metadata"]["annotations"][SIMULATED_ANNOTATION] == "true");
    let entries = registered.filter_map(|node| entry(node, devices));
    let data: BTreeMap<String, String> =
        entries.filter(|(node, _)| !live.as_ref().is_some_and(|live| is_written_by_user(live, node))).collect();
    if data.is_empty() && live.is_none() {
        return Ok(());
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": GPU_MAP, "namespace": NAMESPACE},
        "data": data,
    });
    server.apply("configmaps", &object, MANAGER).map(|_| ())
}

/// Returns the name of the node and the indexes of its GPUs by ID, if it has any.
fn entry(node: &Value, devices: &NodeDevices) -> Option<(String, String)> {
    let name = node["metadata"]["name"].as_str()?;
    let count = node["status"]["allocatable"][GPU_RESOURCE].as_str()?.parse().ok()?;
    let ids = devices.device_ids(name, GPU_RESOURCE, count);
    let indexes: BTreeMap<&String, usize> = ids.iter().zip(0..).collect();
    (!indexes.is_empty()).then(|| (name.to_owned(), json!(indexes).to_string()))
}

/// Returns whether the ConfigMap has an entry of a user for the node.
fn is_written_by_user(live: &Value, node: &str) -> bool {
    live["data"].get(node).is_some() && !is_own_gpu_map_entry(live, node)
}

#[cfg(test)]
mod tests {
    use embedded::ports::ServerPorts;

    use super::*;
    use crate::gpus::HostAccelerators;
    use crate::node_groups;

    fn start(server: &Server, nodes: &str) {
        let nodes = node_groups::to_nodes(&node_groups::parse(nodes).unwrap(), &HostAccelerators::default());
        for node in server.list("nodes") {
            server.delete("nodes", "", node["metadata"]["name"].as_str().unwrap(), None).unwrap();
        }
        for node in nodes {
            server.create("nodes", node).unwrap();
        }
        update(server, &NodeDevices::default()).unwrap();
    }

    fn data(server: &Server) -> Value {
        server.get("configmaps", NAMESPACE, GPU_MAP).unwrap()["data"].clone()
    }

    #[tokio::test]
    async fn map_contains_the_gpus_of_each_node() {
        let server = Server::new(&ServerPorts::default());
        start(&server, "a=2×L4, b=1×H100, c=8×MI300X");
        let data = data(&server);
        assert_eq!(data.as_object().unwrap().keys().collect::<Vec<_>>(), ["a-0", "b-0"]);
        let map: BTreeMap<String, usize> = serde_json::from_str(data["a-0"].as_str().unwrap()).unwrap();
        let ids = NodeDevices::default().device_ids("a-0", GPU_RESOURCE, 2);
        assert_eq!(map, ids.into_iter().zip(0..).collect());
    }

    #[tokio::test]
    async fn entries_follow_the_nodes_but_entries_of_users_remain() {
        let server = Server::new(&ServerPorts::default());
        start(&server, "a=2×L4, b=1×H100");
        let mut edited = server.get("configmaps", NAMESPACE, GPU_MAP).unwrap().as_ref().clone();
        edited["data"]["b-0"] = json!("{\"GPU-mine\":5}");
        server.update("configmaps", edited).unwrap();
        start(&server, "b=1×H100, c=1×L4");
        let data = data(&server);
        assert_eq!(data["b-0"], "{\"GPU-mine\":5}");
        assert_eq!(data.as_object().unwrap().keys().collect::<Vec<_>>(), ["b-0", "c-0"]);
    }
}
