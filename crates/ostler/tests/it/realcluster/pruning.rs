//! Pruning: objects that the operator created and no longer needs are deleted, objects of other owners are retained.

use serde_json::{Value, json};

use super::gangs::role;
use super::test_cluster::{GROUPS, Objects, PODS, ROLES, SERVICES, SETS, TestCluster, object_named};

fn service(namespace: &str, roles: &[Value]) -> Value {
    json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService", "metadata": {"name": "small", "namespace": namespace},
        "spec": {"roles": roles}})
}

/// A LeaderWorkerSet of another owner has the name of a replica.
// spec: TOP-76
pub(super) async fn objects_of_other_owners_are_retained(test_cluster: &TestCluster) {
    let namespace = "other-owner";
    test_cluster.namespace(namespace).await;
    let template = json!({"spec": {"containers": [{"name": "main", "image": "other"}]}});
    let other_set = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "small-decode-0", "namespace": namespace, "labels": {"owner": "other"}},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template}}});
    test_cluster.apply(&other_set).await;
    let is_ready = |objects: &Objects| object_named(objects, "small-decode-0")["status"]["readyReplicas"] == 1;
    let old_set = test_cluster.wait_for("the set of the other owner", SETS, namespace, is_ready).await;
    test_cluster.apply(&service(namespace, &[role("decode", "worker", 1, 1, 1)])).await;
    test_cluster.wait_for_condition(ROLES, namespace, "small", ("Ready", "False"), "small-decode-0").await;
    test_cluster.delete(ROLES, namespace, "small").await;
    test_cluster.wait_for_deletion(namespace, &[ROLES, GROUPS]).await;
    // The LeaderWorkerSet controller may still update the status.
    let new_set = test_cluster.get(SETS, namespace, "small-decode-0").await;
    let identity =
        |set: &Value| ["uid", "generation", "labels", "ownerReferences"].map(|field| set["metadata"][field].clone());
    assert_eq!(identity(&new_set), identity(&old_set["small-decode-0"]));
    let managers = new_set["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().all(|entry| entry["manager"] != operator::FIELD_MANAGER), "{managers:?}");
}

/// Removes a role, then the need for a gang, then the service.
pub(super) async fn removed_roles_are_pruned(test_cluster: &TestCluster) {
    let namespace = "pruning";
    test_cluster.namespace(namespace).await;
    let (prefill, decode) = (role("prefill", "prefiller", 1, 1, 1), role("decode", "decoder", 1, 2, 1));
    test_cluster.apply(&service(namespace, &[prefill, decode])).await;
    test_cluster.wait_for_condition(ROLES, namespace, "small", ("Ready", "True"), "").await;
    let both_sets = test_cluster.wait_for("two sets", SETS, namespace, |objects| objects.len() == 2).await;
    let group = test_cluster.get(GROUPS, namespace, "small").await;
    assert_eq!(group["spec"]["minMember"], 3);

    let single_role = role("decode", "worker", 1, 1, 1);
    test_cluster.patch(ROLES, namespace, "small", &json!({"spec": {"roles": [single_role]}})).await;
    let remaining_sets = test_cluster.wait_for("one set", SETS, namespace, |objects| objects.len() == 1).await;
    assert_eq!(remaining_sets["small-decode-0"]["metadata"]["uid"], both_sets["small-decode-0"]["metadata"]["uid"]);
    test_cluster.wait_for_deletion(namespace, &[GROUPS]).await;
    test_cluster.wait_for_condition(ROLES, namespace, "small", ("Ready", "True"), "").await;
    test_cluster.delete(ROLES, namespace, "small").await;
    test_cluster.wait_for_deletion(namespace, &[ROLES, SETS, PODS, SERVICES]).await;
}
