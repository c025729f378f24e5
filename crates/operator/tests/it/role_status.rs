//! Conditions, phases and counts of role-based services.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use embedded::Server;
use operator::Options;
use serde_json::{Value, json};

use crate::simulated_cluster::{CRDS, SimulatedCluster, condition, ready_service, role, service_with_roles};
use crate::test_cluster::{FUSIONINFER_SERVICES, Fault, OperatorRequest};

fn status(server: &Server) -> Value {
    server.get(FUSIONINFER_SERVICES, "default", "chat").unwrap()["status"].clone()
}

fn has_phase(server: &Server, phase: &str) -> Option<()> {
    (status(server)["components"]["w"]["phase"] == phase).then_some(())
}

/// Returns the counts of ready replicas and Pods.
fn ready_counts(server: &Server) -> [Value; 2] {
    let component = &status(server)["components"]["w"];
    ["readyReplicas", "readyPods"].map(|field| component[field].clone())
}

/// Returns the types of the conditions, and checks that each is for the generation of the status.
fn condition_types(status: &Value) -> Vec<String> {
    let conditions = status["conditions"].as_array().unwrap();
    assert!(conditions.iter().all(|condition| condition["observedGeneration"].is_null()), "{status:#}");
    conditions.iter().map(|condition| condition["type"].as_str().unwrap().to_owned()).collect()
}

fn set_image(cluster: &SimulatedCluster, image: &str) {
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |service| {
        service["spec"]["roles"][0]["template"]["spec"]["containers"][0]["image"] = json!(image);
    });
}

// spec: TOP-78
#[tokio::test(start_paused = true)]
async fn conditions_describe_the_observed_generation() {
    let cluster = SimulatedCluster::with_gpus(16);
    let router = json!({"name": "entry", "componentType": "router", "strategy": "queue-size"});
    let service = service_with_roles("chat", vec![role("w", "worker", 1, 2, 8), router]);
    cluster.server.create(FUSIONINFER_SERVICES, service).unwrap();
    cluster.wait_until_ready("chat").await;
    let ready_status = status(&cluster.server);
    assert_eq!(ready_status["observedGeneration"], 1);
    assert_eq!(condition_types(&ready_status), ["Initialized", "Active", "GangScheduled", "RouterReady", "Ready"]);

    set_image(&cluster, "bad");
    let has_failed = |server: &Server| (condition(server, "chat", "Failed")?["status"] == "True").then_some(());
    cluster.wait_for("the failure", &has_failed).await;
    let failed_status = status(&cluster.server);
    assert_eq!(failed_status["observedGeneration"], 2);
    let types = ["Initialized", "Active", "Failed", "GangScheduled", "RouterReady", "Ready"];
    assert_eq!(condition_types(&failed_status), types);

    set_image(&cluster, "engine:2");
    cluster.wait_until_ready("chat").await;
    let recovered_status = status(&cluster.server);
    assert_eq!(recovered_status["observedGeneration"], 3);
    assert_eq!(condition_types(&recovered_status), condition_types(&ready_status));
}

/// The status retains the generation of the last complete reconcile, and the conditions state their own.
// spec: TOP-78
// spec: TOP-82
#[tokio::test(start_paused = true)]
async fn conditions_state_their_generation_while_pods_cannot_be_listed() {
    let mut cluster = SimulatedCluster::without_operator([api::crds(), api::integrations::crds()].concat());
    cluster.scale_nodes_to(16);
    let are_pods_forbidden = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&are_pods_forbidden);
    let faults = move |request: &OperatorRequest| match flag.load(Ordering::Relaxed) {
        true if request.uri().path() == "/api/v1/pods" => Fault::Status(403),
        _ => Fault::None,
    };
    let operator = cluster.test_cluster.start_operator_until_dropped();
    cluster
        .server
        .create(FUSIONINFER_SERVICES, service_with_roles("chat", vec![role("w", "worker", 1, 2, 8)]))
        .unwrap();
    cluster.wait_until_ready("chat").await;
    drop(operator);
    are_pods_forbidden.store(true, Ordering::Relaxed);
    cluster.test_cluster.start_operator_with_faults(Options::default(), Arc::new(faults));
    set_image(&cluster, "engine:2");
    cluster.wait_for("the phase Unknown", &|server| has_phase(server, "Unknown")).await;
    let unknown_status = status(&cluster.server);
    assert_eq!(unknown_status["observedGeneration"], 1);
    for condition in unknown_status["conditions"].as_array().unwrap() {
        assert_eq!(
            (&condition["status"], &condition["observedGeneration"]),
            (&json!("Unknown"), &json!(2)),
            "{condition}"
        );
    }
    assert_eq!(ready_counts(&cluster.server), [1, 2].map(Value::from), "the last observed counts");
    are_pods_forbidden.store(false, Ordering::Relaxed);
    cluster.wait_until_ready("chat").await;
    assert_eq!(status(&cluster.server)["observedGeneration"], 2);
}

// spec: TOP-82
#[tokio::test(start_paused = true)]
async fn phase_follows_the_replicas() {
    let mut cluster = SimulatedCluster::with_crds(0, api::crds());
    let service = service_with_roles("chat", vec![role("w", "worker", 2, 2, 8)]);
    cluster.server.create(FUSIONINFER_SERVICES, service).unwrap();
    cluster.wait_for("the phase Pending", &|server| has_phase(server, "Pending")).await;
    for definition in api::integrations::crds() {
        cluster.server.create(CRDS, definition).unwrap();
    }
    // Their Pods exist, and wait for nodes.
    cluster.wait_for("the phase Deploying", &|server| has_phase(server, "Deploying")).await;
    cluster.scale_nodes_to(16);
    let is_one_ready = |server: &Server| (ready_counts(server) == [1, 2].map(Value::from)).then_some(());
    cluster.wait_for("the first replica", &is_one_ready).await;
    assert_eq!(has_phase(&cluster.server, "Deploying"), Some(()));
    cluster.scale_nodes_to(32);
    cluster.wait_until_ready("chat").await;
    assert_eq!(has_phase(&cluster.server, "Running"), Some(()));
    set_image(&cluster, "bad");
    cluster.wait_for("the phase Failed", &|server| has_phase(server, "Failed")).await;
    set_image(&cluster, "engine:2");
    cluster.wait_until_ready("chat").await;
    assert_eq!(has_phase(&cluster.server, "Running"), Some(()));
}

/// Only the leader serves, and has the readiness probe.
// spec: TOP-81
#[tokio::test(start_paused = true)]
async fn replica_with_an_unready_pod_is_not_ready() {
    let cluster = SimulatedCluster::with_gpus(32);
    let mut worker = role("w", "worker", 1, 4, 8);
    worker["template"]["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/health", "port": 8000}, "failureThreshold": 1});
    cluster.server.create(FUSIONINFER_SERVICES, service_with_roles("chat", vec![worker])).unwrap();
    cluster.wait_until_ready("chat").await;
    assert_eq!(ready_counts(&cluster.server), [1, 4].map(Value::from));

    cluster.set_reachable("chat-w-0-0", false);
    let is_one_unready = |server: &Server| (ready_counts(server)[1] == 3).then_some(());
    cluster.wait_for("three ready Pods", &is_one_unready).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(ready_counts(&cluster.server), [0, 3].map(Value::from));
    assert!(ready_service(&cluster.server, "chat").is_none());

    cluster.set_reachable("chat-w-0-0", true);
    cluster.wait_until_ready("chat").await;
    assert_eq!(ready_counts(&cluster.server), [1, 4].map(Value::from));
}
