//! Effect of changed runtimes, classes, models and nodes on waiting and on ready services.

use serde_json::{Value, json};

use crate::supply::{self, CLASSES, RUNTIMES, add_class_with_node, create_supply, selected_class};
use crate::test_cluster::{OME_SERVICES, TestCluster, server_with_ostler_crds};

const DEPLOYMENTS: &str = "deployments.apps";

/// Starts a ready service `chat` on class `big`.
async fn cluster_with_ready_service() -> TestCluster {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    let test_cluster = TestCluster::with_server(server, operator::Options::default());
    test_cluster.server.create(OME_SERVICES, supply::service("chat", "small")).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    test_cluster.mark_deployment_ready("chat-engine");
    let service = test_cluster.wait_for_condition(OME_SERVICES, "chat", "Ready", "True").await;
    assert_eq!(selected_class(&service), "big");
    test_cluster
}

fn node_selector(server: &embedded::Server) -> Option<Value> {
    let deployment = server.get(DEPLOYMENTS, "default", "chat-engine")?;
    Some(deployment["spec"]["template"]["spec"]["nodeSelector"]["nvidia.com/gpu.product"].clone())
}

// spec: RT-4
// spec: RT-9
// spec: RT-67
#[tokio::test(start_paused = true)]
async fn waiting_service_continues_when_a_runtime_is_eligible() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    let mut disabled_runtime = supply::runtime("any");
    disabled_runtime["spec"]["disabled"] = json!(true);
    server.delete(RUNTIMES, "", "any", None).unwrap();
    server.create(RUNTIMES, disabled_runtime).unwrap();
    let test_cluster = TestCluster::with_server(server, operator::Options::default());
    test_cluster.server.create(OME_SERVICES, supply::service("chat", "small")).unwrap();
    let service = test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "False").await;
    let decision = &service["status"]["decision"];
    assert_eq!((&decision["feasible"], &decision["rejected"]), (&json!(false), &json!("Disabled 1")));
    // Editing the runtime suffices to resolve the waiting service.
    let mut enabled_runtime = (*test_cluster.server.get(RUNTIMES, "", "any").unwrap()).clone();
    enabled_runtime["spec"]["disabled"] = json!(false);
    test_cluster.server.update(RUNTIMES, enabled_runtime).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
}

// spec: ACC-73
// spec: ACC-79
// spec: ACC-124
#[tokio::test(start_paused = true)]
async fn waiting_service_continues_when_a_class_is_eligible() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("t4", "16Gi", "0.5")]);
    server.create("clusterbasemodels.ome.io", supply::model("large", "70B")).unwrap();
    let test_cluster = TestCluster::with_server(server, operator::Options::default());
    test_cluster.server.create(OME_SERVICES, crate::test_cluster::minimal_service("chat", "large")).unwrap();
    let service = test_cluster.wait_for_condition(OME_SERVICES, "chat", "AcceleratorResolved", "False").await;
    let nearest = service["status"]["decision"]["nearest"][0].as_str().unwrap();
    assert!(nearest.starts_with("any: NoEligibleAccelerator: ") && nearest.contains("t4 ModelDoesNotFit"), "{nearest}");
    // The class alone is not sufficient because it has no node yet.
    test_cluster.server.create(CLASSES, supply::class("h100", "80Gi", "5")).unwrap();
    test_cluster.server.create("nodes", supply::node("node-h100", "h100")).unwrap();
    let service = test_cluster.wait_for_condition(OME_SERVICES, "chat", "AcceleratorResolved", "True").await;
    assert_eq!(selected_class(&service), "h100");
}

#[tokio::test(start_paused = true)]
async fn ready_service_retains_its_selection_until_a_user_accepts_a_better_one() {
    let test_cluster = cluster_with_ready_service().await;
    add_class_with_node(&test_cluster.server, "cheap", "80Gi", "1");
    let service = test_cluster.wait_for_condition(OME_SERVICES, "chat", "DecisionStale", "True").await;
    assert_eq!((selected_class(&service), node_selector(&test_cluster.server)), (&json!("big"), Some(json!("big"))));
    let stale_condition = cluster::find_condition(&service["status"]["conditions"], "DecisionStale").unwrap();
    assert!(stale_condition["message"].as_str().unwrap().contains("1 × cheap"), "{stale_condition}");
    test_cluster.update_object(OME_SERVICES, "chat", |service| {
        service["metadata"]["annotations"] = json!({"ome.io/redecide": "t1"});
    });
    let service = test_cluster
        .wait_for("the accepted selection", |server| {
            server.get(OME_SERVICES, "default", "chat").filter(|service| selected_class(service) == "cheap")
        })
        .await;
    assert_eq!(service["status"]["decision"]["redecided"], "t1");
    assert!(cluster::find_condition(&service["status"]["conditions"], "DecisionStale").is_none());
    test_cluster
        .wait_for("the new node selector", |server| node_selector(server).filter(|product| product == "cheap"))
        .await;
}

#[tokio::test(start_paused = true)]
async fn selects_again_when_the_selection_becomes_infeasible() {
    let test_cluster = cluster_with_ready_service().await;
    add_class_with_node(&test_cluster.server, "dear", "80Gi", "9");
    test_cluster.server.delete(CLASSES, "", "big", None).unwrap();
    test_cluster
        .wait_for("another node selector", |server| node_selector(server).filter(|product| product == "dear"))
        .await;
}

#[tokio::test(start_paused = true)]
async fn runtime_edit_is_rolled_out_with_the_same_selection() {
    let test_cluster = cluster_with_ready_service().await;
    let mut runtime = (*test_cluster.server.get(RUNTIMES, "", "any").unwrap()).clone();
    runtime["spec"]["engineConfig"]["runner"]["image"] = json!("example.com/any:2");
    test_cluster.server.update(RUNTIMES, runtime).unwrap();
    test_cluster
        .wait_for("the new image", |server| {
            let deployment = server.get(DEPLOYMENTS, "default", "chat-engine")?;
            (deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/any:2").then_some(())
        })
        .await;
    let service = test_cluster.server.get(OME_SERVICES, "default", "chat").unwrap();
    assert_eq!((selected_class(&service), node_selector(&test_cluster.server)), (&json!("big"), Some(json!("big"))));
}
