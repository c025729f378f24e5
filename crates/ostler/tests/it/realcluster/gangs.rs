//! Role-based services: LeaderWorkerSet and Volcano come while they wait, and what Volcano then places.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::world::{GROUPS, NODES, Objects, PODS, ROLES, SERVICES, SETS, World, condition, named};

const NAMESPACE: &str = "gangs";
pub(super) const NAME: &str = "deepseek-r1-disagg";

/// Story 4 of the specification: prefill 1 × 2 nodes, decode 2 × 4 nodes, eight GPUs each.
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

/// The condition names what is missing; what is installed later is used at once.
// spec: TOP-1
// spec: TOP-65
pub(super) async fn neighbours_come_late(world: &mut World) {
    world.namespace(NAMESPACE).await;
    world.apply(&disaggregated(NAMESPACE, NAME)).await;
    let waits = ("Ready", "False");
    world.condition(ROLES, NAMESPACE, NAME, waits, "does not serve PodGroup").await;
    an_older_volcano(world).await;
    world.condition(ROLES, NAMESPACE, NAME, waits, "does not serve LeaderWorkerSet").await;
    world.cluster.add_leader_worker_sets().await.unwrap();
    world.until("three sets", SETS, NAMESPACE, |found| found.len() == 3).await;
    world.cluster.add_volcano().await.unwrap();
    let group = world
        .until("a group with subgroups", GROUPS, NAMESPACE, |found| {
            found.get(NAME).is_some_and(|group| group["spec"]["subGroupPolicy"].is_array())
        })
        .await;
    let spec = &group[NAME]["spec"];
    assert_eq!((&spec["minMember"], &spec["minTaskMember"]), (&json!(6), &Value::Null), "{spec}");
}

/// A definition without `subGroupPolicy`, as before 1.14: the API server would drop the field without a word.
async fn an_older_volcano(world: &World) {
    let mut older = world.cluster.pod_group_definition().unwrap();
    let fields = older.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties").unwrap();
    assert!(fields.as_object_mut().unwrap().remove("subGroupPolicy").is_some());
    world.cluster.define(&[older]).await.unwrap();
    let group = world.until("a group of all", GROUPS, NAMESPACE, |found| found.contains_key(NAME)).await;
    let spec = &group[NAME]["spec"];
    assert_eq!(spec["minMember"], 10);
    assert_eq!(spec["minTaskMember"], json!({"decode-0": 4, "decode-1": 4, "prefill-0": 2}));
}

/// The specification's table, row by row, as nodes come: never half a replica.
// spec: TOP-60
// spec: TOP-61
// spec: TOP-62
// spec: TOP-63
// spec: TOP-64
// spec: TOP-66
// spec: TOP-67
// spec: TOP-69
// spec: TOP-70
pub(super) async fn the_table(world: &World) {
    let rows: [(usize, &[(&str, usize)]); 5] = [
        (2, &[]),
        (4, &[]),
        (6, &[("decode-0", 4), ("prefill-0", 2)]),
        (8, &[("decode-0", 4), ("prefill-0", 2)]),
        (10, &[("decode-0", 4), ("decode-1", 4), ("prefill-0", 2)]),
    ];
    let mut before = BTreeMap::new();
    for (nodes, expected) in rows {
        world.cluster.apply(&realcluster::gpu_nodes(0, nodes)).await.unwrap();
        let expected: BTreeMap<String, usize> =
            expected.iter().map(|(replica, pods)| ((*replica).to_owned(), *pods)).collect();
        let what = format!("{} GPUs: {expected:?}", nodes * 8);
        world.until(&what, PODS, NAMESPACE, |found| bound(found) == expected).await;
        a_whole_round(world, nodes - 1).await;
        let pods = world.until("ten Pods", PODS, NAMESPACE, |found| gang(found).len() == 10).await;
        assert_eq!(bound(&pods), expected, "{} GPUs, after Volcano has looked at all of them", nodes * 8);
        // What ran goes on running where it is.
        let now = placed(&pods);
        assert!(before.iter().all(|(pod, node)| now.get(pod) == Some(node)), "{before:?} {now:?}");
        before = now;
        told(world, nodes).await;
    }
    world.condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    world.delete(ROLES, NAMESPACE, NAME).await;
    world.nothing_left(NAMESPACE, &[ROLES, SETS, GROUPS, PODS, SERVICES]).await;
}

/// What the status says of each row.
async fn told(world: &World, nodes: usize) {
    let active = if nodes >= 6 { "True" } else { "False" };
    let ready = if nodes == 10 { "True" } else { "False" };
    world
        .until(&format!("the status at {} GPUs", nodes * 8), ROLES, NAMESPACE, |found| {
            let is = |kind, status| condition(named(found, NAME), kind).is_some_and(|one| one["status"] == status);
            is("Active", active) && is("Ready", ready)
        })
        .await;
}

fn gang(pods: &Objects) -> Vec<&Value> {
    pods.values().filter(|pod| pod["metadata"]["labels"]["fusioninfer.io/service"] == NAME).collect()
}

/// `ROLE-INDEX` of each replica that has bound Pods, and how many.
pub(super) fn bound(pods: &Objects) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for pod in gang(pods).into_iter().filter(|pod| pod["spec"]["nodeName"].is_string()) {
        let label = |name: &str| pod["metadata"]["labels"][name].as_str().unwrap_or_default().to_owned();
        *found
            .entry(format!("{}-{}", label("fusioninfer.io/role-name"), label("fusioninfer.io/replica-index")))
            .or_default() += 1;
    }
    found
}

fn placed(pods: &Objects) -> BTreeMap<String, Value> {
    let bound = gang(pods).into_iter().filter(|pod| pod["spec"]["nodeName"].is_string());
    bound.map(|pod| (pod["metadata"]["uid"].to_string(), pod["spec"]["nodeName"].clone())).collect()
}

/// Volcano binds a Pod that only the newest node takes, twice: so a whole round with that node lies behind us.
async fn a_whole_round(world: &World, newest: usize) {
    let node = format!("gpu-{newest}");
    world.until("the newest node", NODES, "", |found| found.contains_key(&node)).await;
    for round in ["one", "two"] {
        let name = format!("{node}-{round}");
        world
            .apply(
                &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {
                "schedulerName": "volcano", "nodeSelector": {"kubernetes.io/hostname": node},
                "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "10m"}}}]}}),
            )
            .await;
        world.until(&name, PODS, "default", |found| named(found, &name)["spec"]["nodeName"].is_string()).await;
    }
    for round in ["one", "two"] {
        world.delete(PODS, "default", &format!("{node}-{round}")).await;
    }
}
