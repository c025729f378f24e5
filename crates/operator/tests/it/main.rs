//! The operator against the embedded API server, in process.

// Helpers of tests are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod accelerators;
mod admission;
mod base_set;
mod cluster;
mod conditions;
mod election;
mod fleet;
mod gangs;
mod kueue;
mod lifecycle;
mod machine;
mod ome_lifecycle;
mod racing;
mod redecision;
mod roles_input;
mod routers;
mod selection;
mod telling;

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::cluster::{ROLES, SERVICES, World, five_lines};

const MODEL: &str = "llama-3-2-3b-instruct";
const MADE: [&str; 4] = [
    "deployments.apps",
    "services",
    "backendpools.inference.networking.x-k8s.io",
    "llmusecasesets.inference.networking.x-k8s.io",
];

/// Names of what exists of the kinds that a service owns.
fn made(server: &embedded::Server) -> Vec<String> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    MADE.iter()
        .flat_map(|resource| {
            server.list(resource).into_iter().map(move |object| format!("{resource} {}", name(&object)))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn five_lines_become_objects_and_a_decision() {
    let world = World::start(true).await;
    world.server.create(SERVICES, five_lines("chat", MODEL)).unwrap();
    let service = world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
    assert_eq!(service["status"]["decision"]["feasible"], true);
    assert_eq!(
        service["status"]["components"]["engine"]["selectedAccelerator"]["acceleratorClass"],
        "nvidia-h100-80gb"
    );
    assert_eq!(
        made(&world.server),
        [
            "deployments.apps chat-engine",
            "services chat-engine",
            "backendpools.inference.networking.x-k8s.io chat",
            "llmusecasesets.inference.networking.x-k8s.io chat",
        ]
    );
    world.ready("chat-engine");
    let decided = service["status"]["decision"].clone();
    let service = world.condition(SERVICES, "chat", "Ready", "True").await;
    for kept in ["message", "runtime", "components", "candidates"] {
        assert_eq!(service["status"]["decision"][kept], decided[kept]);
    }
    assert_eq!(service["status"]["decision"]["served"], true);
}

#[tokio::test(start_paused = true)]
async fn an_edit_changes_the_pods_and_deletion_leaves_nothing() {
    let world = World::start(true).await;
    world.server.create(SERVICES, five_lines("chat", MODEL)).unwrap();
    world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
    world.edit(SERVICES, "chat", |service| {
        service["spec"]["engine"] = json!({"runner": {"image": "example.com/engine:2"}});
    });
    world
        .until("the new image", |server| {
            let deployment = server.get("deployments.apps", "default", "chat-engine")?;
            (deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/engine:2").then_some(())
        })
        .await;
    world.server.delete(SERVICES, "default", "chat", None).unwrap();
    world.until("nothing left", |server| made(server).is_empty().then_some(())).await;
}

/// Neither a revision moves after a wake-up nor is a write even tried.
#[tokio::test(start_paused = true)]
async fn a_reconcile_that_changes_nothing_sends_nothing() {
    let world = World::start(true).await;
    world.server.create(SERVICES, five_lines("chat", MODEL)).unwrap();
    world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
    world.ready("chat-engine");
    world.condition(SERVICES, "chat", "Ready", "True").await;
    world.quiet().await;
    let before = world.writes.load(Ordering::Relaxed);
    let mut changes = world.server.subscribe();
    // A label on the Deployment that is not ours wakes the service; nothing differs, so ours is the only change.
    let mut deployment = (*world.server.get("deployments.apps", "default", "chat-engine").unwrap()).clone();
    deployment["metadata"]["labels"]["example.com/touched"] = json!("yes");
    world.server.update("deployments.apps", deployment).unwrap();
    let mut seen = Vec::new();
    while let Ok(Ok(change)) = tokio::time::timeout(std::time::Duration::from_secs(60), changes.next()).await {
        seen.push(format!("{} {}", change.resource, change.name));
    }
    assert_eq!(seen, ["deployments.apps chat-engine"]);
    assert_eq!(world.writes.load(Ordering::Relaxed), before);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_nothing_serves_stays_unready_and_says_why() {
    let world = World::start(true).await;
    world.server.create(SERVICES, five_lines("lost", "no-such-model")).unwrap();
    let service = world.condition(SERVICES, "lost", "Ready", "False").await;
    assert_eq!(service["status"]["decision"]["reason"], "ModelNotFound");
    assert!(made(&world.server).is_empty());
}

// spec: ACC-28
// spec: ACC-29
#[tokio::test(start_paused = true)]
async fn classes_count_their_nodes_and_what_is_free() {
    let world = World::start(true).await;
    let free = |server: &embedded::Server, expect: i64| {
        let class = server.get("acceleratorclasses.ome.io", "", "nvidia-h100-80gb")?;
        (class["status"]["availableAccelerators"] == expect).then_some(class)
    };
    let class = world.until("eight free", |server| free(server, 8)).await;
    assert_eq!(class["status"]["nodes"], json!(["gpu-a"]));
    assert_eq!(class["status"]["totalAccelerators"], 8);
    world.server.create("pods", json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "gpu-a",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": 3}, "limits": {"nvidia.com/gpu": 3}}}]}})).unwrap();
    world.until("five free", |server| free(server, 5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_neighbour_is_named_and_its_arrival_noticed() {
    let world = World::start(false).await;
    world.server.create(ROLES, json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "r", "namespace": "default"}, "spec": {"roles": [{"name": "w", "componentType": "worker",
            "template": {"spec": {"containers": [{"name": "e", "image": "vllm/vllm-openai:v0.11.0", "args": ["--model", "m"]}]}}}]}})).unwrap();
    let service = world.condition(ROLES, "r", "Ready", "False").await;
    let initialized = &service["status"]["conditions"][0];
    assert_eq!(initialized["reason"], "KindMissing");
    assert!(initialized["message"].as_str().unwrap().contains("LeaderWorkerSet"));
    world.install_leader_worker_set();
    world
        .until("the LeaderWorkerSet", |server| {
            server.get("leaderworkersets.leaderworkerset.x-k8s.io", "default", "r-w-0")
        })
        .await;
}

/// A template is the user's: fields newer than we are, and everything beside the container, reach the workload.
// spec: TOP-8
#[tokio::test(start_paused = true)]
async fn a_roles_template_arrives_whole() {
    let world = World::start(true).await;
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
    world.server.create(ROLES, service).unwrap();
    let set = world
        .until("the set", |server| {
            server.get("leaderworkersets.leaderworkerset.x-k8s.io", "default", "qwen-inference-0")
        })
        .await;
    assert_eq!(set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"], spec);
}
