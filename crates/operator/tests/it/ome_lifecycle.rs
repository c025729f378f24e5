//! Lifecycle of `ome.io` services: rollouts of their Deployments, pause and undo.

use std::collections::BTreeMap;
use std::sync::Arc;

use embedded::Server;
use operator::rollout_pause_annotation;
use operator::{restore_revision, revision_number};
use serde_json::{Value, json};

use crate::simulated_cluster::SimulatedCluster;
use crate::test_cluster::OME_SERVICES;

const DEPLOYMENTS: &str = "deployments.apps";
const REVISIONS: &str = "controllerrevisions.apps";

/// Returns a service with its own engine: two replicas of two GPUs.
fn chat() -> Value {
    let runner = json!({"name": "ome-container", "image": "engine:1", "ports": [{"containerPort": 8080}],
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 5}});
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {"engine": {"minReplicas": 2, "maxReplicas": 2, "runner": runner}}})
}

async fn running() -> SimulatedCluster {
    let cluster = SimulatedCluster::with_gpus(16);
    cluster.server.create(OME_SERVICES, chat()).unwrap();
    wait_until_ready(&cluster).await;
    cluster
}

fn service(server: &Server) -> Arc<Value> {
    server.get(OME_SERVICES, "default", "chat").unwrap()
}

fn ready_condition(server: &Server) -> Option<Value> {
    let service = service(server);
    cluster::find_current_condition(&service, "Ready").cloned()
}

async fn wait_until_ready(cluster: &SimulatedCluster) {
    let probe = |server: &Server| (ready_condition(server)?["status"] == "True").then_some(());
    cluster.wait_for("chat to be ready", &probe).await;
}

fn set_image(cluster: &SimulatedCluster, image: &str) {
    cluster
        .test_cluster
        .update_object(OME_SERVICES, "chat", |service| service["spec"]["engine"]["runner"]["image"] = json!(image));
}

/// Returns the images of Pods that are not terminating.
fn images(server: &Server) -> Vec<String> {
    let is_not_terminating = |pod: &Arc<Value>| pod["metadata"]["deletionTimestamp"].is_null();
    let image = |pod: Arc<Value>| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
    server.list("pods").into_iter().filter(is_not_terminating).map(image).collect()
}

fn revisions(server: &Server) -> Vec<Arc<Value>> {
    let mut revisions = server.list(REVISIONS);
    revisions.sort_by_key(|revision| revision_number(revision));
    revisions
}

#[tokio::test(start_paused = true)]
async fn paused_rollout_replaces_no_pod_but_scales() {
    let cluster = running().await;
    let pause = |value: Value| {
        cluster
            .test_cluster
            .update_object(OME_SERVICES, "chat", |service| service["metadata"]["annotations"] = value.clone());
    };
    pause(json!({rollout_pause_annotation("ome.io/v1beta1"): "true"}));
    set_image(&cluster, "engine:2");
    let is_paused = |server: &Server| {
        let deployment = server.get(DEPLOYMENTS, "default", "chat-engine")?;
        let wait_until_ready = ready_condition(server)?;
        let template = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        (deployment["spec"]["paused"] == true
            && *template == "engine:2"
            && wait_until_ready["reason"] == "RolloutPaused")
            .then_some(wait_until_ready)
    };
    let ready = cluster.wait_for("the paused rollout", &is_paused).await;
    assert!(ready["message"].as_str().unwrap().contains("ostler rollout resume"), "{ready}");
    assert_eq!(images(&cluster.server), ["engine:1"; 2]);
    cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| {
        service["spec"]["engine"]["minReplicas"] = json!(3);
        service["spec"]["engine"]["maxReplicas"] = json!(3);
    });
    cluster.wait_for("a third Pod", &|server| (images(server).len() == 3).then_some(())).await;
    assert_eq!(images(&cluster.server), ["engine:1"; 3], "a paused Deployment scales what it runs");
    pause(json!({}));
    wait_until_ready(&cluster).await;
    cluster.wait_for("deletion of the old Pods", &|server| (images(server) == ["engine:2"; 3]).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn failing_image_keeps_ready_pods_and_can_be_undone() {
    let cluster = running().await;
    let spec_before = service(&cluster.server)["spec"].clone();
    set_image(&cluster, "bad");
    let has_crashed = |server: &Server| (ready_condition(server)?["reason"] == "CrashLoop").then_some(());
    cluster.wait_for("the failure", &has_crashed).await;
    assert_eq!(images(&cluster.server).iter().filter(|image| *image == "engine:1").count(), 2);
    assert_eq!(service(&cluster.server)["status"]["components"]["engine"]["readyReplicas"], 2);

    let first_revision = revisions(&cluster.server).remove(0);
    assert_eq!(restore_revision(&service(&cluster.server)["spec"], &first_revision), spec_before);
    cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| service["spec"] = spec_before.clone());
    wait_until_ready(&cluster).await;
    let is_replaced = |server: &Server| (images(server) == ["engine:1"; 2]).then_some(());
    cluster.wait_for("deletion of the failing Pod", &is_replaced).await;
    let numbers: Vec<i64> = revisions(&cluster.server).iter().map(|revision| revision_number(revision)).collect();
    assert_eq!(numbers, [2, 3], "the first revision is the latest again");
}

