//! Replaces the CustomResourceDefinitions of an earlier release while services run.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::gangs::role;
use super::installing::install_definitions;
use super::test_cluster::{GROUPS, OME, Objects, PODS, ROLES, SERVICES, SETS, TestCluster};

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

/// No Pod restarts, the stored service can be read unchanged, and a new one uses the new field. Until then, the API server rejects
/// statuses with this field, so that the service that exists before has no component on several nodes.
pub(super) async fn definitions_are_replaced(test_cluster: &TestCluster) {
    let earlier: Vec<Value> = realcluster::parse_documents(EARLIER_DEFINITIONS).unwrap();
    let earlier: Vec<Value> = earlier.iter().flat_map(|list| list["items"].as_array().cloned().unwrap()).collect();
    test_cluster.cluster.apply_definitions(&earlier).await.unwrap();
    test_cluster.namespace(NAMESPACE).await;
    test_cluster.cluster.apply(&realcluster::gpu_nodes(0, 10)).await.unwrap();
    let roles = json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "roles", "namespace": NAMESPACE}, "spec": {"roles": [role("w", "worker", 2, 1, 1)]}});
    test_cluster.apply(&roles).await;
    let before = test_cluster.wait_for_condition(ROLES, NAMESPACE, "roles", ("Ready", "True"), "").await;
    let pods = test_cluster.wait_for("two Pods", PODS, NAMESPACE, |objects| objects.len() == 2).await;

    install_definitions(test_cluster).await;
    test_cluster.apply(&multi_node_service("later")).await;
    let later = test_cluster.wait_for_condition(OME, NAMESPACE, "later", ("Ready", "True"), "").await;
    assert_eq!(later["status"]["components"]["engine"]["nodes"], 2);
    test_cluster.delete(OME, NAMESPACE, "later").await;
    let remaining = test_cluster.wait_for("the Pods", PODS, NAMESPACE, |objects| objects.len() == 2).await;
    assert_eq!(uids(&remaining), uids(&pods), "no Pod restarts");
    let after = test_cluster.wait_for_condition(ROLES, NAMESPACE, "roles", ("Ready", "True"), "").await;
    assert_eq!(after["spec"], before["spec"]);
    test_cluster.delete(ROLES, NAMESPACE, "roles").await;
    test_cluster.wait_for_deletion(NAMESPACE, &[OME, ROLES, SETS, GROUPS, PODS, SERVICES]).await;
}
