//! What becomes of a service of `ome.io` that runs: its Deployments roll by themselves, and what a person asks for holds.

use std::sync::Arc;

use embedded::Server;
use operator::revisions::{number, restored};
use operator::rollout::pause_annotation;
use serde_json::{Value, json};

use crate::cluster::SERVICES;
use crate::machine::Machine;

const DEPLOYMENTS: &str = "deployments.apps";
const REVISIONS: &str = "controllerrevisions.apps";

/// A service that brings its own engine: two replicas of two GPUs.
fn chat() -> Value {
    let runner = json!({"name": "ome-container", "image": "engine:1", "ports": [{"containerPort": 8080}],
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 5}});
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {"engine": {"minReplicas": 2, "maxReplicas": 2, "runner": runner}}})
}

async fn running() -> Machine {
    let machine = Machine::with_gpus(16);
    machine.server.create(SERVICES, chat()).unwrap();
    ready(&machine).await;
    machine
}

fn service(server: &Server) -> Arc<Value> {
    server.get(SERVICES, "default", "chat").unwrap()
}

fn ready_condition(server: &Server) -> Option<Value> {
    let service = service(server);
    let ready = cluster::conditions::find(&service["status"]["conditions"], "Ready")?;
    (ready["observedGeneration"] == service["metadata"]["generation"]).then(|| ready.clone())
}

async fn ready(machine: &Machine) {
    let probe = |server: &Server| (ready_condition(server)?["status"] == "True").then_some(());
    machine.until("chat to be ready", &probe).await;
}

fn set_image(machine: &Machine, image: &str) {
    machine.world.edit(SERVICES, "chat", |service| service["spec"]["engine"]["runner"]["image"] = json!(image));
}

/// Images of Pods that are not about to go.
fn images(server: &Server) -> Vec<String> {
    let stays = |pod: &Arc<Value>| pod["metadata"]["deletionTimestamp"].is_null();
    let image = |pod: Arc<Value>| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
    server.list("pods").into_iter().filter(stays).map(image).collect()
}

fn revisions(server: &Server) -> Vec<Arc<Value>> {
    let mut all = server.list(REVISIONS);
    all.sort_by_key(|one| number(one));
    all
}

#[tokio::test(start_paused = true)]
async fn a_paused_rollout_touches_no_pod_scales_and_goes_on() {
    let machine = running().await;
    let pause = |value: Value| {
        machine.world.edit(SERVICES, "chat", |service| service["metadata"]["annotations"] = value.clone());
    };
    pause(json!({pause_annotation("ome.io/v1beta1"): "true"}));
    set_image(&machine, "engine:2");
    let held = |server: &Server| {
        let deployment = server.get(DEPLOYMENTS, "default", "chat-engine")?;
        let ready = ready_condition(server)?;
        let template = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        (deployment["spec"]["paused"] == true && *template == "engine:2" && ready["reason"] == "RolloutPaused")
            .then_some(ready)
    };
    let told = machine.until("the pause to be told", &held).await;
    assert!(told["message"].as_str().unwrap().contains("ostler rollout resume"), "{told}");
    assert_eq!(images(&machine.server), ["engine:1"; 2]);
    machine.world.edit(SERVICES, "chat", |service| {
        service["spec"]["engine"]["minReplicas"] = json!(3);
        service["spec"]["engine"]["maxReplicas"] = json!(3);
    });
    machine.until("a third Pod", &|server| (images(server).len() == 3).then_some(())).await;
    assert_eq!(images(&machine.server), ["engine:1"; 3], "a paused Deployment scales what it runs");
    pause(json!({}));
    ready(&machine).await;
    machine.until("the old ones to go", &|server| (images(server) == ["engine:2"; 3]).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_broken_image_ends_nothing_that_answers_and_is_undone() {
    let machine = running().await;
    let before = service(&machine.server)["spec"].clone();
    set_image(&machine, "bad");
    let failing = |server: &Server| (ready_condition(server)?["reason"] == "CrashLoop").then_some(());
    machine.until("the failure", &failing).await;
    assert_eq!(images(&machine.server).iter().filter(|image| *image == "engine:1").count(), 2);
    assert_eq!(service(&machine.server)["status"]["components"]["engine"]["readyReplicas"], 2);

    let first = revisions(&machine.server).remove(0);
    assert_eq!(restored(&service(&machine.server)["spec"], &first), before);
    machine.world.edit(SERVICES, "chat", |service| service["spec"] = before.clone());
    ready(&machine).await;
    let gone = |server: &Server| (images(server) == ["engine:1"; 2]).then_some(());
    machine.until("the broken one to go", &gone).await;
    let kept: Vec<i64> = revisions(&machine.server).iter().map(|one| number(one)).collect();
    assert_eq!(kept, [2, 3], "the first one is the newest again");
}

/// The ready one is the old one for a while: that is not what was asked for.
#[tokio::test(start_paused = true)]
async fn nothing_is_ready_while_a_pod_of_the_old_revision_runs() {
    let machine = running().await;
    set_image(&machine, "engine:2");
    let probe = |server: &Server| (ready_condition(server)?["status"] == "True").then_some(());
    let holds = |server: &Server| {
        if probe(server).is_some() {
            assert_eq!(images(server), ["engine:2"; 2]);
        }
    };
    machine.until_with("the new revision", &probe, &holds).await;
}

#[tokio::test(start_paused = true)]
async fn scaling_replaces_no_pod_and_is_no_revision() {
    let machine = running().await;
    let uids = |server: &Server| -> Vec<String> {
        server.list("pods").iter().map(|pod| pod["metadata"]["uid"].to_string()).collect()
    };
    let (before, kept) = (uids(&machine.server), revisions(&machine.server).len());
    machine.world.edit(SERVICES, "chat", |service| {
        service["spec"]["engine"]["minReplicas"] = json!(4);
        service["spec"]["engine"]["maxReplicas"] = json!(4);
    });
    machine.until("four Pods", &|server| (images(server).len() == 4).then_some(())).await;
    ready(&machine).await;
    let after = uids(&machine.server);
    assert!(before.iter().all(|uid| after.contains(uid)));
    assert_eq!(revisions(&machine.server).len(), kept);
    assert_eq!(service(&machine.server)["status"]["components"]["engine"]["replicas"], 4);
}
