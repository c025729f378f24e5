//! The kubelets of all nodes, reduced to the status of their Pods.

use std::net::Ipv4Addr;
use std::time::Duration;

use apimachinery::object;
use embedded::Server;
use futures::FutureExt;
use serde_json::{Value, json};
use tokio::time::sleep;

/// Time in which a container starts or stops.
const CONTAINER_TIME: Duration = Duration::from_secs(1);
/// Address before that of the first Pod.
const NETWORK: u32 = u32::from_be_bytes([10, 0, 0, 0]);

/// Starts the Pods that are bound to an existing node, and removes those that are terminating.
pub(crate) async fn run_kubelets(server: Server) {
    let (mut changes, mut pod_count) = (server.subscribe(), 0);
    loop {
        // After missed changes, all Pods are listed as after any change.
        while changes.next().await.is_ok_and(|change| change.resource != "pods") {}
        sleep(CONTAINER_TIME).await;
        while changes.next().now_or_never().is_some() {}
        for pod in server.list("pods") {
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            if node.is_empty() || server.get("nodes", "", node).is_none() {
                continue;
            }
            if object::is_deleting(&pod) {
                let (namespace, name) = (object::namespace(&pod), object::name(&pod));
                server.force_delete("pods", namespace, name, Some(object::uid(&pod))).ok();
            } else if pod["status"]["podIP"].is_null() && pod["status"]["phase"] != "Failed" {
                pod_count += 1;
                set_ready(&server, &pod, &Ipv4Addr::from(NETWORK + pod_count).to_string(), true, 0);
            }
        }
    }
}

/// Reports a Pod with running containers.
pub(crate) fn set_ready(server: &Server, pod: &Value, address: &str, is_ready: bool, restarts: u64) {
    let status = if is_ready { "True" } else { "False" };
    let now = object::format_time(server.now());
    let condition = |type_: &str| json!({"type": type_, "status": status, "lastTransitionTime": now});
    let container = |container: &Value| {
        json!({"name": container["name"], "image": container["image"], "ready": is_ready, "started": true,
            "restartCount": restarts, "state": {"running": {"startedAt": now}}})
    };
    let containers: Vec<Value> = pod["spec"]["containers"].as_array().into_iter().flatten().map(container).collect();
    let mut running = pod.clone();
    let mut conditions = vec![condition("Ready"), condition("ContainersReady")];
    let others = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.extend(others.filter(|other| other["type"] == "PodScheduled").cloned());
    running["status"] = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "startTime": pod["status"]["startTime"].as_str().unwrap_or(&now), "conditions": conditions,
        "containerStatuses": containers});
    server.update_status("pods", running).ok();
}
