//! Tests of the devices that the node agent allocates.

use std::time::Duration;

use embedded::Server;
use rstest::rstest;
use serde_json::{Value, json};

use crate::workloads::{TestCluster, is_ready, pod};

/// A Pod whose container requests one GPU. `extra` are further fields of its spec.
fn gpu_pod(name: &str, image: &str, extra: &Value) -> Value {
    let mut spec =
        json!({"containers": [{"name": "c", "image": image, "resources": {"limits": {"nvidia.com/gpu": "1"}}}]});
    spec.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap_or_default());
    pod(name, spec)
}

fn stored(server: &Server, name: &str) -> Value {
    server.get("pods", "default", name).map_or(Value::Null, |pod| pod.as_ref().clone())
}

fn container_status(server: &Server, name: &str) -> Value {
    stored(server, name)["status"]["containerStatuses"][0].clone()
}

#[tokio::test(start_paused = true)]
async fn container_retains_its_device_over_restarts_of_container_and_agent() {
    let cluster = TestCluster::new(&[2]);
    cluster.server.create("pods", gpu_pod("first", "crash", &json!({}))).unwrap();
    cluster.server.create("pods", gpu_pod("second", "one", &json!({}))).unwrap();
    cluster.wait_for("a restart", |server| container_status(server, "first")["restartCount"] == 1).await;
    cluster.wait_for("the other Pod", |server| is_ready(&stored(server, "second"))).await;
    let recorded =
        |id: &str| json!([{"name": "nvidia.com/gpu", "resources": [{"resourceID": id, "health": "Healthy"}]}]);
    assert_eq!(container_status(&cluster.server, "first")["allocatedResourcesStatus"], recorded("n0/0"));
    assert_eq!(container_status(&cluster.server, "second")["allocatedResourcesStatus"], recorded("n0/1"));
    assert!(cluster.gpus_of_runs("first").iter().all(|gpus| gpus == &["n0/0"]), "{:?}", cluster.gpus_of_runs("first"));

    // The first GPU is free again.
    cluster.server.delete("pods", "default", "first", None).unwrap();
    cluster.wait_for("the deletion", |server| stored(server, "first").is_null()).await;
    let cluster = cluster.restart_controllers().await;
    cluster.wait_for("a restart", |server| container_status(server, "second")["restartCount"] == 1).await;
    assert_eq!(container_status(&cluster.server, "second")["allocatedResourcesStatus"], recorded("n0/1"));
    assert_eq!(cluster.gpus_of_runs("second"), [["n0/1"], ["n0/1"]]);
    cluster.stop().await;
}

/// The containers are killed after the grace period, or end by themselves.
#[rstest]
#[case::killed("stubborn", 137, "Failed")]
#[case::stopped("one", 0, "Succeeded")]
#[tokio::test(start_paused = true)]
async fn device_is_free_when_the_containers_have_ended_although_a_finalizer_holds_the_pod(
    #[case] image: &str,
    #[case] exit_code: i64,
    #[case] phase: &str,
) {
    let cluster = TestCluster::new(&[1]);
    let mut held = gpu_pod("held", image, &json!({"terminationGracePeriodSeconds": 7}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.server.create("pods", held).unwrap();
    cluster.wait_for("the Pod", |server| is_ready(&stored(server, "held"))).await;
    cluster.server.create("pods", gpu_pod("next", "one", &json!({}))).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(stored(&cluster.server, "next")["spec"]["nodeName"], Value::Null, "the only GPU is allocated");

    cluster.server.delete("pods", "default", "held", None).unwrap();
    cluster.wait_for("the next Pod", |server| is_ready(&stored(server, "next"))).await;
    assert_eq!(cluster.gpus_of_runs("next"), [["n0/0"]]);
    let held = stored(&cluster.server, "held");
    assert_eq!(held["status"]["phase"], phase);
    assert_eq!(held["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], exit_code);
    assert_eq!(held["metadata"]["finalizers"], json!(["example.com/hold"]));
    cluster.stop().await;
}

/// The container never starts, because its image is absent.
#[tokio::test(start_paused = true)]
async fn pod_that_is_deleted_before_its_containers_start_has_failed() {
    let cluster = TestCluster::new(&[1]);
    let mut held = gpu_pod("held", "absent", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.server.create("pods", held).unwrap();
    let is_waiting = |server: &Server| container_status(server, "held")["state"]["waiting"]["reason"] == "ErrImagePull";
    cluster.wait_for("the failed pull", is_waiting).await;
    cluster.server.delete("pods", "default", "held", None).unwrap();
    cluster.wait_for("the end", |server| stored(server, "held")["status"]["phase"] == "Failed").await;
    let terminated = &container_status(&cluster.server, "held")["state"]["terminated"];
    assert_eq!((&terminated["exitCode"], &terminated["reason"]), (&json!(137), &json!("ContainerStatusUnknown")));
    cluster.stop().await;
}

/// The container of the Pod never starts.
#[tokio::test(start_paused = true)]
async fn device_is_free_when_an_init_container_has_failed() {
    let cluster = TestCluster::new(&[1]);
    let extra = json!({"restartPolicy": "Never", "initContainers": [{"name": "init", "image": "crash"}]});
    cluster.server.create("pods", gpu_pod("failed", "one", &extra)).unwrap();
    cluster.wait_for("the failure", |server| stored(server, "failed")["status"]["phase"] == "Failed").await;
    cluster.server.create("pods", gpu_pod("next", "one", &json!({}))).unwrap();
    cluster.wait_for("the next Pod", |server| is_ready(&stored(server, "next"))).await;
    cluster.stop().await;
}

/// A Pod without a scheduler is bound to a node whose only GPU is allocated.
#[tokio::test(start_paused = true)]
async fn pod_without_free_devices_is_rejected() {
    let cluster = TestCluster::new(&[1]);
    cluster.server.create("pods", gpu_pod("first", "one", &json!({"nodeName": "n0"}))).unwrap();
    cluster.wait_for("the Pod", |server| is_ready(&stored(server, "first"))).await;
    cluster.server.create("pods", gpu_pod("second", "one", &json!({"nodeName": "n0"}))).unwrap();
    cluster.wait_for("the rejection", |server| stored(server, "second")["status"]["phase"] == "Failed").await;
    let status = stored(&cluster.server, "second")["status"].clone();
    assert_eq!(status["reason"], "UnexpectedAdmissionError");
    assert_eq!(
        status["message"],
        "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. \
         Requested: 1, Available: 0, which is unexpected"
    );
    assert!(cluster.gpus_of_runs("second").is_empty());
    cluster.server.delete("pods", "default", "second", None).unwrap();
    cluster.wait_for("the deletion", |server| stored(server, "second").is_null()).await;
    cluster.stop().await;
}
