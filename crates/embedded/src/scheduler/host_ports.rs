//! Ports of the node that Pods ask for.

use serde_json::Value;

use super::candidate::Candidate;
use crate::object;

/// Protocol, address and number; the address `0.0.0.0` is every address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostPort<'a> {
    protocol: &'a str,
    address: &'a str,
    port: i64,
}

/// The first port that the Pod asks for and another Pod of the node has, as kube-scheduler's `NodePorts` compares them.
pub(super) fn taken(pod: &Value, candidate: &Candidate) -> Option<i64> {
    let wanted = of(pod);
    if wanted.is_empty() {
        return None;
    }
    let held: Vec<HostPort<'_>> = candidate.tenants.iter().flat_map(|tenant| of(tenant)).collect();
    wanted.iter().find(|port| held.iter().any(|other| port.clashes(other))).map(|port| port.port)
}

/// Of containers and of sidecars; other init containers end before the Pod serves.
fn of(pod: &Value) -> Vec<HostPort<'_>> {
    let list = |field: &str| pod.pointer(field).and_then(Value::as_array).into_iter().flatten();
    let sidecars = list("/spec/initContainers").filter(|container| container["restartPolicy"] == "Always");
    let containers = list("/spec/containers").chain(sidecars);
    containers
        .flat_map(|container| container["ports"].as_array().into_iter().flatten())
        .filter_map(HostPort::of)
        .collect()
}

impl<'a> HostPort<'a> {
    fn of(port: &'a Value) -> Option<Self> {
        let number = port.get("hostPort")?.as_i64().filter(|number| *number > 0)?;
        let or = |text: &'a str, default| if text.is_empty() { default } else { text };
        let protocol = or(object::text(port, "/protocol"), "TCP");
        Some(Self { protocol, address: or(object::text(port, "/hostIP"), ANY), port: number })
    }

    fn clashes(&self, other: &HostPort<'_>) -> bool {
        self.protocol == other.protocol
            && self.port == other.port
            && (self.address == other.address || self.address == ANY || other.address == ANY)
    }
}

const ANY: &str = "0.0.0.0";
