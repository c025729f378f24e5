//! A broken image stops at the first replica, and is undone; a good one is held by a pause.

use serde_json::{Value, json};

use super::gangs::role;
use super::world::{GROUPS, Objects, PODS, ROLES, SERVICES, SETS, World};
use crate::session::{ostler, outcome};

const NAMESPACE: &str = "rollout";
const IMAGE: &str = "vllm/vllm-openai:v0.11.0";
const NEWER: &str = "vllm/vllm-openai:v0.12.0";
const BROKEN: &str = "example.com/broken:1";
const TITLE: &str = "inferenceservice.fusioninfer.io/chat";

fn service(image: &str) -> Value {
    let mut decode = role("decode", "worker", 2, 2, 1);
    let container = &mut decode["template"]["spec"]["containers"][0];
    container["image"] = json!(image);
    container["readinessProbe"] = json!({"httpGet": {"path": "/health", "port": 8000}});
    json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": NAMESPACE}, "spec": {"roles": [decode]}})
}

/// The images of both replicas, in order.
fn images(sets: &Objects) -> Vec<&str> {
    let template = "/spec/leaderWorkerTemplate/workerTemplate/spec/containers/0/image";
    sets.values().filter_map(|set| set.pointer(template)?.as_str()).collect()
}

/// stdout and stderr of `ostler rollout ACTION`.
fn rollout(world: &World, action: &str, expect: i32) -> String {
    let kubeconfig = world.cluster.kubeconfig.display().to_string();
    let args = ["rollout", action, TITLE, "-n", NAMESPACE, "--kubeconfig", &kubeconfig];
    let (stdout, stderr, code) = outcome(&ostler(&args).output().unwrap());
    assert_eq!(code, Some(expect), "{action}: {stdout}{stderr}");
    stdout + &stderr
}

pub(super) async fn a_broken_image_stops_and_is_undone(world: &World) {
    world.namespace(NAMESPACE).await;
    world.apply(&service(IMAGE)).await;
    world.condition(ROLES, NAMESPACE, "chat", ("Ready", "True"), "").await;
    world.apply(&service(BROKEN)).await;
    let told = rollout(world, "status", 1);
    assert!(told.contains("stopped; ") && told.contains(BROKEN), "{told}");
    let sets =
        world.until("one replica of the new image", SETS, NAMESPACE, |found| images(found).contains(&BROKEN)).await;
    let mut both = images(&sets);
    both.sort_unstable();
    assert_eq!(both, [BROKEN, IMAGE], "the other replica is left alone");
    world.condition(ROLES, NAMESPACE, "chat", ("Active", "True"), "decode 1 of 2").await;

    rollout(world, "undo", 0);
    // What the broken Pod said is past as soon as it is undone.
    let told = rollout(world, "status", 0);
    assert!(told.contains("rolled out; ready replicas: decode 2 of 2"), "{told}");
    world.until("both replicas of the old image", SETS, NAMESPACE, |found| images(found) == [IMAGE, IMAGE]).await;
}

pub(super) async fn a_paused_one_goes_on_when_it_is_resumed(world: &World) {
    rollout(world, "pause", 0);
    world.apply(&service(NEWER)).await;
    let told = rollout(world, "status", 0);
    assert!(told.contains("paused; rollout of decode: 0 of 2 replicas are updated"), "{told}");
    world.until("both replicas of the old image", SETS, NAMESPACE, |found| images(found) == [IMAGE, IMAGE]).await;
    rollout(world, "resume", 0);
    let told = rollout(world, "status", 0);
    assert!(told.contains("rolled out; "), "{told}");
    world.until("both replicas of the new image", SETS, NAMESPACE, |found| images(found) == [NEWER, NEWER]).await;
    world.delete(ROLES, NAMESPACE, "chat").await;
    world.nothing_left(NAMESPACE, &[ROLES, SETS, GROUPS, PODS, SERVICES]).await;
}
