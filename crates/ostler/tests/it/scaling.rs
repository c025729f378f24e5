//! `ostler scale` on a running cluster: services of both groups, all forms of a name, invalid input, and a full class.

use std::os::unix::fs::symlink;
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::session::{Session, TempDirectory, ostler, outcome, post_chat, wait_until};

/// Returns a service of each group: `chat` on the only accelerator of its class, and `pd` with role `w`.
fn services() -> String {
    let chat = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"}, "spec": {"model": {"name": "llama-3-2-3b-instruct"}}});
    let container = json!({"name": "vllm", "image": "vllm/vllm-openai:v1", "command": ["vllm", "serve", "Qwen/Qwen3-8B"],
        "ports": [{"containerPort": 8000}]});
    let pd = json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "pd", "namespace": "default"},
        "spec": {"roles": [{"name": "w", "componentType": "worker", "template": {"spec": {"containers": [container]}}}]}});
    format!("{chat}\n---\n{pd}\n")
}

/// Runs a command against the cluster and returns its output, after checking the exit code.
fn run(session: &Session, command: &mut Command, expected_code: i32) -> String {
    let (stdout, stderr, code) = outcome(&command.args(["--kubeconfig", &session.kubeconfig]).output().unwrap());
    assert_eq!(code, Some(expected_code), "{command:?}: {stdout}{stderr}");
    stdout + &stderr
}

fn scale(session: &Session, args: &[&str], expected_code: i32) -> String {
    run(session, ostler(&["scale"]).args(args), expected_code)
}

fn rollout_status(session: &Session, name: &str, args: &[&str], expected_code: i32) -> String {
    run(session, ostler(&["rollout", "status", name]).args(args), expected_code)
}

#[test]
fn scales_services_of_both_groups_on_their_class() {
    let directory = TempDirectory::new();
    let nodes = directory.file("nodes.txt", "1×L40S-48G\n8×H100-80G\n");
    let session = Session::start(&["--nodes", &nodes, "-f", &directory.file("services.yaml", &services())]);
    let (chat, pd) = ("inferenceservice.ome.io/chat", "inferenceservice.fusioninfer.io/pd");
    rollout_status(&session, chat, &["--timeout", "10m"], 0);

    for object in
        ["inferenceservice/chat", "isvc/chat", "isvc.ome.io/chat", "inferenceservices.ome.io/chat", "service/chat"]
    {
        assert_eq!(scale(&session, &[object, "engine=1"], 0), format!("{chat}: engine already has 1\n"));
    }
    for object in ["inferenceservice/pd", "fisvc/pd", "fisvc.fusioninfer.io/pd", "service/pd"] {
        assert_eq!(scale(&session, &[object, "w=1"], 0), format!("{pd}: w already has 1\n"));
    }
    let kubectl_plugin = directory.0.join("kubectl-ostler");
    symlink(env!("CARGO_BIN_EXE_ostler"), &kubectl_plugin).unwrap();
    let mut plugin = Command::new(&kubectl_plugin);
    assert_eq!(run(&session, plugin.args(["scale", "fisvc", "pd", "w=2"]), 0), format!("{pd}: w 1 → 2\n"));

    for (assignment, expected) in [
        ("w=-1", "w cannot have -1 replicas; write a number from 0 to 10000"),
        ("w=1000000", "w cannot have 1000000 replicas; write a number from 0 to 10000"),
        ("x=1", "InferenceService default/pd has no role `x`\nhint: available roles: w"),
        ("w=1..4", "role w does not support a range of replicas\nhint: write w=N"),
    ] {
        let output = scale(&session, &["fisvc/pd", assignment], 1);
        assert!(output.contains(expected), "{output}");
    }
    let output = scale(&session, &["isvc/chat", "decoder=1"], 1);
    assert!(
        output.contains("InferenceService default/chat has no component `decoder`\nhint: available components: engine"),
        "{output}"
    );
    let output = scale(&session, &["isvc/chat", "engine=4..1"], 1);
    assert!(output.contains("the minimum 4 exceeds the maximum 1; write engine=1..4"), "{output}");

    assert_eq!(scale(&session, &["isvc/chat", "engine=2"], 0), format!("{chat}: engine 1 → 2\n"));
    // No other workload could make room, so there is nothing to wait for.
    let output = rollout_status(&session, chat, &["--timeout", "10m"], 1);
    let expected = "rollout failed: Class nvidia-l40s is too small: the engine requires 2 accelerators and its nodes have 1 in total, enough \
        for 1 of 2 Pods when empty; alternatives per replica: 1 × nvidia-h100-80gb for $";
    assert!(output.contains(expected) && output.contains("hint: run `ostler explain "), "{output}");
    let history = run(&session, &mut ostler(&["rollout", "history", chat]), 0);
    assert_eq!(history.lines().count(), 2, "scaling creates no revision: {history}");
    assert_eq!(scale(&session, &["isvc/chat", "engine=1..4"], 0), format!("{chat}: engine 2 → 1..4\n"));
    assert_eq!(scale(&session, &["isvc/chat", "engine=1..1"], 0), format!("{chat}: engine 1..4 → 1\n"));
    rollout_status(&session, chat, &["--timeout", "10m"], 0);
    // The only revision has no predecessor.
    let output = run(&session, &mut ostler(&["rollout", "undo", chat]), 1);
    assert!(
        output.contains("has no previous revision of its spec\nhint: the current revision is the only one"),
        "{output}"
    );
}

/// The engine stops when it has been idle for the time that its service states. A request starts it again and waits until it has loaded
/// its model. All controllers and the gateway are parts of one program.
// spec: RT-25
// spec: GW-25
// spec: GW-70
#[test]
fn request_starts_a_service_that_is_scaled_to_zero() {
    let directory = TempDirectory::new();
    let chat = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default", "annotations": {"ome.io/idle-timeout": "1s"}},
        "spec": {"model": {"name": "llama-3-2-1b-instruct"}, "engine": {"minReplicas": 0, "maxReplicas": 1}}});
    let file = directory.file("chat.yaml", &chat.to_string());
    let session = Session::start(&["--nodes", "1×L40S-48G", "--load-times", "-f", &file]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let pods: Api<Pod> = runtime.block_on(async { Api::default_namespaced(session.client().await) });
    let count_pods = || runtime.block_on(pods.list(&ListParams::default())).unwrap().items.len();
    wait_until("the Pod", || (count_pods() == 1).then_some(()));
    for _ in 0..2 {
        wait_until("the end of the Pod", || (count_pods() == 0).then_some(()));
        let response = post_chat(&session.gateway, r#"{"model":"chat","messages":[{"role":"user","content":"hi"}]}"#);
        assert!(response.starts_with("HTTP/1.0 200") || response.starts_with("HTTP/1.1 200"), "{response}");
    }
}
