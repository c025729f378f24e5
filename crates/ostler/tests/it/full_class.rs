//! Services without capacity: each command that `ostler explain` proposes, executed literally, lets the service run.

use std::process::Command;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use crate::session::{Session, TIMEOUT, TempDirectory, ostler, outcome, wait_until};

/// Returns a service with `replicas` replicas of one accelerator each.
fn service(name: &str, replicas: u32) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": name, "namespace": "default"},
        "spec": {"model": {"name": "llama-3-2-3b-instruct"}, "engine": {"minReplicas": replicas, "maxReplicas": replicas}}})
}

fn run(session: &Session, command: &mut Command) -> String {
    let (stdout, stderr, _) = outcome(&command.args(["--kubeconfig", &session.kubeconfig]).output().unwrap());
    stdout + &stderr
}

/// Waits until the service is ready, and fails if its rollout makes no progress.
fn assert_becomes_ready(session: &Session, name: &str) {
    let timeout = format!("{}s", TIMEOUT.as_secs());
    let object = format!("inferenceservice.ome.io/{name}");
    let output = run(session, &mut ostler(&["rollout", "status", &object, "--timeout", &timeout]));
    assert!(output.contains("successfully rolled out"), "{output}");
}

/// Returns the remedies for a service, once the explanation contains `expected`.
fn remedies(session: &Session, name: &str, expected: &str) -> Vec<String> {
    wait_until(&format!("an explanation with {expected}"), || {
        let text = run(session, &mut ostler(&["explain", &format!("inferenceservice.ome.io/{name}")]));
        let remedies = text.split("What would help\n").nth(1)?.lines().map(|line| line.trim().to_owned());
        text.contains(expected).then(|| remedies.collect())
    })
}

/// Returns the first command of a remedy.
fn command(remedy: &str) -> Vec<&str> {
    remedy.split('`').nth(1).unwrap_or_else(|| panic!("no command in {remedy}")).split(' ').collect()
}

#[tokio::test]
async fn service_runs_again_after_the_proposed_uncordon() {
    let directory = TempDirectory::new();
    let manifest = directory.file("chat.yaml", &service("chat", 1).to_string());
    let session = Session::start(&["--nodes", "1×L40S-48G", "-f", &manifest]);
    assert_becomes_ready(&session, "chat");
    let client = session.client().await;
    let nodes = Api::<Node>::all(client.clone());
    let set_unschedulable = async |node: &str, unschedulable: bool| {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": unschedulable}}));
        nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
    };
    set_unschedulable("l40s-0", true).await;
    let pods = Api::<Pod>::default_namespaced(client);
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        pods.evict(&pod.metadata.name.unwrap(), &EvictParams::default()).await.unwrap();
    }
    let remedies = remedies(&session, "chat", "1 of 1 node is cordoned: l40s-0");
    let ["kubectl", "uncordon", proposed @ ..] = &command(&remedies[0])[..] else { panic!("{remedies:#?}") };
    let add_node = "add 1 node with 1 × nvidia-l40s";
    assert!(remedies[1].contains(add_node), "{remedies:#?}");
    let add_command = "kubectl create -f - && kubectl uncordon l40s-1`";
    assert!(remedies[1].contains("; run `kubectl get node l40s-0 -o yaml |"), "{remedies:#?}");
    assert!(remedies[1].ends_with(add_command), "{remedies:#?}");
    for node in proposed {
        set_unschedulable(node, false).await;
    }
    assert_becomes_ready(&session, "chat");
}

#[tokio::test]
async fn service_runs_after_another_one_is_scaled_down_as_proposed() {
    let directory = TempDirectory::new();
    let manifest = directory.file("sum.yaml", &service("sum", 4).to_string());
    let session = Session::start(&["--nodes", "4×L40S-48G", "-f", &manifest]);
    assert_becomes_ready(&session, "sum");
    let services = ApiResource::from_gvk(&GroupVersionKind::gvk("ome.io", "v1beta1", "InferenceService"));
    let services = Api::<DynamicObject>::default_namespaced_with(session.client().await, &services);
    let chat = serde_json::from_value(service("chat", 2)).unwrap();
    services.create(&PostParams::default(), &chat).await.unwrap();
    let remedies = remedies(&session, "chat", "ostler scale");
    assert!(remedies.iter().all(|remedy| !remedy.contains("delete")), "{remedies:#?}");
    let remedy = remedies.iter().find(|remedy| remedy.contains("ostler scale")).unwrap();
    assert!(remedy.contains("reduce default/sum from 4 to 2 engine replicas"), "{remedies:#?}");
    let ["ostler", args @ ..] = &command(remedy)[..] else { panic!("{remedies:#?}") };
    run(&session, &mut ostler(args));
    assert_becomes_ready(&session, "chat");
    assert_becomes_ready(&session, "sum");
}

/// The selection is retained when the service is scaled, although only another class has capacity.
#[tokio::test]
async fn service_runs_after_the_proposed_redecide() {
    let directory = TempDirectory::new();
    let manifest = directory.file("chat.yaml", &service("chat", 1).to_string());
    let session = Session::start(&["--nodes", "1×L40S-48G, 2×H100-80G", "-f", &manifest]);
    assert_becomes_ready(&session, "chat");
    run(&session, &mut ostler(&["scale", "isvc/chat", "engine=2"]));
    let remedies = remedies(&session, "chat", "ostler redecide isvc/chat");
    // New nodes are of the retained class: the service does not move without `ostler redecide`.
    assert!(remedies[0].starts_with("· add 1 node with 1 × nvidia-l40s: "), "{remedies:#?}");
    let remedy = remedies.iter().find(|remedy| remedy.contains("ostler redecide")).unwrap();
    assert!(remedy.contains("on 1 × nvidia-h100-80gb"), "{remedies:#?}");
    let ["ostler", args @ ..] = &command(remedy)[..] else { panic!("{remedies:#?}") };
    let output = run(&session, &mut ostler(args));
    assert!(output.contains("new selection requested") && !output.contains("run `ostler redecide"), "{output}");
    assert_becomes_ready(&session, "chat");
}
