//! Rollouts: a broken image stops at the first replica and is undone, a paused rollout resumes, and a node without room for
//! an additional Pod delays neither an edit nor a fix. Scaling is no rollout.

use serde_json::{Value, json};

use super::gangs::role;
use super::test_cluster::{
    DEPLOYMENTS, GROUPS, OME, Objects, PODS, REVISIONS, ROLES, SERVICES, SETS, TestCluster, object_named,
};
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

/// Replaces the only Pod of a full node, also if its image is broken, and scales without replacing it.
pub(super) async fn full_node_is_updated_in_place(test_cluster: &TestCluster) {
    let namespace = "full-node";
    let service = |image: &str| {
        let runner = json!({"name": "ome-container", "image": image, "ports": [{"containerPort": 8080}],
            "resources": {"limits": {"nvidia.com/gpu": "8"}}});
        let engine = json!({"runner": runner, "nodeSelector": {"kubernetes.io/hostname": "gpu-0"}});
        json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
            "metadata": {"name": "chat", "namespace": namespace}, "spec": {"engine": engine}})
    };
    let runs_only = |objects: &Objects, image: &str| {
        let images: Vec<&Value> = objects.values().map(|pod| &pod["spec"]["containers"][0]["image"]).collect();
        images == [image]
    };
    test_cluster.namespace(namespace).await;
    test_cluster.apply(&service(IMAGE)).await;
    test_cluster.wait_for_condition(OME, namespace, "chat", ("Ready", "True"), "").await;
    test_cluster.apply(&service(BROKEN_IMAGE)).await;
    test_cluster.wait_for_condition(OME, namespace, "chat", ("Ready", "False"), BROKEN_IMAGE).await;
    let announcement = ("NoSurgeCapacity", "True");
    test_cluster.wait_for_condition(OME, namespace, "chat", announcement, "it is recreated").await;
    test_cluster.apply(&service(NEW_IMAGE)).await;
    test_cluster.wait_for_condition(OME, namespace, "chat", ("Ready", "True"), "").await;
    let pods = test_cluster.wait_for("the new Pod", PODS, namespace, |objects| runs_only(objects, NEW_IMAGE)).await;
    let deployment = test_cluster.get(DEPLOYMENTS, namespace, "chat-engine").await;
    assert_eq!(deployment["spec"]["strategy"], json!({"type": "Recreate"}));

    let revisions = test_cluster.wait_for("all revisions", REVISIONS, namespace, |objects| objects.len() == 3).await;
    let replicas = |count: u32| json!({"spec": {"engine": {"minReplicas": count, "maxReplicas": count}}});
    test_cluster.patch(OME, namespace, "chat", &replicas(2)).await;
    test_cluster.wait_for_condition(OME, namespace, "chat", ("Ready", "False"), "Unschedulable").await;
    let scaled_pods = test_cluster.wait_for("two Pods", PODS, namespace, |objects| objects.len() == 2).await;
    let (name, pod) = pods.first_key_value().unwrap();
    assert_eq!(object_named(&scaled_pods, name)["metadata"]["uid"], pod["metadata"]["uid"], "scaling replaces no Pod");
    test_cluster.patch(OME, namespace, "chat", &replicas(1)).await;
    test_cluster.wait_for_condition(OME, namespace, "chat", ("Ready", "True"), "").await;
    let revisions_after = test_cluster.wait_for("all revisions", REVISIONS, namespace, |_| true).await;
    assert!(revisions.keys().eq(revisions_after.keys()), "scaling creates no revision");
    test_cluster.delete(OME, namespace, "chat").await;
    test_cluster.wait_for_deletion(namespace, &[OME, DEPLOYMENTS, PODS, SERVICES]).await;
}
