//! Tests of the operator against the in-process embedded API server.

// Test helpers may panic like tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod absence;
mod accelerator_classes;
mod admission;
mod backup;
mod base_set;
mod conditions;
mod contention;
mod engine_commands;
mod events;
mod foreign_objects;
mod gang_scheduling;
mod group_surge;
mod kueue;
mod leader_election;
mod lifecycle;
mod namespaces;
mod node_changes;
mod numbers;
mod ome_lifecycle;
mod ownership;
mod planned_objects;
mod preview;
mod quota;
mod reselection;
mod role_growth;
mod role_ports;
mod role_status;
mod role_validation;
mod rollout_capacity;
mod router;
mod scaling;
mod selection;
mod simulated_cluster;
mod supervision;
mod supply;
mod test_cluster;
mod unresponsive_api_server;
mod upgrade;
mod webhook;
mod workload_replacement;

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::test_cluster::{FUSIONINFER_SERVICES, OME_SERVICES, TestCluster, minimal_service};

const MODEL: &str = "llama-3-2-3b-instruct";
const OWNED_RESOURCES: [&str; 4] = [
    "deployments.apps",
    "services",
    "backendpools.inference.networking.x-k8s.io",
    "llmusecasesets.inference.networking.x-k8s.io",
];

/// Returns resource and name of all existing objects of the kinds that a service owns.
fn owned_objects(server: &embedded::Server) -> Vec<String> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    OWNED_RESOURCES
        .iter()
        .flat_map(|resource| {
            server.list(resource).into_iter().map(move |object| format!("{resource} {}", name(&object)))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn minimal_service_gets_objects_and_a_decision() {
    let test_cluster = TestCluster::start(true).await;
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", MODEL)).unwrap();
    let service = test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    assert_eq!(service["status"]["decision"]["reason"], "Selected");
    assert_eq!(
        service["status"]["components"]["engine"]["selectedAccelerator"]["acceleratorClass"],
        "nvidia-h100-80gb"
    );
    assert_eq!(
        owned_objects(&test_cluster.server),
        [
            "deployments.apps chat-engine",
            "services chat-engine",
            "backendpools.inference.networking.x-k8s.io chat",
            "llmusecasesets.inference.networking.x-k8s.io chat",
        ]
    );
    test_cluster.mark_deployment_ready("chat-engine");
    let decision = service["status"]["decision"].clone();
    let service = test_cluster.wait_for_condition(OME_SERVICES, "chat", "Ready", "True").await;
    for field in ["message", "reason", "runtime", "nearest", "rejected"] {
        assert_eq!(service["status"]["decision"][field], decision[field]);
    }
    let has_served =
        |decision: &Value| decision["fingerprints"].as_str().is_some_and(|text| text.contains("servedFields "));
    assert!(!has_served(&decision) && has_served(&service["status"]["decision"]));
}

#[tokio::test(start_paused = true)]
async fn edit_updates_pods_and_deletion_removes_all_objects() {
    let test_cluster = TestCluster::start(true).await;
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", MODEL)).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    test_cluster.update_object(OME_SERVICES, "chat", |service| {
        service["spec"]["engine"] = json!({"runner": {"image": "example.com/engine:2"}});
    });
    test_cluster
        .wait_for("the new image", |server| {
            let deployment = server.get("deployments.apps", "default", "chat-engine")?;
            (deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/engine:2").then_some(())
        })
        .await;
    test_cluster.server.delete(OME_SERVICES, "default", "chat", None).unwrap();
    test_cluster.wait_for("deletion of all objects", |server| owned_objects(server).is_empty().then_some(())).await;
}

/// A reconcile without differences sends no write request.
#[tokio::test(start_paused = true)]
async fn reconcile_without_differences_sends_no_request() {
    let test_cluster = TestCluster::start(true).await;
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", MODEL)).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    test_cluster.mark_deployment_ready("chat-engine");
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "Ready", "True").await;
    test_cluster.wait_until_idle().await;
    let writes_before = test_cluster.writes.load(Ordering::Relaxed);
    let mut changes = test_cluster.server.subscribe();
    // A foreign label on the Deployment enqueues the service; nothing differs, so the test's own update is the only
    // change.
    let mut deployment = (*test_cluster.server.get("deployments.apps", "default", "chat-engine").unwrap()).clone();
    deployment["metadata"]["labels"]["example.com/touched"] = json!("yes");
    test_cluster.server.update("deployments.apps", deployment).unwrap();
    let mut observed = Vec::new();
    while let Ok(Ok(change)) = tokio::time::timeout(std::time::Duration::from_secs(60), changes.next()).await {
        observed.push(format!("{} {}", change.resource, change.name));
    }
    assert_eq!(observed, ["deployments.apps chat-engine"]);
    assert_eq!(test_cluster.writes.load(Ordering::Relaxed), writes_before);
}

