//! A broken image stops at the first replica, and is undone.

use serde_json::{Value, json};

use super::gangs::role;
use super::world::{GROUPS, Objects, PODS, ROLES, SERVICES, SETS, World};
use crate::session::{ostler, outcome};

const NAMESPACE: &str = "rollout";
const IMAGE: &str = "vllm/vllm-openai:v0.11.0";
const BROKEN: &str = "example.com/broken:1";

fn service(image: &str) -> Value {
    let mut decode = role("decode", "worker", 2, 2, 1);
    decode["template"]["spec"]["containers"][0]["image"] = json!(image);
    json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": NAMESPACE}, "spec": {"roles": [decode]}})
}

/// The images of both replicas, in order.
fn images(sets: &Objects) -> Vec<&str> {
    let template = "/spec/leaderWorkerTemplate/workerTemplate/spec/containers/0/image";
    sets.values().filter_map(|set| set.pointer(template)?.as_str()).collect()
}

pub(super) async fn a_broken_image_stops_and_is_undone(world: &World) {
    world.namespace(NAMESPACE).await;
    world.apply(&service(IMAGE)).await;
    world.condition(ROLES, NAMESPACE, "chat", ("Ready", "True"), "").await;
    world.apply(&service(BROKEN)).await;
    world.condition(ROLES, NAMESPACE, "chat", ("Ready", "False"), BROKEN).await;
    let sets =
        world.until("one replica of the new image", SETS, NAMESPACE, |found| images(found).contains(&BROKEN)).await;
    let mut both = images(&sets);
    both.sort_unstable();
    assert_eq!(both, [BROKEN, IMAGE], "the other replica is left alone");

    let kubeconfig = world.cluster.kubeconfig.display().to_string();
    let undo =
        ["rollout", "undo", "inferenceservice.fusioninfer.io/chat", "-n", NAMESPACE, "--kubeconfig", &kubeconfig];
    let (_, stderr, code) = outcome(&ostler(&undo).output().unwrap());
    assert_eq!(code, Some(0), "{stderr}");
    world.until("both replicas of the old image", SETS, NAMESPACE, |found| images(found) == [IMAGE, IMAGE]).await;
    world.condition(ROLES, NAMESPACE, "chat", ("Ready", "True"), "").await;
    world.delete(ROLES, NAMESPACE, "chat").await;
    world.nothing_left(NAMESPACE, &[ROLES, SETS, GROUPS, PODS, SERVICES]).await;
}
