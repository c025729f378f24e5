//! Host ports: the `NodePorts` plugin.

use apimachinery::object;
use serde_json::Value;

use super::node_info::NodeInfo;

/// A host port with its address and protocol. The address `0.0.0.0` conflicts with every address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostPort<'a> {
    protocol: &'a str,
    address: &'a str,
    port: i64,
}

/// Returns the first host port of the Pod that conflicts with a Pod on the node, as `NodePorts` defines conflicts.
pub(super) fn conflicting_port(pod: &Value, node_info: &NodeInfo) -> Option<i64> {
    let requested = node_ports(pod);
    if requested.is_empty() {
        return None;
    }
    let used: Vec<HostPort<'_>> = node_info.pods.iter().flat_map(|existing_pod| node_ports(existing_pod)).collect();
    requested.iter().find(|port| used.iter().any(|other| port.conflicts_with(other))).map(|port| port.port)
}

/// Returns the host ports of the main containers and sidecars. The ports of other init containers are ignored, because
/// those containers terminate before the main containers start.
fn node_ports(pod: &Value) -> Vec<HostPort<'_>> {
    let list = |field: &str| pod.pointer(field).and_then(Value::as_array).into_iter().flatten();
    let sidecars = list("/spec/initContainers").filter(|container| container["restartPolicy"] == "Always");
    let containers = list("/spec/containers").chain(sidecars);
    containers
        .flat_map(|container| container["ports"].as_array().into_iter().flatten())
        .filter_map(HostPort::new)
        .collect()
}

impl<'a> HostPort<'a> {
    fn new(port: &'a Value) -> Option<Self> {
        let number = port.get("hostPort")?.as_i64().filter(|number| *number > 0)?;
        let or_default = |text: &'a str, default| if text.is_empty() { default } else { text };
        let protocol = or_default(object::text(port, "/protocol"), "TCP");
        Some(Self { protocol, address: or_default(object::text(port, "/hostIP"), ANY_ADDRESS), port: number })
    }

    fn conflicts_with(&self, other: &HostPort<'_>) -> bool {
        self.protocol == other.protocol
            && self.port == other.port
            && (self.address == other.address || self.address == ANY_ADDRESS || other.address == ANY_ADDRESS)
    }
}

const ANY_ADDRESS: &str = "0.0.0.0";
