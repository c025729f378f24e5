//! Nodes are taken from a gang that runs, and given back.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::gangs::{NAME, bound, disaggregated};
use super::world::{GROUPS, NODES, Objects, PODS, REVISIONS, ROLES, SERVICES, SETS, STATEFUL_SETS, World, condition};
use crate::session::{ostler, outcome};

const NAMESPACE: &str = "capacity";
const NODE_COUNT: usize = 10;

/// A replica of which a Pod is lost gives all its nodes up and waits whole; the others go on, and it comes back by itself.
pub(super) async fn taken_and_given_back(world: &World) {
    world.namespace(NAMESPACE).await;
    world.cluster.apply(&realcluster::gpu_nodes(0, NODE_COUNT)).await.unwrap();
    world.apply(&disaggregated(NAMESPACE, NAME)).await;
    world.condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    let stood = uids(&placed(world, &[("decode-0", 4), ("decode-1", 4), ("prefill-0", 2)]).await);

    lose(world, "decode-1", 2).await;
    gang_says(world, "PartialCapacity", "1 prefill + 1 decode of 1 + 2; decode-1 waits: ").await;
    let left = placed(world, &[("decode-0", 4), ("prefill-0", 2)]).await;
    world.condition(ROLES, NAMESPACE, NAME, ("Active", "True"), "decode 1 of 2").await;

    // The pair's other half goes too, and no two nodes are free: what still stands is not said to be blocked.
    for node in free_nodes(&left) {
        cordon(world, &node, true).await;
    }
    lose(world, "prefill-0", 1).await;
    let words = "0 prefill + 1 decode of 1 + 2 have all their nodes; prefill-0 waits: ";
    gang_says(world, "BelowMinimum", words).await;
    placed(world, &[("decode-0", 4)]).await;
    world.condition(ROLES, NAMESPACE, NAME, ("Active", "False"), "Unschedulable").await;
    the_command_ends(world);

    for number in 0..NODE_COUNT {
        cordon(world, &format!("gpu-{number}"), false).await;
    }
    gang_says(world, "FullCapacity", "every replica has its nodes: 1 prefill + 2 decode").await;
    world.condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    let back = uids(&placed(world, &[("decode-0", 4), ("decode-1", 4), ("prefill-0", 2)]).await);
    let of_decode_0 = |uids: &BTreeMap<String, Value>| -> Vec<Value> {
        uids.iter().filter(|(name, _)| name.contains("-decode-0-")).map(|(_, uid)| uid.clone()).collect()
    };
    assert_eq!(of_decode_0(&back), of_decode_0(&stood), "what stood was not touched");

    world.delete(ROLES, NAMESPACE, NAME).await;
    world.nothing_left(NAMESPACE, &[ROLES, SETS, STATEFUL_SETS, GROUPS, PODS, SERVICES, REVISIONS]).await;
}

fn uids(pods: &Objects) -> BTreeMap<String, Value> {
    pods.iter().map(|(name, pod)| (name.clone(), pod["metadata"]["uid"].clone())).collect()
}

async fn gang_says(world: &World, reason: &str, words: &str) {
    let says = |found: &Objects| {
        let told = found.get(NAME).and_then(|service| condition(service, "GangScheduled"));
        told.is_some_and(|told| told["reason"] == reason && told["message"].as_str().unwrap().starts_with(words))
    };
    world.until(&format!("{reason} {words}"), ROLES, NAMESPACE, says).await;
}

/// Once exactly these replicas have so many Pods on nodes, none of which is going: all Pods.
async fn placed(world: &World, expected: &[(&str, usize)]) -> Objects {
    let expected: BTreeMap<String, usize> = expected.iter().map(|(name, pods)| ((*name).to_owned(), *pods)).collect();
    let stays = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_null();
    let holds = |found: &Objects| found.len() == 10 && found.values().all(stays) && bound(found) == expected;
    world.until(&format!("{expected:?}"), PODS, NAMESPACE, holds).await
}

/// Nodes on which no Pod of `pods` is.
fn free_nodes(pods: &Objects) -> Vec<String> {
    let taken = |node: &String| pods.values().any(|pod| pod["spec"]["nodeName"] == **node);
    (0..NODE_COUNT).map(|number| format!("gpu-{number}")).filter(|node| !taken(node)).collect()
}

async fn cordon(world: &World, node: &str, unschedulable: bool) {
    world.patch(NODES, "", node, &json!({"spec": {"unschedulable": unschedulable.then_some(true)}})).await;
}

/// Worker `number` of a replica goes with its node. As on a machine that does not answer, its Pod is long in going: until
/// LeaderWorkerSet has begun to replace the group.
async fn lose(world: &World, replica: &str, number: usize) {
    let leader = format!("{NAME}-{replica}-0");
    let pod = format!("{leader}-{number}");
    let before = world.get(PODS, NAMESPACE, &leader).await["metadata"]["uid"].clone();
    let node = world.get(PODS, NAMESPACE, &pod).await["spec"]["nodeName"].as_str().unwrap().to_owned();
    cordon(world, &node, true).await;
    world.patch(PODS, NAMESPACE, &pod, &json!({"metadata": {"finalizers": ["example.com/unreachable"]}})).await;
    world.delete(PODS, NAMESPACE, &pod).await;
    let going = |found: &Objects| {
        let leader = found.get(&leader).map(|leader| &leader["metadata"]);
        leader.is_none_or(|leader| leader["deletionTimestamp"].is_string() || leader["uid"] != before)
    };
    world.until("the group to be made anew", PODS, NAMESPACE, going).await;
    world.patch(PODS, NAMESPACE, &pod, &json!({"metadata": {"finalizers": null}})).await;
}

/// Nobody is kept waiting for a node that may never come.
fn the_command_ends(world: &World) {
    let kubeconfig = world.cluster.kubeconfig.display().to_string();
    let title = format!("inferenceservice.fusioninfer.io/{NAME}");
    let args = ["rollout", "status", &title, "-n", NAMESPACE, "--progress-deadline", "2s", "--kubeconfig", &kubeconfig];
    let (stdout, stderr, code) = outcome(&ostler(&args).output().unwrap());
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stderr.contains(&format!("{title}: has not moved for 2 s; ")), "{stderr}");
}
