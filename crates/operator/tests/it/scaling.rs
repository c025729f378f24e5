//! Scaling a ready `ome.io` service: replicas run on the selected class, and no edit of replica counts selects again.

use std::sync::Arc;

use embedded::Server;
use serde_json::{Value, json};

use crate::simulated_cluster::SimulatedCluster;
use crate::supply::{self, CLASSES, RUNTIMES, selected_class};
use crate::test_cluster::OME_SERVICES;

const REVISIONS: &str = "controllerrevisions.apps";

/// Adds a node with `gpus` accelerators of class `class`.
pub(crate) fn add_node(server: &Server, name: &str, class: &str, gpus: u32) {
    let mut node = supply::node(name, class);
    for list in ["allocatable", "capacity"] {
        node["status"][list] =
            json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": gpus.to_string()});
    }
    let mut stored = (*server.create("nodes", node.clone()).unwrap()).clone();
    stored["status"] = node["status"].clone();
    server.update_status("nodes", stored).unwrap();
}

/// Starts service `chat` on one accelerator of class `small`; class `big` has eight.
pub(crate) async fn cluster_with_full_class() -> SimulatedCluster {
    let cluster = SimulatedCluster::with_gpus(0);
    let mut runtime = supply::runtime("any");
    runtime["spec"]["engineConfig"]["runner"]["readinessProbe"] =
        json!({"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 5});
    cluster.server.create(RUNTIMES, runtime).unwrap();
    cluster.server.create("clusterbasemodels.ome.io", supply::model("model", "3B")).unwrap();
    for (class, price, gpus) in [("small", "1", 1), ("big", "5", 8)] {
        cluster.server.create(CLASSES, supply::class(class, "80Gi", price)).unwrap();
        add_node(&cluster.server, &format!("node-{class}"), class, gpus);
    }
    cluster.server.create(OME_SERVICES, supply::service("chat", "model")).unwrap();
    wait_until_ready(&cluster, "True").await;
    assert_eq!(selected_class(&service(&cluster.server)), "small");
    cluster
}

pub(crate) fn service(server: &Server) -> Arc<Value> {
    server.get(OME_SERVICES, "default", "chat").unwrap()
}

/// Returns condition `kind` of `chat` if it was observed at the current generation.
pub(crate) fn condition(server: &Server, kind: &str) -> Option<Value> {
    let service = service(server);
    cluster::find_current_condition(&service, kind).cloned()
}

/// Waits until condition `Ready` has this status, and returns its message.
pub(crate) async fn wait_until_ready(cluster: &SimulatedCluster, status: &str) -> String {
    let probe = |server: &Server| {
        let ready = condition(server, "Ready")?;
        (ready["status"] == status).then(|| ready["message"].as_str().unwrap_or_default().to_owned())
    };
    cluster.wait_for(&format!("Ready={status} of chat"), &probe).await
}

/// Returns the UIDs of Pods that are not terminating.
fn pods(server: &Server) -> Vec<String> {
    let is_not_terminating = |pod: &Arc<Value>| pod["metadata"]["deletionTimestamp"].is_null();
    let uid = |pod: Arc<Value>| pod["metadata"]["uid"].as_str().unwrap().to_owned();
    server.list("pods").into_iter().filter(is_not_terminating).map(uid).collect()
}

fn set_replicas(cluster: &SimulatedCluster, replicas: i64) {
    cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| {
        service["spec"]["engine"] = json!({"minReplicas": replicas, "maxReplicas": replicas});
    });
}

#[tokio::test(start_paused = true)]
async fn replicas_run_on_the_selected_class_or_a_condition_says_that_it_has_no_room() {
    let cluster = cluster_with_full_class().await;
    let first_pod = pods(&cluster.server).remove(0);
    set_replicas(&cluster, 2);
    let has_no_room = |server: &Server| {
        let message = condition(server, "Ready")?["message"].as_str()?.to_owned();
        message.starts_with("Class small is too small").then_some(message)
    };
    let message = cluster.wait_for("the class without room", &has_no_room).await;
    let expected = "Class small is too small: the engine requires 2 accelerators and its nodes have 1 in total, enough for 1 of 2 \
        Pods when empty; \
        alternatives per replica: 1 × big for $5.00/h (8 of 8 free). Pod chat-engine-";
    assert!(message.starts_with(expected), "{message}");
    // The retained selection stays retained in later reconciles.
    cluster.test_cluster.wait_until_idle().await;
    assert!(pods(&cluster.server).contains(&first_pod));
    assert_eq!(selected_class(&service(&cluster.server)), "small");
    assert!(condition(&cluster.server, "DecisionStale").is_some(), "`ostler redecide` moves the service");

    add_node(&cluster.server, "node-small-2", "small", 1);
    wait_until_ready(&cluster, "True").await;
    assert_eq!((pods(&cluster.server).len(), pods(&cluster.server).contains(&first_pod)), (2, true));
    assert_eq!(cluster.server.list(REVISIONS).len(), 1, "scaling creates no revision");
    set_replicas(&cluster, 1);
    cluster.wait_for("one Pod", &|server| (pods(server).len() == 1).then_some(())).await;
    assert_eq!(cluster.server.list(REVISIONS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn edit_of_a_field_that_selection_reads_selects_again() {
    let cluster = cluster_with_full_class().await;
    cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| {
        service["spec"]["acceleratorSelector"]["preferredClasses"] = json!(["big"]);
    });
    let is_moved = |server: &Server| (selected_class(&service(server)) == "big").then_some(());
    cluster.wait_for("the preferred class", &is_moved).await;
    wait_until_ready(&cluster, "True").await;
}

#[tokio::test(start_paused = true)]
async fn pods_run_while_the_spec_is_invalid() {
    let cluster = cluster_with_full_class().await;
    let before = pods(&cluster.server);
    let set_model = |name: &str| {
        cluster
            .test_cluster
            .update_object(OME_SERVICES, "chat", |service| service["spec"]["model"]["name"] = json!(name));
    };
    set_model("missing");
    let message = wait_until_ready(&cluster, "False").await;
    assert!(message.contains("missing"), "{message}");
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(pods(&cluster.server), before);
    set_model("model");
    wait_until_ready(&cluster, "True").await;
    assert_eq!(pods(&cluster.server), before);
}