#[tokio::test(start_paused = true)]
async fn service_with_unknown_model_is_not_ready() {
    let test_cluster = TestCluster::start(true).await;
    test_cluster.server.create(OME_SERVICES, minimal_service("lost", "no-such-model")).unwrap();
    let service = test_cluster.wait_for_condition(OME_SERVICES, "lost", "Ready", "False").await;
    assert_eq!(service["status"]["decision"]["reason"], "ModelNotFound");
    assert!(owned_objects(&test_cluster.server).is_empty());
}

// spec: ACC-28
// spec: ACC-29
#[tokio::test(start_paused = true)]
async fn class_status_counts_nodes_and_free_accelerators() {
    let test_cluster = TestCluster::start(true).await;
    let class_with_free = |server: &embedded::Server, free: i64| {
        let class = server.get("acceleratorclasses.ome.io", "", "nvidia-h100-80gb")?;
        (class["status"]["availableAccelerators"] == free).then_some(class)
    };
    let class = test_cluster.wait_for("eight free accelerators", |server| class_with_free(server, 8)).await;
    assert_eq!(class["status"]["nodes"], json!(["gpu-a"]));
    assert_eq!(class["status"]["totalAccelerators"], 8);
    test_cluster.server.create("pods", json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "gpu-a",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": 3}, "limits": {"nvidia.com/gpu": 3}}}]}})).unwrap();
    test_cluster.wait_for("five free accelerators", |server| class_with_free(server, 5)).await;
}

#[tokio::test(start_paused = true)]
async fn reports_missing_integration_and_detects_its_installation() {
    let test_cluster = TestCluster::start(false).await;
    test_cluster.server.create(FUSIONINFER_SERVICES, json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "r", "namespace": "default"}, "spec": {"roles": [{"name": "w", "componentType": "worker",
            "template": {"spec": {"containers": [{"name": "e", "image": "vllm/vllm-openai:v0.11.0", "args": ["--model", "m"]}]}}}]}})).unwrap();
    let service = test_cluster.wait_for_condition(FUSIONINFER_SERVICES, "r", "Ready", "False").await;
    let initialized = &service["status"]["conditions"][0];
    assert_eq!(initialized["reason"], "KindMissing");
    assert!(initialized["message"].as_str().unwrap().contains("LeaderWorkerSet"));
    test_cluster.install_leader_worker_set_crd();
    test_cluster
        .wait_for("the LeaderWorkerSet", |server| {
            server.get("leaderworkersets.leaderworkerset.x-k8s.io", "default", "r-w-0")
        })
        .await;
}

/// Copies the Pod template unchanged to the workload, including unknown fields and fields outside of the container.
// spec: TOP-8
#[tokio::test(start_paused = true)]
async fn role_template_is_passed_unchanged() {
    let test_cluster = TestCluster::start(true).await;
    let spec = json!({
        "futureField": {"deep": [1, {"er": "x"}]},
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "initContainers": [{"name": "fetch", "image": "fetch:1", "futureField": 1}],
        "containers": [{"name": "vllm", "image": "vllm/vllm-openai", "env": [{"name": "A", "value": "b"}], "futureField": [true],
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}],
    });
    let role = json!({"name": "inference", "componentType": "worker", "template": {"spec": spec}});
    let service = json!({"metadata": {"name": "qwen", "namespace": "default"}, "spec": {"roles": [role]}});
    test_cluster.server.create(FUSIONINFER_SERVICES, service).unwrap();
    let set = test_cluster
        .wait_for("the set", |server| {
            server.get("leaderworkersets.leaderworkerset.x-k8s.io", "default", "qwen-inference-0")
        })
        .await;
    assert_eq!(set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"], spec);
}
