//! Quota by Kueue: Pods over the quota have a scheduling gate until Kueue admits them.

use std::sync::Arc;

use embedded::Server;
use serde_json::{Value, json};

use crate::rollout_capacity::{images, set_runtime_image, strategy};
use crate::scaling::{add_node, service, wait_until_ready};
use crate::simulated_cluster::{SimulatedCluster, condition as role_condition, role, service_with_roles};
use crate::supply::{self, CLASSES, RUNTIMES};
use crate::test_cluster::{FUSIONINFER_SERVICES, OME_SERVICES};

/// Fields that Kueue adds to a Pod of LocalQueue `team`.
fn gate() -> Value {
    json!([{"name": "kueue.x-k8s.io/admission"}])
}

fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

/// Admits the Pods that Kueue has gated, up to `quota` Pods that are not terminating.
fn admit(server: &Server, quota: usize) {
    let pods = server.list("pods");
    let is_admitted = |pod: &&Arc<Value>| !is_gated(pod);
    let free = quota.saturating_sub(pods.iter().filter(is_admitted).count());
    for pod in pods.iter().filter(|pod| is_gated(pod)).take(free) {
        let mut admitted = (**pod).clone();
        admitted["spec"]["schedulingGates"] = json!([]);
        server.update("pods", admitted).unwrap();
    }
}

/// Admits Pods after every change.
fn run_kueue(cluster: &SimulatedCluster, quota: usize) {
    let server = cluster.server.clone();
    tokio::spawn(async move {
        let mut changes = server.subscribe();
        loop {
            admit(&server, quota);
            let _ = changes.next().await;
        }
    });
}

/// Returns a cluster with two accelerators for service `chat`, whose Pods Kueue gates.
fn cluster_with_queue() -> SimulatedCluster {
    let cluster = SimulatedCluster::with_gpus(0);
    let mut runtime = supply::runtime("any");
    let engine = &mut runtime["spec"]["engineConfig"];
    engine["schedulingGates"] = gate();
    engine["labels"] = json!({"kueue.x-k8s.io/queue-name": "team"});
    engine["runner"]["image"] = json!("engine:1");
    cluster.server.create(RUNTIMES, runtime).unwrap();
    cluster.server.create("clusterbasemodels.ome.io", supply::model("model", "3B")).unwrap();
    cluster.server.create(CLASSES, supply::class("small", "80Gi", "1")).unwrap();
    add_node(&cluster.server, "node-small", "small", 2);
    cluster.server.create(OME_SERVICES, supply::service("chat", "model")).unwrap();
    cluster
}

fn ready_reason(server: &Server, reason: &str) -> Option<String> {
    let ready = cluster::find_condition(&service(server)["status"]["conditions"], "Ready")?.clone();
    (ready["reason"] == reason).then(|| ready["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(start_paused = true)]
async fn service_waits_for_quota_until_kueue_admits_its_pods() {
    let cluster = cluster_with_queue();
    let message = cluster.wait_for("the reason", &|server| ready_reason(server, "WaitingForQuota")).await;
    assert!(
        message.contains("waiting for quota: Kueue has not admitted the Pod to LocalQueue team; run `kubectl describe"),
        "{message}"
    );
    let accelerators = cluster.server.get(CLASSES, "", "small").unwrap()["status"]["availableAccelerators"].clone();
    assert_eq!(accelerators, 2, "a gated Pod uses no accelerator");
    run_kueue(&cluster, 1);
    wait_until_ready(&cluster, "True").await;
}

/// The Pod of the old revision uses the quota that the new one needs. Nodes have room for both.
#[tokio::test(start_paused = true)]
async fn rollout_at_the_limit_of_the_quota_stops_the_old_pod_first() {
    let cluster = cluster_with_queue();
    run_kueue(&cluster, 1);
    wait_until_ready(&cluster, "True").await;
    set_runtime_image(&cluster, "engine:2");
    let is_updated = |server: &Server| {
        let ready = ready_reason(server, "Ready")?;
        (images(server) == ["engine:2"] && server.list("pods").len() == 1).then_some(ready)
    };
    cluster.wait_for("the new image", &is_updated).await;
    assert_eq!(strategy(&cluster.server), json!({"type": "Recreate"}));
}

#[tokio::test(start_paused = true)]
async fn role_waits_for_quota_until_kueue_admits_its_pods() {
    let cluster = SimulatedCluster::with_gpus(16);
    let mut worker = role("w", "worker", 2, 1, 8);
    worker["template"]["metadata"] = json!({"labels": {"kueue.x-k8s.io/queue-name": "team"}});
    worker["template"]["spec"]["schedulingGates"] = gate();
    cluster.server.create(FUSIONINFER_SERVICES, service_with_roles("chat", vec![worker])).unwrap();
    run_kueue(&cluster, 1);
    let ready = cluster.wait_for_condition("chat", "Ready", "WaitingForQuota").await;
    assert!(ready["message"].as_str().unwrap().contains("LocalQueue team"), "{ready}");
    assert_eq!(role_condition(&cluster.server, "chat", "Failed"), None);
    run_kueue(&cluster, 2);
    cluster.wait_until_ready("chat").await;
}
