//! An hour of changes while no operator runs: after its return, the cluster equals a fresh decision, only services that changed
//! restart, and foreign objects are unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::{controller_uid, find_condition, is_managed_by};
use embedded::Server;
use operator::FIELD_MANAGER;
use serde_json::{Value, json};

use crate::accelerator_classes::{CLASSES, user_class};
use crate::preview::{changes, listing, preview};
use crate::simulated_cluster::SimulatedCluster;
use crate::supply::RUNTIMES;
use crate::test_cluster::{FUSIONINFER_SERVICES, OME_SERVICES};
use crate::upgrade::{SERVICES, SUPPLY, create_node, documents, h100_nodes, node, resource};

const NAMESPACE: &str = "team-a";
const DEPLOYMENTS: &str = "deployments.apps";

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn services(server: &Server) -> Vec<Arc<Value>> {
    [OME_SERVICES, FUSIONINFER_SERVICES].map(|resource| server.list(resource)).concat()
}

/// Returns the recorded service `name`, renamed to `new_name`.
fn service(name: &str, new_name: &str) -> Value {
    let mut service = documents(SERVICES).into_iter().find(|service| self::name(service) == name).unwrap();
    service["metadata"]["name"] = json!(new_name);
    service
}

fn create(server: &Server, object: Value) {
    server.create(&resource(server, &object), object).unwrap();
}

fn edit(server: &Server, resource: &str, namespace: &str, name: &str, edit: impl Fn(&mut Value)) {
    let mut object = (*server.get(resource, namespace, name).unwrap()).clone();
    edit(&mut object);
    server.update(resource, object).unwrap();
}

/// Returns the first Pod whose name starts with `prefix`.
fn pod(server: &Server, prefix: &str) -> Arc<Value> {
    server.list("pods").into_iter().find(|pod| name(pod).starts_with(prefix)).unwrap()
}

/// Returns the service of a Pod.
fn service_of(pod: &Value) -> &str {
    let labels = &pod["metadata"]["labels"];
    let service =
        ["ome.io/inferenceservice", "fusioninfer.io/service"].into_iter().find_map(|key| labels[key].as_str());
    service.unwrap_or("none")
}

async fn wait_until_all_ready(cluster: &SimulatedCluster) {
    let is_ready = |service: &Arc<Value>| {
        let ready = find_condition(&service["status"]["conditions"], "Ready")?;
        (ready["status"] == "True" && service["status"]["observedGeneration"] == service["metadata"]["generation"])
            .then_some(())
    };
    let all_ready = |server: &Server| services(server).iter().try_for_each(is_ready);
    cluster.wait_for("all services to be ready", &all_ready).await;
    cluster.test_cluster.wait_until_idle().await;
}

/// Changes services, runtimes, nodes and Pods, and creates objects of a user.
async fn change_everything(server: &Server) {
    let pause = || tokio::time::sleep(Duration::from_mins(10));
    create(server, service("chat", "new-chat"));
    create(server, service("qwen", "new-qwen"));
    pause().await;
    for name in ["qwen", "new-qwen"] {
        edit(server, FUSIONINFER_SERVICES, NAMESPACE, name, |service| {
            service["spec"]["roles"][0]["template"]["spec"]["containers"][0]["image"] =
                json!("vllm/vllm-openai:v0.11.1");
        });
    }
    edit(server, RUNTIMES, "", "srt-llama-3-2-3b-instruct", |runtime| {
        runtime["spec"]["engineConfig"]["runner"]["image"] = json!("docker.io/lmsysorg/sglang:v0.5.24");
    });
    pause().await;
    server.delete(OME_SERVICES, NAMESPACE, "chat-pd", None).unwrap();
    server.delete(FUSIONINFER_SERVICES, NAMESPACE, "qwen-routed", None).unwrap();
    server.delete(OME_SERVICES, NAMESPACE, "distill", None).unwrap();
    create(server, service("distill", "distill"));
    pause().await;
    let lost_node = pod(server, "summarize-engine")["spec"]["nodeName"].as_str().unwrap().to_owned();
    server.delete("nodes", "", &lost_node, None).unwrap();
    (0..4).for_each(|index| create_node(server, &node(&format!("l40s-{index}"), "NVIDIA-L40S")));
    pause().await;
    let evicted = pod(server, "chat-gang-engine");
    server.delete("pods", NAMESPACE, name(&evicted), None).unwrap();
    let mut failed = (*pod(server, "summarize-engine")).clone();
    failed["status"]["phase"] = json!("Failed");
    server.update_status("pods", failed).unwrap();
    pause().await;
    // The user reuses the name of an object of the deleted service.
    for name in ["chat-pd-engine", "other"] {
        let labels = json!({"ome.io/inferenceservice": "chat-pd", "component": "engine"});
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
        let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": labels});
        server.create(DEPLOYMENTS, json!({"metadata": metadata, "spec": spec})).unwrap();
    }
    server.create(CLASSES, user_class("mine", json!({"nvidia.com/gpu.product": "NVIDIA-L4"}))).unwrap();
    pause().await;
}

