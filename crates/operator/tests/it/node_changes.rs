//! Services while nodes and accelerators come and go, and when other services are deleted.

use std::sync::Arc;
use std::time::Duration;

use embedded::Server;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::accelerator_classes::gpu_node;
use crate::events::events;
use crate::kueue;
use crate::scaling::add_node;
use crate::simulated_cluster::SimulatedCluster;
use crate::supply::{self, CLASSES, RUNTIMES};
use crate::test_cluster::OME_SERVICES;

/// Time within which a status must show a change of the cluster.
const STATUS_DELAY: Duration = Duration::from_secs(2);

/// State of a service that is ready; part of no message.
const READY: &str = "(ready)";

/// Returns a service that requests `gpus` accelerators.
fn service(name: &str, gpus: u32) -> Value {
    let mut service = supply::service(name, "model");
    service["spec"]["engine"] = json!({"runner": {"resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}});
    service
}

/// Starts a cluster with one class and its nodes of these numbers of accelerators.
fn cluster_with_nodes(nodes: &[(&str, u32)]) -> SimulatedCluster {
    let cluster = SimulatedCluster::with_gpus(0);
    cluster.server.create(RUNTIMES, supply::runtime("any")).unwrap();
    cluster.server.create("clusterbasemodels.ome.io", supply::model("model", "3B")).unwrap();
    cluster.server.create(CLASSES, supply::class("h100", "80Gi", "5")).unwrap();
    for (name, gpus) in nodes {
        add_node(&cluster.server, name, "h100", *gpus);
    }
    cluster
}

/// Returns the condition `Ready` of a service.
fn ready(server: &Server, name: &str) -> Option<Value> {
    let service = server.get(OME_SERVICES, "default", name)?;
    cluster::find_condition(&service["status"]["conditions"], "Ready").cloned()
}

async fn wait_until_ready(cluster: &SimulatedCluster, name: &str) {
    let is_ready = |server: &Server| (ready(server, name)?["status"] == "True").then_some(());
    cluster.wait_for(&format!("{name} to be ready"), &is_ready).await;
}

/// Returns [`READY`], or why the service is not ready.
fn state(server: &Server, name: &str) -> Option<String> {
    let ready = ready(server, name)?;
    let message = if ready["status"] == "True" { READY } else { ready["message"].as_str()? };
    Some(message.to_owned())
}

/// Waits until the service is not ready with a message that contains `text`, or until it is ready if `text` is [`READY`].
/// Returns the message.
async fn wait_for_message(cluster: &SimulatedCluster, name: &str, text: &str) -> String {
    let message = |server: &Server| state(server, name).filter(|state| state.contains(text));
    cluster.wait_for(&format!("{text} of {name}"), &message).await
}

/// Returns UIDs and restart counts of all Pods.
fn pods(server: &Server) -> Vec<(Value, Value)> {
    let identity = |pod: Arc<Value>| {
        (pod["metadata"]["uid"].clone(), pod["status"]["containerStatuses"][0]["restartCount"].clone())
    };
    server.list("pods").into_iter().map(identity).collect()
}

fn set_allocatable(server: &Server, node: &str, gpus: u32) {
    let mut node = (*server.get("nodes", "", node).unwrap()).clone();
    node["status"]["allocatable"]["nvidia.com/gpu"] = json!(gpus.to_string());
    server.update_status("nodes", node).unwrap();
}

fn set_unschedulable(server: &Server, node: &str, unschedulable: bool) {
    let mut node = (*server.get("nodes", "", node).unwrap()).clone();
    node["spec"]["unschedulable"] = json!(unschedulable);
    server.update("nodes", node).unwrap();
}

/// A device plugin reports one accelerator less than the running Pod requests.
#[tokio::test(start_paused = true)]
async fn lost_accelerator_stops_nothing_and_is_counted() {
    let cluster = cluster_with_nodes(&[("a", 8)]);
    cluster.server.create(OME_SERVICES, service("chat", 8)).unwrap();
    wait_until_ready(&cluster, "chat").await;
    cluster.test_cluster.wait_until_idle().await;
    let pods_before = pods(&cluster.server);
    set_allocatable(&cluster.server, "a", 7);
    let seven = |server: &Server| {
        let class = server.get(CLASSES, "", "h100")?;
        (class["status"]["totalAccelerators"] == 7).then_some(())
    };
    cluster.wait_for("seven accelerators", &seven).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(pods(&cluster.server), pods_before);
    let chat = cluster.server.get(OME_SERVICES, "default", "chat").unwrap();
    assert_eq!(ready(&cluster.server, "chat").unwrap()["status"], "True", "the Pod serves: {:#}", chat["status"]);
    assert_eq!(supply::selected_class(&chat), "h100");

    cluster.server.create(OME_SERVICES, service("more", 8)).unwrap();
    let message = wait_for_message(&cluster, "more", "TooManyPerNode").await;
    let expected = "h100 TooManyPerNode: 8 accelerators per node are requested (the service sets nvidia.com/gpu to 8); the largest node of the class has 7";
    assert!(message.contains(expected), "{message}");
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(pods(&cluster.server), pods_before);

    // The accelerator is repaired.
    set_allocatable(&cluster.server, "a", 8);
    wait_for_message(&cluster, "more", "Class h100 is full").await;
    assert_eq!(ready(&cluster.server, "chat").unwrap()["status"], "True");
}

/// The node has too few accelerators for the Pods of both services, but all of them run: neither service waits.
#[tokio::test(start_paused = true)]
async fn services_whose_pods_run_do_not_wait_for_a_lost_accelerator() {
    let cluster = cluster_with_nodes(&[("a", 8)]);
    for name in ["chat", "summarise"] {
        cluster.server.create(OME_SERVICES, service(name, 4)).unwrap();
        wait_until_ready(&cluster, name).await;
    }
    set_allocatable(&cluster.server, "a", 7);
    cluster.test_cluster.wait_until_idle().await;
    for name in ["chat", "summarise"] {
        let status = &cluster.server.get(OME_SERVICES, "default", name).unwrap()["status"];
        assert!(status["decision"]["warnings"].is_null(), "{:#}", status["decision"]);
        assert_eq!(ready(&cluster.server, name).unwrap()["status"], "True");
        let events = events(&cluster.server, name);
        assert!(events.iter().all(|event| event.starts_with("Normal")), "{events:?}");
    }
}

/// The status contains why the Pod can no longer be scheduled: the class has only a smaller node.
#[tokio::test(start_paused = true)]
async fn pod_that_ends_after_an_accelerator_was_lost_waits_with_the_reason() {
    let cluster = cluster_with_nodes(&[("a", 8)]);
    cluster.server.create(OME_SERVICES, service("chat", 8)).unwrap();
    wait_until_ready(&cluster, "chat").await;
    set_allocatable(&cluster.server, "a", 7);
    let pod = cluster.server.list("pods").remove(0);
    cluster.server.delete("pods", "default", pod["metadata"]["name"].as_str().unwrap(), None).unwrap();
    let message = wait_for_message(&cluster, "chat", "Class h100 is too small").await;
    let expected =
        "the engine requires 8 accelerators and its nodes have 7 in total, too few for one Pod even when empty";
    assert!(message.contains(expected), "{message}");
    set_allocatable(&cluster.server, "a", 8);
    wait_until_ready(&cluster, "chat").await;
}

/// Changes the cluster and waits until the message of `chat` contains `text`; checks that this takes at most
/// [`STATUS_DELAY`] of paused time.
async fn assert_status_changes(cluster: &SimulatedCluster, change: impl FnOnce(&Server), text: &str) {
    cluster.test_cluster.wait_until_idle().await;
    let before = state(&cluster.server, "chat").unwrap();
    assert!(!before.contains(text), "{before}");
    let start = Instant::now();
    change(&cluster.server);
    wait_for_message(cluster, "chat", text).await;
    assert!(start.elapsed() <= STATUS_DELAY, "{text} after {:?}", start.elapsed());
}

/// The status of a service that cannot run follows the cluster, without `ostler redecide`.
#[tokio::test(start_paused = true)]
async fn status_of_an_infeasible_service_follows_the_cluster() {
    let cluster = cluster_with_nodes(&[("a", 4)]);
    cluster.server.create(OME_SERVICES, service("chat", 16)).unwrap();
    wait_for_message(&cluster, "chat", "the largest node of the class has 4").await;

    let larger = |server: &Server| add_node(server, "b", "h100", 8);
    assert_status_changes(&cluster, larger, "the largest node of the class has 8").await;
    let removed = |server: &Server| {
        server.delete("nodes", "", "b", None).unwrap();
    };
    assert_status_changes(&cluster, removed, "the largest node of the class has 4").await;
    // Without any node, the availability of classes would be unknown.
    add_node(&cluster.server, "cpu", "none", 0);
    let none = |server: &Server| {
        server.delete("nodes", "", "a", None).unwrap();
    };
    assert_status_changes(&cluster, none, "no node belongs to the class").await;
    let sufficient = |server: &Server| add_node(server, "c", "h100", 16);
    assert_status_changes(&cluster, sufficient, READY).await;
}

/// The status names the nodes that are cordoned or not ready, as long as they are.
#[tokio::test(start_paused = true)]
async fn status_names_unschedulable_nodes() {
    let cluster = cluster_with_nodes(&[("a", 8), ("b", 8)]);
    cluster.server.create(OME_SERVICES, service("other", 8)).unwrap();
    wait_until_ready(&cluster, "other").await;
    let others = cluster.server.list("pods").remove(0);
    let (used, free) = if others["spec"]["nodeName"] == "a" { ("a", "b") } else { ("b", "a") };
    set_unschedulable(&cluster.server, free, true);
    cluster.server.create(OME_SERVICES, service("chat", 8)).unwrap();
    let expected = format!(
        "Class h100 has too few schedulable nodes: the engine requires 8 accelerators and 0 of 16 are free; \
         1 of 2 nodes is cordoned: {free}; no other class is eligible"
    );
    wait_for_message(&cluster, "chat", &expected).await;
    let uncordoned = |server: &Server| set_unschedulable(server, free, false);
    assert_status_changes(&cluster, uncordoned, READY).await;
    // A cordon does not stop Pods, so the service waits for nothing.
    set_unschedulable(&cluster.server, free, true);
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(state(&cluster.server, "chat").as_deref(), Some(READY));
    let chat = cluster.server.get(OME_SERVICES, "default", "chat").unwrap();
    assert_eq!(chat["status"]["decision"]["warnings"], Value::Null);

    // A drain also cordons the node that another service uses, so that both wait for the same nodes.
    let drained = |server: &Server| {
        for node in [used, free] {
            set_unschedulable(server, node, true);
        }
        let is_of_chat = |pod: &Arc<Value>| pod["metadata"]["labels"]["ome.io/inferenceservice"] == "chat";
        let pod = server.list("pods").into_iter().find(is_of_chat).unwrap();
        server.delete("pods", "default", pod["metadata"]["name"].as_str().unwrap(), None).unwrap();
    };
    let expected = "has too few schedulable nodes: the engine requires 8 accelerators and 0 of 16 are free; \
        2 of 2 nodes are cordoned: a, b";
    assert_status_changes(&cluster, drained, expected).await;
    assert_status_changes(&cluster, uncordoned, READY).await;
}

/// Another service holds all accelerators until it is deleted.
#[tokio::test(start_paused = true)]
async fn status_of_a_waiting_service_follows_the_deletion_of_another_one() {
    let cluster = cluster_with_nodes(&[("a", 8)]);
    cluster.server.create(OME_SERVICES, service("other", 8)).unwrap();
    wait_until_ready(&cluster, "other").await;
    cluster.server.create(OME_SERVICES, service("chat", 8)).unwrap();
    wait_for_message(&cluster, "chat", "Class h100 is full").await;
    let deleted = |server: &Server| {
        server.delete(OME_SERVICES, "default", "other", None).unwrap();
    };
    assert_status_changes(&cluster, deleted, READY).await;
}

/// A ResourceFlavor for the nodes of a discovered class creates another class, but the service keeps its class and its Pod, also when
/// the flavor is deleted.
#[tokio::test(start_paused = true)]
async fn service_stays_while_a_flavor_selects_its_nodes() {
    let flavor_definition = kueue::flavor_crd(&["v1beta1", "v1beta2"]);
    let definitions = [api::crds(), api::integrations::crds(), vec![flavor_definition]].concat();
    let cluster = SimulatedCluster::with_crds(0, definitions);
    cluster.server.create(RUNTIMES, supply::runtime("any")).unwrap();
    cluster.server.create("clusterbasemodels.ome.io", supply::model("model", "3B")).unwrap();
    let mut node = gpu_node("a", "NVIDIA-X900");
    node["status"]["allocatable"]["pods"] = json!("110");
    cluster.server.create("nodes", node).unwrap();
    cluster.server.create(OME_SERVICES, service("chat", 1)).unwrap();
    wait_until_ready(&cluster, "chat").await;
    let state = || {
        let chat = cluster.server.get(OME_SERVICES, "default", "chat").unwrap();
        let pods = cluster.server.list("pods").iter().map(|pod| pod["metadata"]["name"].clone()).collect::<Vec<_>>();
        (chat["status"]["components"]["engine"]["selectedAccelerator"]["acceleratorClass"].clone(), pods)
    };
    let before = state();
    assert_eq!(before.0, "nvidia-x900");
    let flavor = kueue::flavor("x900", json!({"nvidia.com/gpu.product": "NVIDIA-X900"}));
    cluster.server.create(kueue::FLAVORS, flavor).unwrap();
    let class =
        &|server: &Server| server.get(CLASSES, "", "x900").filter(|class| class["status"]["availableNodes"] == 1);
    cluster.wait_for("the class of the flavor", class).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(state(), before);
    cluster.server.delete(kueue::FLAVORS, "", "x900", None).unwrap();
    cluster.test_cluster.wait_for_deletion(CLASSES, "x900").await;
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(state(), before);
}
