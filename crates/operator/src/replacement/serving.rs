//! Pods that serve requests, and their ports.

use plan::labels::WORKER_INDEX;
use serde_json::Value;

use crate::kinds::{LEADER_WORKER_SET, SERVICE};
use crate::readiness::is_pod_ready;
use crate::workloads::LiveWorkload;

/// Returns the Pods of a workload that serve requests: ready Pods of a Deployment, or ready leaders of a LeaderWorkerSet.
pub(crate) fn serving_pods(workload: &LiveWorkload) -> impl Iterator<Item = &Value> {
    let is_set = workload.object["kind"] == LEADER_WORKER_SET.kind;
    workload.pods().filter(move |pod| is_pod_ready(pod) && (!is_set || pod["metadata"]["labels"][WORKER_INDEX] == "0"))
}

/// Returns the first port of the Pods that a Service or a BackendPool routes to.
pub(super) fn target_port(route: &Value) -> &Value {
    let spec = &route["spec"];
    if route["kind"] == SERVICE.kind { &spec["ports"][0]["targetPort"] } else { &spec["targetPorts"][0] }
}

/// Returns whether a container of the Pod declares the port, or none declares any port.
pub(super) fn has_port(pod: &Value, port: &Value) -> bool {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.filter_map(|container| container["ports"].as_array()).flatten().peekable();
    ports.peek().is_none() || ports.any(|declared| declared["containerPort"] == *port)
}
