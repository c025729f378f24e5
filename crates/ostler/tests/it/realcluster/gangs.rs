//! Role-based services: LeaderWorkerSet and Volcano are installed after the service, and Volcano schedules the gang.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::test_cluster::{
    GROUPS, NODES, Objects, PODS, ROLES, SERVICES, SETS, TestCluster, find_condition, object_named, wait_for_empty_diff,
};

const NAMESPACE: &str = "gangs";
pub(super) const NAME: &str = "deepseek-r1-disagg";

/// A gang of one prefill replica on 2 nodes and two decode replicas on 4 nodes each, with eight GPUs per node (seed
/// 002, Story 4).
pub(super) fn disaggregated(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService", "metadata": {"name": name, "namespace": namespace},
        "spec": {"roles": [role("prefill", "prefiller", 1, 2, 8), role("decode", "decoder", 2, 4, 8)]}})
}

pub(super) fn role(name: &str, kind: &str, replicas: u32, nodes: u32, gpus: u32) -> Value {
    let container = json!({"name": "vllm", "image": "vllm/vllm-openai:v0.11.0", "command": ["vllm", "serve", "deepseek-ai/DeepSeek-R1"],
        "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}});
    let mut role = json!({"name": name, "componentType": kind, "replicas": replicas, "template": {"spec": {"containers": [container]}}});
    if nodes > 1 {
        role["multinode"] = json!({"nodeCount": nodes});
    }
    role
}

/// The condition names the missing APIs. The operator uses them as soon as they are installed.
// spec: TOP-1
// spec: TOP-65
pub(super) async fn integrations_installed_later(test_cluster: &mut TestCluster) {
    test_cluster.namespace(NAMESPACE).await;
    test_cluster.apply(&disaggregated(NAMESPACE, NAME)).await;
    let not_ready = ("Ready", "False");
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, not_ready, "does not serve PodGroup").await;
    install_older_volcano(test_cluster).await;
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, not_ready, "does not serve LeaderWorkerSet").await;
    test_cluster.cluster.install_leader_worker_set().await.unwrap();
    test_cluster.wait_for("three sets", SETS, NAMESPACE, |objects| objects.len() == 3).await;
    test_cluster.cluster.install_volcano().await.unwrap();
    let group = test_cluster
        .wait_for("a group with subgroups", GROUPS, NAMESPACE, |objects| {
            objects.get(NAME).is_some_and(|group| group["spec"]["subGroupPolicy"].is_array())
        })
        .await;
    let spec = &group[NAME]["spec"];
    assert_eq!((&spec["minMember"], &spec["minTaskMember"]), (&json!(6), &Value::Null), "{spec}");
}

/// Installs a PodGroup definition without `subGroupPolicy`, as in Volcano versions before 1.14. The API server would
/// prune the field.
async fn install_older_volcano(test_cluster: &TestCluster) {
    let mut older_definition = test_cluster.cluster.pod_group_definition().unwrap();
    let fields =
        older_definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties").unwrap();
    assert!(fields.as_object_mut().unwrap().remove("subGroupPolicy").is_some());
    test_cluster.cluster.apply_definitions(&[older_definition]).await.unwrap();
    let group = test_cluster.wait_for("a group of all", GROUPS, NAMESPACE, |objects| objects.contains_key(NAME)).await;
    let spec = &group[NAME]["spec"];
    assert_eq!(spec["minMember"], 10);
    assert_eq!(spec["minTaskMember"], json!({"decode-0": 4, "decode-1": 4, "prefill-0": 2}));
}

