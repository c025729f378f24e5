//! Journeys with other people's clients, started by `cargo xtask test --with kubectl,openai`.

use std::process::Command;

use crate::session::{Session, outcome};

const SERVICE: &str = "
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: chat}
spec:
  model: {name: llama-3-2-3b-instruct}
";

/// A user's journey with one `kubectl`: `$OSTLER_KUBECTL`.
#[test]
#[ignore = "needs kubectl: cargo xtask test --with kubectl"]
fn kubectl() {
    let kubectl = Kubectl { path: part("OSTLER_KUBECTL"), session: Session::start(&[]) };
    let file = kubectl.session.folder.file("chat.yaml", SERVICE);

    assert!(kubectl.run(&["apply", "-f", &file]).contains("inferenceservice.ome.io/chat created"));
    assert!(kubectl.run(&["apply", "-f", &file]).contains("unchanged"));
    kubectl.run(&["wait", "--for=condition=Ready", "inferenceservice.ome.io/chat", "--timeout=60s"]);
    let shown = kubectl.run(&["get", "inference,acceleratorclasses,pods"]);
    assert!(shown.contains("chat-engine-") && shown.contains("nvidia-l40s"), "{shown}");
    assert!(kubectl.run(&["describe", "inferenceservice.ome.io", "chat"]).contains("Ready"));
    let pods = kubectl.run(&["get", "pods", "-o", "name"]);
    assert!(kubectl.run(&["logs", pods.trim()]).contains("simulated engine"));
    assert!(kubectl.run(&["explain", "inferenceservices.ome.io.spec.model"]).contains("model"));

    let two = kubectl.session.folder.file("two.yaml", &SERVICE.replace("spec:", "spec:\n  engine: {minReplicas: 2}"));
    assert!(kubectl.run(&["apply", "-f", &two]).contains("configured"));
    kubectl.run(&["wait", "--for=jsonpath={.status.readyReplicas}=2", "deployment/chat-engine", "--timeout=60s"]);

    let applied = kubectl.run(&["apply", "--server-side", "--force-conflicts", "-f", &file]);
    assert!(applied.contains("serverside-applied"), "{applied}");

    kubectl.run(&["delete", "inferenceservice.ome.io", "chat", "--timeout=60s"]);
    kubectl.run(&["wait", "--for=delete", "pods", "--all", "--timeout=60s"]);
    let left = kubectl.run(&["get", "deployments,services,backendpools,llmusecasesets,pods", "-o", "name"]);
    assert_eq!(left.trim(), "", "deleting leaves nothing behind");
}

/// The Python `openai` package of `$OSTLER_PYTHON`.
#[test]
#[ignore = "needs the openai package: cargo xtask test --with openai"]
fn openai() {
    let session = Session::start(&["--demo"]);
    let output = Command::new(part("OSTLER_PYTHON"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openai_client.py"))
        .arg(&session.gateway)
        .output()
        .unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!((code, stdout.trim()), (Some(0), "ok"), "{stderr}");
}

struct Kubectl {
    path: String,
    session: Session,
}

impl Kubectl {
    #[track_caller]
    fn run(&self, args: &[&str]) -> String {
        let mut command = Command::new(&self.path);
        command
            .args(["--kubeconfig", &self.session.kubeconfig, "--cache-dir"])
            .arg(self.session.folder.0.join("cache"));
        let (stdout, stderr, code) = outcome(&command.args(args).output().unwrap());
        assert_eq!(code, Some(0), "kubectl {args:?}: {stdout}{stderr}");
        stdout
    }
}

fn part(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run this suite by cargo xtask test --with"))
}
