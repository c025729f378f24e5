//! Rollouts: a broken image stops at the first replica and is undone, and a paused rollout resumes.

use serde_json::{Value, json};

use super::gangs::role;
use super::test_cluster::{GROUPS, Objects, PODS, ROLES, SERVICES, SETS, TestCluster};
use crate::session::{ostler, outcome};

const NAMESPACE: &str = "rollout";
const IMAGE: &str = "vllm/vllm-openai:v0.11.0";
const NEW_IMAGE: &str = "vllm/vllm-openai:v0.12.0";
const BROKEN_IMAGE: &str = "example.com/broken:1";
const TITLE: &str = "inferenceservice.fusioninfer.io/chat";

fn service(image: &str) -> Value {
    let mut decode = role("decode", "worker", 2, 2, 1);
    let container = &mut decode["template"]["spec"]["containers"][0];
    container["image"] = json!(image);
    container["readinessProbe"] = json!({"httpGet": {"path": "/health", "port": 8000}});
    json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": NAMESPACE}, "spec": {"roles": [decode]}})
}

/// Returns the images of both replicas, in order.
fn images(sets: &Objects) -> Vec<&str> {
    let template = "/spec/leaderWorkerTemplate/workerTemplate/spec/containers/0/image";
    sets.values().filter_map(|set| set.pointer(template)?.as_str()).collect()
}

/// Runs `ostler rollout ACTION` and returns its output.
fn rollout(test_cluster: &TestCluster, action: &str, expected_code: i32) -> String {
    let kubeconfig = test_cluster.cluster.kubeconfig.display().to_string();
    let args = ["rollout", action, TITLE, "-n", NAMESPACE, "--kubeconfig", &kubeconfig];
    let (stdout, stderr, code) = outcome(&ostler(&args).output().unwrap());
    assert_eq!(code, Some(expected_code), "{action}: {stdout}{stderr}");
    stdout + &stderr
}

pub(super) async fn broken_image_is_undone(test_cluster: &TestCluster) {
    test_cluster.namespace(NAMESPACE).await;
    test_cluster.apply(&service(IMAGE)).await;
    test_cluster.wait_for_condition(ROLES, NAMESPACE, "chat", ("Ready", "True"), "").await;
    test_cluster.apply(&service(BROKEN_IMAGE)).await;
    let output = rollout(test_cluster, "status", 1);
    assert!(output.contains("rollout failed: ") && output.contains(BROKEN_IMAGE), "{output}");
    let sets = test_cluster
        .wait_for("one replica of the new image", SETS, NAMESPACE, |objects| images(objects).contains(&BROKEN_IMAGE))
        .await;
    let mut replica_images = images(&sets);
    replica_images.sort_unstable();
    assert_eq!(replica_images, [BROKEN_IMAGE, IMAGE], "the other replica is not updated");
    test_cluster.wait_for_condition(ROLES, NAMESPACE, "chat", ("Active", "True"), "decode 1 of 2").await;

    rollout(test_cluster, "undo", 0);
    // The status of the broken Pod no longer counts after the undo.
    let output = rollout(test_cluster, "status", 0);
    assert!(output.contains("successfully rolled out: Ready replicas: decode 2 of 2"), "{output}");
    test_cluster
        .wait_for("both replicas of the old image", SETS, NAMESPACE, |objects| images(objects) == [IMAGE, IMAGE])
        .await;
}

pub(super) async fn paused_rollout_resumes(test_cluster: &TestCluster) {
    rollout(test_cluster, "pause", 0);
    test_cluster.apply(&service(NEW_IMAGE)).await;
    let output = rollout(test_cluster, "status", 0);
    assert!(output.contains("rollout paused: Rollout of role decode: 0 of 2 replicas are updated"), "{output}");
    test_cluster
        .wait_for("both replicas of the old image", SETS, NAMESPACE, |objects| images(objects) == [IMAGE, IMAGE])
        .await;
    rollout(test_cluster, "resume", 0);
    let output = rollout(test_cluster, "status", 0);
    assert!(output.contains("successfully rolled out: "), "{output}");
    test_cluster
        .wait_for("both replicas of the new image", SETS, NAMESPACE, |objects| {
            images(objects) == [NEW_IMAGE, NEW_IMAGE]
        })
        .await;
    test_cluster.delete(ROLES, NAMESPACE, "chat").await;
    test_cluster.wait_for_deletion(NAMESPACE, &[ROLES, SETS, GROUPS, PODS, SERVICES]).await;
}