/// The table of the specification: replicas are scheduled completely or not at all while nodes are added.
// spec: TOP-60
// spec: TOP-61
// spec: TOP-62
// spec: TOP-63
// spec: TOP-64
// spec: TOP-66
// spec: TOP-67
// spec: TOP-69
// spec: TOP-70
pub(super) async fn schedules_complete_replicas(test_cluster: &TestCluster) {
    let rows: [(usize, &[(&str, usize)]); 5] = [
        (2, &[]),
        (4, &[]),
        (6, &[("decode-0", 4), ("prefill-0", 2)]),
        (8, &[("decode-0", 4), ("prefill-0", 2)]),
        (10, &[("decode-0", 4), ("decode-1", 4), ("prefill-0", 2)]),
    ];
    let mut old_nodes = BTreeMap::new();
    for (nodes, expected) in rows {
        test_cluster.cluster.apply(&realcluster::gpu_nodes(0, nodes)).await.unwrap();
        let expected: BTreeMap<String, usize> =
            expected.iter().map(|(replica, pods)| ((*replica).to_owned(), *pods)).collect();
        let description = format!("{} GPUs: {expected:?}", nodes * 8);
        test_cluster
            .wait_for(&description, PODS, NAMESPACE, |objects| bound_pods_per_replica(objects) == expected)
            .await;
        wait_for_scheduling_cycle(test_cluster, nodes - 1).await;
        let pods = test_cluster.wait_for("ten Pods", PODS, NAMESPACE, |objects| gang_pods(objects).len() == 10).await;
        assert_eq!(bound_pods_per_replica(&pods), expected, "{} GPUs, after a complete scheduling cycle", nodes * 8);
        // Running Pods are not moved.
        let new_nodes = nodes_by_pod(&pods);
        assert!(old_nodes.iter().all(|(pod, node)| new_nodes.get(pod) == Some(node)), "{old_nodes:?} {new_nodes:?}");
        old_nodes = new_nodes;
        wait_for_status(test_cluster, nodes).await;
    }
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    wait_for_empty_diff(test_cluster, NAMESPACE).await;
    test_cluster.delete(ROLES, NAMESPACE, NAME).await;
    test_cluster.wait_for_deletion(NAMESPACE, &[ROLES, SETS, GROUPS, PODS, SERVICES]).await;
}

/// Waits for the conditions of a row of the table.
async fn wait_for_status(test_cluster: &TestCluster, nodes: usize) {
    let active = if nodes >= 6 { "True" } else { "False" };
    let ready = if nodes == 10 { "True" } else { "False" };
    test_cluster
        .wait_for(&format!("the status at {} GPUs", nodes * 8), ROLES, NAMESPACE, |objects| {
            let has_status = |kind, status| {
                find_condition(object_named(objects, NAME), kind).is_some_and(|condition| condition["status"] == status)
            };
            has_status("Active", active) && has_status("Ready", ready)
        })
        .await;
}

/// Returns the Pods of services.
fn gang_pods(pods: &Objects) -> Vec<&Value> {
    pods.values().filter(|pod| pod["metadata"]["labels"]["fusioninfer.io/service"].is_string()).collect()
}

/// Returns the number of bound Pods per replica (`ROLE-INDEX`).
pub(super) fn bound_pods_per_replica(pods: &Objects) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for pod in gang_pods(pods).into_iter().filter(|pod| pod["spec"]["nodeName"].is_string()) {
        let label = |name: &str| pod["metadata"]["labels"][name].as_str().unwrap_or_default().to_owned();
        *counts
            .entry(format!("{}-{}", label("fusioninfer.io/role-name"), label("fusioninfer.io/replica-index")))
            .or_default() += 1;
    }
    counts
}

/// Returns the node of each bound Pod, by UID.
fn nodes_by_pod(pods: &Objects) -> BTreeMap<String, Value> {
    let bound_pods = gang_pods(pods).into_iter().filter(|pod| pod["spec"]["nodeName"].is_string());
    bound_pods.map(|pod| (pod["metadata"]["uid"].to_string(), pod["spec"]["nodeName"].clone())).collect()
}

/// Waits until Volcano has bound two Pods that only the newest node can run. At least one complete scheduling cycle has then
/// considered that node.
pub(super) async fn wait_for_scheduling_cycle(test_cluster: &TestCluster, newest: usize) {
    let node = format!("gpu-{newest}");
    test_cluster.wait_for("the newest node", NODES, "", |objects| objects.contains_key(&node)).await;
    for round in ["one", "two"] {
        let name = format!("{node}-{round}");
        test_cluster
            .apply(
                &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {
                "schedulerName": "volcano", "nodeSelector": {"kubernetes.io/hostname": node},
                "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "10m"}}}]}}),
            )
            .await;
        test_cluster
            .wait_for(&name, PODS, "default", |objects| object_named(objects, &name)["spec"]["nodeName"].is_string())
            .await;
    }
    for round in ["one", "two"] {
        test_cluster.delete(PODS, "default", &format!("{node}-{round}")).await;
    }
}
