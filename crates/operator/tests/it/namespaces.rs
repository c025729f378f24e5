//! An operator that is restricted to namespaces.

use operator::Options;
use serde_json::{Value, json};

use crate::supply::{CLASSES, class, create_supply, node};
use crate::test_cluster::{OME_SERVICES, TestCluster, minimal_service, server_with_ostler_crds};

fn service_in(namespace: &str) -> Value {
    let mut service = minimal_service("chat", "small");
    service["metadata"]["namespace"] = json!(namespace);
    service
}

/// Services in the namespaces are served, including changes; other namespaces and cluster-scoped objects are not written.
#[tokio::test(start_paused = true)]
async fn only_objects_of_the_namespaces_are_written() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    // Discovery would create a class for this node.
    server.create("nodes", node("unknown", "NVIDIA-X900")).unwrap();
    for namespace in ["team-a", "team-b", "team-c"] {
        server.create("namespaces", json!({"metadata": {"name": namespace}})).unwrap();
        server.create(OME_SERVICES, service_in(namespace)).unwrap();
    }
    let namespaces = vec!["team-a".to_owned(), "team-b".to_owned()];
    let test_cluster = TestCluster::with_server(server, Options { namespaces, ..Options::default() });
    for namespace in ["team-a", "team-b"] {
        test_cluster
            .wait_for("the Deployment", |server| server.get("deployments.apps", namespace, "chat-engine"))
            .await;
    }
    test_cluster.wait_until_idle().await;
    let server = &test_cluster.server;
    assert!(server.get("deployments.apps", "team-c", "chat-engine").is_none());
    let unserved = server.get(OME_SERVICES, "team-c", "chat").unwrap();
    assert!(unserved["status"].is_null(), "{unserved}");
    let classes = server.list(CLASSES);
    assert_eq!(classes.len(), 1, "no class is discovered");
    assert_eq!(classes[0]["status"], class("big", "80Gi", "5")["status"], "no status is written");

    server.delete("deployments.apps", "team-b", "chat-engine", None).unwrap();
    test_cluster
        .wait_for("the Deployment that replaces the deleted one", |server| {
            server.get("deployments.apps", "team-b", "chat-engine")
        })
        .await;
}
