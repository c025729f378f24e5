//! Pods that serve requests, and their ports.

use cluster::is_terminating;
use decide::is_pod_terminal;
use plan::labels::WORKER_INDEX;
use plan::serving_port;
use serde_json::Value;

use crate::kinds::LEADER_WORKER_SET;
use crate::readiness::is_pod_ready;
use crate::workloads::LiveWorkload;

/// Returns the Pods of a workload that serve requests: ready Pods of a Deployment, or ready leaders of a LeaderWorkerSet.
pub(crate) fn serving_pods(workload: &LiveWorkload) -> impl Iterator<Item = &Value> {
    engine_pods(workload).filter(|pod| is_pod_ready(pod))
}

/// Returns the Pods of a workload that serve requests once they are ready.
pub(super) fn engine_pods(workload: &LiveWorkload) -> impl Iterator<Item = &Value> {
    let is_set = workload.object["kind"] == LEADER_WORKER_SET.kind;
    let is_engine = move |pod: &&Value| !is_set || pod["metadata"]["labels"][WORKER_INDEX] == "0";
    workload.pods().filter(|pod| !is_terminating(pod) && !is_pod_terminal(pod)).filter(is_engine)
}

/// Returns whether a container of the Pod declares the port, or the engine serves on it. If the port of the engine is unknown,
/// every port is possible.
pub(super) fn has_port(pod: &Value, port: &Value) -> bool {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.filter_map(|container| container["ports"].as_array()).flatten();
    ports.any(|declared| declared["containerPort"] == *port) || serving_port(pod).is_none_or(|serving| *port == serving)
}
