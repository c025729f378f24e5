//! What we made and want no more goes; what is somebody else's stays.

use serde_json::{Value, json};

use super::gangs::role;
use super::world::{GROUPS, Objects, PODS, ROLES, SERVICES, SETS, World, named};

fn service(namespace: &str, roles: &[Value]) -> Value {
    json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService", "metadata": {"name": "small", "namespace": namespace},
        "spec": {"roles": roles}})
}

/// Somebody else's set has the name that a replica would have.
// spec: TOP-76
pub(super) async fn foreign_objects_are_not_touched(world: &World) {
    let namespace = "foreign";
    world.namespace(namespace).await;
    let template = json!({"spec": {"containers": [{"name": "main", "image": "theirs"}]}});
    let theirs = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "small-decode-0", "namespace": namespace, "labels": {"owner": "them"}},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template}}});
    world.apply(&theirs).await;
    let settled = |found: &Objects| named(found, "small-decode-0")["status"]["readyReplicas"] == 1;
    let before = world.until("their set", SETS, namespace, settled).await;
    world.apply(&service(namespace, &[role("decode", "worker", 1, 1, 1)])).await;
    world.condition(ROLES, namespace, "small", ("Ready", "False"), "small-decode-0").await;
    world.delete(ROLES, namespace, "small").await;
    world.nothing_left(namespace, &[ROLES, GROUPS]).await;
    // Its own controller may still write its status.
    let after = world.get(SETS, namespace, "small-decode-0").await;
    let facts =
        |set: &Value| ["uid", "generation", "labels", "ownerReferences"].map(|field| set["metadata"][field].clone());
    assert_eq!(facts(&after), facts(&before["small-decode-0"]));
    let managers = after["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().all(|one| one["manager"] != operator::MANAGER), "{managers:?}");
}

/// A role goes, then the last reason for a gang, then the service.
pub(super) async fn what_is_wanted_no_more_goes(world: &World) {
    let namespace = "pruning";
    world.namespace(namespace).await;
    let (prefill, decode) = (role("prefill", "prefiller", 1, 1, 1), role("decode", "decoder", 1, 2, 1));
    world.apply(&service(namespace, &[prefill, decode])).await;
    world.condition(ROLES, namespace, "small", ("Ready", "True"), "").await;
    let both = world.until("two sets", SETS, namespace, |found| found.len() == 2).await;
    let group = world.get(GROUPS, namespace, "small").await;
    assert_eq!(group["spec"]["minMember"], 3);

    let one = role("decode", "worker", 1, 1, 1);
    world.patch(ROLES, namespace, "small", &json!({"spec": {"roles": [one]}})).await;
    let left = world.until("one set", SETS, namespace, |found| found.len() == 1).await;
    assert_eq!(left["small-decode-0"]["metadata"]["uid"], both["small-decode-0"]["metadata"]["uid"]);
    world.nothing_left(namespace, &[GROUPS]).await;
    world.condition(ROLES, namespace, "small", ("Ready", "True"), "").await;
    world.delete(ROLES, namespace, "small").await;
    world.nothing_left(namespace, &[ROLES, SETS, PODS, SERVICES]).await;
}