/// While only the old replica is ready, the service is not ready.
#[tokio::test(start_paused = true)]
async fn service_is_not_ready_while_an_old_pod_runs() {
    let cluster = running().await;
    set_image(&cluster, "engine:2");
    let probe = |server: &Server| (ready_condition(server)?["status"] == "True").then_some(());
    let invariant = |server: &Server| {
        if probe(server).is_some() {
            assert_eq!(images(server), ["engine:2"; 2]);
        }
    };
    cluster.wait_for_with_invariant("the new revision", &probe, &invariant).await;
}

#[tokio::test(start_paused = true)]
async fn scaling_replaces_no_pod_and_creates_no_revision() {
    let cluster = running().await;
    let uids = |server: &Server| -> Vec<String> {
        server.list("pods").iter().map(|pod| pod["metadata"]["uid"].to_string()).collect()
    };
    let (before, revision_count) = (uids(&cluster.server), revisions(&cluster.server).len());
    cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| {
        service["spec"]["engine"]["minReplicas"] = json!(4);
        service["spec"]["engine"]["maxReplicas"] = json!(4);
    });
    cluster.wait_for("four Pods", &|server| (images(server).len() == 4).then_some(())).await;
    wait_until_ready(&cluster).await;
    let uids_after = uids(&cluster.server);
    assert!(before.iter().all(|uid| uids_after.contains(uid)));
    assert_eq!(revisions(&cluster.server).len(), revision_count);
    assert_eq!(service(&cluster.server)["status"]["components"]["engine"]["replicas"], 4);
}

/// Returns a service of two replicas, each with a leader and three workers that use a whole node.
fn multi_node_chat() -> Value {
    let runner = json!({"name": "ome-container", "image": "engine:1", "ports": [{"containerPort": 8080}],
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 5}});
    let engine = json!({"minReplicas": 2, "maxReplicas": 2, "leader": {"runner": runner},
        "worker": {"size": 3, "runner": runner}});
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"}, "spec": {"engine": engine}})
}

/// Returns whether a Pod is ready and not terminating.
fn is_serving(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
        && cluster::find_condition(&pod["status"]["conditions"], "Ready").is_some_and(|ready| ready["status"] == "True")
}

/// Returns for each replica the number of its serving Pods and of its scheduled Pods of the image `image`.
fn replica_counts(server: &Server, image: &str) -> BTreeMap<String, (usize, usize)> {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for pod in server.list("pods") {
        let group = pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-index"].as_str().unwrap().to_owned();
        let (serving, scheduled) = counts.entry(group).or_default();
        *serving += usize::from(is_serving(&pod));
        let is_new = pod["spec"]["containers"][0]["image"] == image;
        *scheduled += usize::from(is_new && pod["spec"]["nodeName"].is_string());
    }
    counts
}

/// One LeaderWorkerSet has both replicas, and its controller replaces them.
#[tokio::test(start_paused = true)]
async fn multi_node_replicas_on_a_full_cluster_are_updated_one_at_a_time() {
    let cluster = SimulatedCluster::with_gpus(64);
    cluster.server.create(OME_SERVICES, multi_node_chat()).unwrap();
    wait_until_ready(&cluster).await;
    cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| {
        for role in ["leader", "worker"] {
            service["spec"]["engine"][role]["runner"]["image"] = json!("engine:2");
        }
    });
    let probe = |server: &Server| (ready_condition(server)?["status"] == "True").then_some(());
    let one_replica_at_a_time = |server: &Server| {
        let counts = replica_counts(server, "engine:2");
        assert!(counts.values().any(|(serving, _)| *serving == 4), "one replica serves: {counts:?}");
        assert!(counts.values().all(|(_, scheduled)| [0, 4].contains(scheduled)), "half a replica: {counts:?}");
    };
    cluster.wait_for_with_invariant("the rollout", &probe, &one_replica_at_a_time).await;
    assert_eq!(images(&cluster.server), ["engine:2"; 8]);
}