/// Returns the objects of the user without status.
fn foreign_objects(server: &Server) -> Vec<Value> {
    let deployments = ["chat-pd-engine", "other"].map(|name| server.get(DEPLOYMENTS, NAMESPACE, name));
    let objects = deployments.into_iter().chain([server.get(CLASSES, "", "mine")]);
    let without_status = |object: Option<Arc<Value>>| {
        let object = object.unwrap();
        json!([
            object["metadata"]["uid"],
            object["metadata"]["generation"],
            object["metadata"]["labels"],
            object["spec"]
        ])
    };
    objects.map(without_status).collect()
}

/// Returns the objects that the operator applied for services that do not exist.
fn orphaned_objects(server: &Server) -> Vec<String> {
    let services = services(server);
    let uids: BTreeSet<_> = services.iter().map(|service| service["metadata"]["uid"].as_str().unwrap()).collect();
    let objects = operator::kinds::OWNED.iter().flat_map(|kind| server.list(&kind.group_resource()));
    let is_orphaned = |object: &Arc<Value>| {
        is_managed_by(object, FIELD_MANAGER) && !controller_uid(object).is_some_and(|uid| uids.contains(uid))
    };
    objects.filter(is_orphaned).map(|object| name(&object).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn returns_after_an_hour_of_changes() {
    let cluster = SimulatedCluster::without_operator([api::crds(), api::integrations::crds()].concat());
    let server = &cluster.server;
    h100_nodes().take(16).for_each(|node| create_node(server, &node));
    server.create("namespaces", json!({"metadata": {"name": NAMESPACE}})).unwrap();
    documents(SUPPLY).into_iter().chain(documents(SERVICES)).for_each(|object| create(server, object));
    let operator = cluster.test_cluster.start_operator_until_dropped();
    wait_until_all_ready(&cluster).await;
    drop(operator);
    cluster.test_cluster.wait_until_idle().await;
    change_everything(server).await;
    cluster.test_cluster.wait_until_idle().await;
    let (foreign, pods) = (foreign_objects(server), server.list("pods"));

    let mut events = server.subscribe();
    cluster.test_cluster.start_operator(operator::Options::default());
    wait_until_all_ready(&cluster).await;

    let mut deleted = BTreeMap::<String, usize>::new();
    let mut created = BTreeMap::<String, usize>::new();
    while let Ok(event) = tokio::time::timeout(Duration::ZERO, events.next()).await {
        let event = event.unwrap();
        match (&event.old, &event.new) {
            (Some(pod), None) if event.resource == "pods" => {
                *deleted.entry(service_of(pod).to_owned()).or_default() += 1;
            }
            (None, Some(pod)) if event.resource == "pods" => {
                *created.entry(service_of(pod).to_owned()).or_default() += 1;
            }
            _ => {}
        }
    }
    let count = |counts: &[(&str, usize)]| counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    assert_eq!(deleted, count(&[("chat", 1), ("qwen", 2)]), "only edited services restart, once");
    assert_eq!(created, count(&[("chat", 1), ("distill", 2), ("new-chat", 1), ("new-qwen", 2), ("qwen", 2)]));
    let restarted = |pod: &Arc<Value>| {
        let live = server.get("pods", NAMESPACE, name(pod))?;
        let is_same_pod = live["metadata"]["uid"] == pod["metadata"]["uid"];
        let has_changed = live["status"]["containerStatuses"] != pod["status"]["containerStatuses"];
        (is_same_pod && has_changed).then(|| name(pod).to_owned())
    };
    assert_eq!(pods.iter().filter_map(restarted).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(foreign_objects(server), foreign);
    assert_eq!(orphaned_objects(server), Vec::<String>::new());
    let previews = preview(&listing(server)).await;
    assert_eq!(previews.len(), 10);
    for preview in previews {
        assert_eq!(changes(&preview), Vec::<String>::new(), "{}", preview.key);
    }
}
