//! Replaces the CustomResourceDefinitions of an earlier release while services run.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::gangs::role;
use super::installing::install_definitions;
use super::test_cluster::{GROUPS, OME, Objects, PODS, ROLES, SERVICES, SETS, TestCluster, object_named};

const NAMESPACE: &str = "upgrade";
/// Recorded output of `ostler crds`, in which `status.components` lacks `nodes`.
const EARLIER_DEFINITIONS: &str = include_str!("../../../../operator/tests/it/upgrade/definitions.yaml");

fn multi_node_service(name: &str) -> Value {
    let runner = json!({"name": "ome-container", "image": "vllm/vllm-openai:v0.11.0", "ports": [{"containerPort": 8080}],
        "resources": {"limits": {"nvidia.com/gpu": "8"}}});
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"engine": {"leader": {"runner": runner}, "worker": {"size": 1, "runner": runner}}}})
}

fn uids(pods: &Objects) -> BTreeSet<String> {
    pods.values().map(|pod| pod["metadata"]["uid"].to_string()).collect()
}

fn specs(services: &Objects) -> Vec<(&String, &Value)> {
    services.iter().map(|(name, service)| (name, &service["spec"])).collect()
}

/// No Pod restarts, the stored services can be read unchanged, and new ones use the new fields.
pub(super) async fn definitions_are_replaced(test_cluster: &TestCluster) {
    let earlier: Vec<Value> = realcluster::parse_documents(EARLIER_DEFINITIONS).unwrap();
    let earlier: Vec<Value> = earlier.iter().flat_map(|list| list["items"].as_array().cloned().unwrap()).collect();
    test_cluster.cluster.apply_definitions(&earlier).await.unwrap();
    test_cluster.namespace(NAMESPACE).await;
    test_cluster.cluster.apply(&realcluster::gpu_nodes(0, 10)).await.unwrap();
    let roles = json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "roles", "namespace": NAMESPACE}, "spec": {"roles": [role("w", "worker", 2, 1, 1)]}});
    test_cluster.apply(&roles).await;
    test_cluster.apply(&multi_node_service("large")).await;
    let services = [(OME, "large"), (ROLES, "roles")];
    for (kind, name) in services {
        test_cluster.wait_for_condition(kind, NAMESPACE, name, ("Ready", "True"), "").await;
    }
    let mut stored = Vec::new();
    for (kind, _) in services {
        stored.push(test_cluster.wait_for("the services", kind, NAMESPACE, |_| true).await);
    }
    assert_eq!(object_named(&stored[0], "large")["status"]["components"]["engine"]["nodes"], Value::Null);
    let pods = test_cluster.wait_for("four Pods", PODS, NAMESPACE, |objects| objects.len() == 4).await;

    install_definitions(test_cluster).await;
    test_cluster.apply(&multi_node_service("later")).await;
    test_cluster
        .wait_for("the new field", OME, NAMESPACE, |objects| {
            objects.get("later").is_some_and(|service| service["status"]["components"]["engine"]["nodes"] == 2)
        })
        .await;
    test_cluster.wait_for_condition(OME, NAMESPACE, "later", ("Ready", "True"), "").await;
    test_cluster.delete(OME, NAMESPACE, "later").await;
    let remaining = test_cluster.wait_for("the Pods", PODS, NAMESPACE, |objects| objects.len() == 4).await;
    assert_eq!(uids(&remaining), uids(&pods), "no Pod restarts");
    for ((kind, name), before) in services.into_iter().zip(&stored) {
        test_cluster.wait_for_condition(kind, NAMESPACE, name, ("Ready", "True"), "").await;
        let after = test_cluster.wait_for("the service", kind, NAMESPACE, |objects| objects.len() == 1).await;
        assert_eq!(specs(&after), specs(before));
        test_cluster.delete(kind, NAMESPACE, name).await;
    }
    test_cluster.wait_for_deletion(NAMESPACE, &[OME, ROLES, SETS, GROUPS, PODS, SERVICES]).await;
}
