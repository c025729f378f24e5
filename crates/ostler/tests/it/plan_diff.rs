//! `ostler plan --diff` against a running cluster.

use serde_json::{Value, json};

use crate::session::{Session, TempDirectory, ostler, outcome, wait_until};

fn service(runner: &str) -> String {
    format!(
        "apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {{name: chat, namespace: default}}
spec:
  model: {{name: llama-3-2-3b-instruct}}
  engine:
    minReplicas: 1
    maxReplicas: 1
{runner}"
    )
}

fn service_of_model(name: &str) -> String {
    service("").replace("llama-3-2-3b-instruct", name)
}

/// Runs `ostler plan --diff` and returns standard output and the exit code.
fn diff(session: &Session, args: &[&str]) -> (String, Option<i32>) {
    let output = ostler(&["plan", "--diff", "--kubeconfig", &session.kubeconfig]).args(args).output().unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!(stderr, "", "{stdout}");
    (stdout, code)
}

#[test]
fn shows_what_applying_would_change() {
    let directory = TempDirectory::new();
    let live = directory.file("live.yaml", &service(""));
    let session = Session::start(&["--nodes", "1×L40S-48G", "-f", &live]);
    let is_applied = || (diff(&session, &[]).0 == "Nothing would change (1 service).\n").then_some(());
    wait_until("the objects of the service", is_applied);
    assert_eq!(diff(&session, &["-f", &live]), ("Nothing would change (1 service).\n".to_owned(), Some(0)));
    assert_eq!(diff(&session, &["-n", "other"]).0, "Nothing would change (0 services).\n");

    let edited = directory.file("edited.yaml", &service("    runner: {args: [--max-model-len=4096]}\n"));
    let (stdout, code) = diff(&session, &["-f", &edited]);
    assert_eq!(code, Some(0), "{stdout}");
    insta::assert_snapshot!(stdout);

    let (stdout, code) = diff(&session, &["-f", &edited, "-o", "json"]);
    let output: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&output["kind"], code), (&Value::from("PlanDiff"), Some(0)));
    let planned = &output["services"][0];
    let change =
        |object: &Value| format!("{} {}", object["change"].as_str().unwrap(), object["name"].as_str().unwrap());
    assert_eq!([&output["manifests"][0], &planned["objects"][0]].map(change), ["updated chat", "updated chat-engine"]);
    let restart =
        json!({"kind": "Deployment", "namespace": "default", "name": "chat-engine", "pods": 1, "recreates": true});
    assert_eq!(planned["restarts"], json!([restart]));

    // `kubectl apply` removes no fields that `ostler up -f` applied.
    let without_replicas = service("").replace("    minReplicas: 1\n    maxReplicas: 1\n", "    minReplicas: 1\n");
    let file = directory.file("without-replicas.yaml", &without_replicas);
    let output = ostler(&["plan", "--diff", "--kubeconfig", &session.kubeconfig, "-f", &file]).output().unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!((stdout.as_str(), code), ("Nothing would change (1 service).\n", Some(0)));
    assert!(stderr.contains("`kubectl apply -f` retains fields that `ostler up -f` applied"), "{stderr}");

    // The API server refuses two ports of the same name.
    let ports = service("    runner: {ports: [{name: http, containerPort: 9000}]}\n");
    let (stdout, code) = diff(&session, &["-f", &directory.file("ports.yaml", &ports)]);
    assert_eq!(code, Some(2), "{stdout}");
    assert!(stdout.contains("not feasible: InvalidService: spec.engine.runner.ports: port 9000 "), "{stdout}");

    // An infeasible edit leaves the running objects unchanged.
    let infeasible = directory.file("infeasible.yaml", &service_of_model("none"));
    let (stdout, code) = diff(&session, &["-f", &infeasible]);
    assert_eq!(code, Some(2), "{stdout}");
    assert!(stdout.contains("inferenceservice default/chat — not feasible: ModelNotFound: "), "{stdout}");
    assert!(
        stdout.ends_with("existing objects are retained\n\n1 object would be updated; no Pod would restart.\n"),
        "{stdout}"
    );

    // A runtime in the files affects the services of the cluster.
    let runtime = ostler(&["catalog", "show", "srt-llama-3-2-3b-instruct"]).output().unwrap();
    let runtime = outcome(&runtime).0.replace("--enable-metrics", "--enable-metrics\n      - --log-requests");
    let (stdout, code) = diff(&session, &["-f", &directory.file("runtime.yaml", &runtime)]);
    assert_eq!(code, Some(0), "{stdout}");
    assert!(stdout.ends_with("2 objects would be updated; 1 Pod of 1 workload would restart.\n"), "{stdout}");

    let new = directory.file("new.yaml", &service("").replace("name: chat", "name: second"));
    let (stdout, code) = diff(&session, &["-f", &new]);
    assert_eq!(code, Some(0), "{stdout}");
    assert!(stdout.contains("--- /dev/null\n+++ planned/Deployment default/second-engine\n"), "{stdout}");
    assert!(stdout.ends_with(" objects would be created; no Pod would restart.\n"), "{stdout}");

    let yaml = ostler(&["plan", "--diff", "-o", "yaml"]).output().unwrap();
    let expected = "error: --diff: the output format yaml is not supported\nhint: use `-o table` or `-o json`\n";
    assert_eq!(outcome(&yaml), (String::new(), expected.to_owned(), Some(1)));
}
