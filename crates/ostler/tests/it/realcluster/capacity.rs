//! Loss and recovery of nodes of a running gang.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::gangs::{NAME, bound_pods_per_replica, disaggregated};
use super::test_cluster::{
    GROUPS, NODES, Objects, PODS, REVISIONS, ROLES, SERVICES, SETS, STATEFUL_SETS, TestCluster, find_condition,
};
use crate::session::{ostler, outcome};

const NAMESPACE: &str = "capacity";
const NODE_COUNT: usize = 10;

/// A replica that loses a Pod releases all its nodes and waits for capacity. The other replicas keep running, and the replica
/// recovers without intervention.
pub(super) async fn gang_recovers_after_node_loss(test_cluster: &TestCluster) {
    test_cluster.namespace(NAMESPACE).await;
    test_cluster.cluster.apply(&realcluster::gpu_nodes(0, NODE_COUNT)).await.unwrap();
    test_cluster.apply(&disaggregated(NAMESPACE, NAME)).await;
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    let initial_uids =
        uids(&wait_for_scheduled_pods(test_cluster, &[("decode-0", 4), ("decode-1", 4), ("prefill-0", 2)]).await);

    fail_worker(test_cluster, "decode-1", 2).await;
    wait_for_gang_condition(
        test_cluster,
        "PartialCapacity",
        "Scheduled replicas: prefill 1 of 1, decode 1 of 2; decode-1 is not scheduled: ",
    )
    .await;
    let remaining_pods = wait_for_scheduled_pods(test_cluster, &[("decode-0", 4), ("prefill-0", 2)]).await;
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, ("Active", "True"), "decode 1 of 2").await;

    // The prefill replica fails too, and no two nodes are free: the running decode replica is not reported as waiting.
    for node in free_nodes(&remaining_pods) {
        cordon(test_cluster, &node, true).await;
    }
    fail_worker(test_cluster, "prefill-0", 1).await;
    let message = "Fully scheduled replicas: prefill 0 of 1, decode 1 of 2; prefill-0 is not scheduled: ";
    wait_for_gang_condition(test_cluster, "BelowMinimum", message).await;
    wait_for_scheduled_pods(test_cluster, &[("decode-0", 4)]).await;
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, ("Active", "False"), "Unschedulable").await;
    rollout_status_exceeds_progress_deadline(test_cluster);

    for number in 0..NODE_COUNT {
        cordon(test_cluster, &format!("gpu-{number}"), false).await;
    }
    wait_for_gang_condition(test_cluster, "FullCapacity", "").await;
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    let recovered_uids =
        uids(&wait_for_scheduled_pods(test_cluster, &[("decode-0", 4), ("decode-1", 4), ("prefill-0", 2)]).await);
    let decode_0_uids = |uids: &BTreeMap<String, Value>| -> Vec<Value> {
        uids.iter().filter(|(name, _)| name.contains("-decode-0-")).map(|(_, uid)| uid.clone()).collect()
    };
    assert_eq!(decode_0_uids(&recovered_uids), decode_0_uids(&initial_uids), "the other replicas were not restarted");

    test_cluster.delete(ROLES, NAMESPACE, NAME).await;
    test_cluster.wait_for_deletion(NAMESPACE, &[ROLES, SETS, STATEFUL_SETS, GROUPS, PODS, SERVICES, REVISIONS]).await;
}

pub(super) fn uids(pods: &Objects) -> BTreeMap<String, Value> {
    pods.iter().map(|(name, pod)| (name.clone(), pod["metadata"]["uid"].clone())).collect()
}

/// Waits for the condition `GangScheduled` with a reason and the start of a message.
async fn wait_for_gang_condition(test_cluster: &TestCluster, reason: &str, message: &str) {
    let has_condition = |objects: &Objects| {
        let condition = objects.get(NAME).and_then(|service| find_condition(service, "GangScheduled"));
        condition.is_some_and(|condition| {
            condition["reason"] == reason && condition["message"].as_str().unwrap_or_default().starts_with(message)
        })
    };
    test_cluster.wait_for(&format!("{reason} {message}"), ROLES, NAMESPACE, has_condition).await;
}

/// Waits until exactly these replicas have this number of scheduled Pods and no Pod is terminating. Returns all Pods.
async fn wait_for_scheduled_pods(test_cluster: &TestCluster, expected: &[(&str, usize)]) -> Objects {
    let expected: BTreeMap<String, usize> = expected.iter().map(|(name, pods)| ((*name).to_owned(), *pods)).collect();
    let is_not_terminating = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_null();
    let is_expected = |objects: &Objects| {
        objects.len() == 10 && objects.values().all(is_not_terminating) && bound_pods_per_replica(objects) == expected
    };
    test_cluster.wait_for(&format!("{expected:?}"), PODS, NAMESPACE, is_expected).await
}

/// Returns the nodes without any of `pods`.
fn free_nodes(pods: &Objects) -> Vec<String> {
    let is_in_use = |node: &String| pods.values().any(|pod| pod["spec"]["nodeName"] == **node);
    (0..NODE_COUNT).map(|number| format!("gpu-{number}")).filter(|node| !is_in_use(node)).collect()
}

pub(super) async fn cordon(test_cluster: &TestCluster, node: &str, unschedulable: bool) {
    test_cluster.patch(NODES, "", node, &json!({"spec": {"unschedulable": unschedulable.then_some(true)}})).await;
}

/// Cordons the node of worker `number` of a replica and deletes its Pod. A finalizer delays the deletion, as on an unreachable
/// node, until LeaderWorkerSet has started to recreate the group.
async fn fail_worker(test_cluster: &TestCluster, replica: &str, number: usize) {
    let leader = format!("{NAME}-{replica}-0");
    let pod = format!("{leader}-{number}");
    let old_uid = test_cluster.get(PODS, NAMESPACE, &leader).await["metadata"]["uid"].clone();
    let node = test_cluster.get(PODS, NAMESPACE, &pod).await["spec"]["nodeName"].as_str().unwrap().to_owned();
    cordon(test_cluster, &node, true).await;
    test_cluster.patch(PODS, NAMESPACE, &pod, &json!({"metadata": {"finalizers": ["example.com/unreachable"]}})).await;
    test_cluster.delete(PODS, NAMESPACE, &pod).await;
    let is_recreated = |objects: &Objects| {
        let leader = objects.get(&leader).map(|leader| &leader["metadata"]);
        leader.is_none_or(|leader| leader["deletionTimestamp"].is_string() || leader["uid"] != old_uid)
    };
    test_cluster.wait_for("the group to be recreated", PODS, NAMESPACE, is_recreated).await;
    test_cluster.patch(PODS, NAMESPACE, &pod, &json!({"metadata": {"finalizers": null}})).await;
}

/// `ostler rollout status` does not wait forever for missing nodes.
fn rollout_status_exceeds_progress_deadline(test_cluster: &TestCluster) {
    let kubeconfig = test_cluster.cluster.kubeconfig.display().to_string();
    let title = format!("inferenceservice.fusioninfer.io/{NAME}");
    let args = ["rollout", "status", &title, "-n", NAMESPACE, "--progress-deadline", "2s", "--kubeconfig", &kubeconfig];
    let (stdout, stderr, code) = outcome(&ostler(&args).output().unwrap());
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stderr.contains(&format!("{title}: no progress for 2 s; ")), "{stderr}");
}
