//! `ostler rollout` and `ostler scale` beside a running cluster, as a person uses them.

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use crate::session::{Folder, Session, ostler, outcome};

const NAME: &str = "inferenceservice.fusioninfer.io/chat";

fn service(image: &str) -> Value {
    let container = json!({"name": "vllm", "image": image, "command": ["vllm", "serve", "Qwen/Qwen3-8B"],
        "ports": [{"containerPort": 8000}], "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1}});
    json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {"roles": [{"name": "w", "componentType": "worker", "replicas": 2,
            "template": {"spec": {"containers": [container]}}}]}})
}

/// Its container cannot be made: the Secret is nobody's.
fn broken(image: &str) -> Value {
    let mut service = service(image);
    let key = json!({"secretKeyRef": {"name": "nobody-made-it", "key": "token"}});
    service["spec"]["roles"][0]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "HF_TOKEN", "valueFrom": key}]);
    service
}

struct Shell {
    session: Session,
    services: Api<DynamicObject>,
}

impl Shell {
    async fn start() -> Self {
        let folder = Folder::new();
        let file = folder.file("chat.json", &service("vllm/vllm-openai:v1").to_string());
        let session = Session::start(&["-f", &file]);
        let config = Kubeconfig::read_from(&session.kubeconfig).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        config.proxy_url = None;
        rustls::crypto::ring::default_provider().install_default().ok();
        let client = kube::Client::try_from(config).unwrap();
        let kind = kube::core::GroupVersionKind::gvk("fusioninfer.io", "v1alpha1", "InferenceService");
        Self { session, services: Api::namespaced_with(client, "default", &ApiResource::from_gvk(&kind)) }
    }

    /// As with `kubectl apply --server-side`.
    async fn apply(&self, service: &Value) {
        self.services.patch("chat", &PatchParams::apply("test").force(), &Patch::Apply(service)).await.unwrap();
    }

    /// stdout; what goes wrong shows all.
    fn says(&self, words: &[&str], code: i32) -> String {
        let words = [words, &["--kubeconfig", &self.session.kubeconfig]].concat();
        let (stdout, stderr, found) = outcome(&ostler(&words).output().unwrap());
        assert_eq!(found, Some(code), "{words:?}: {stdout}{stderr}");
        stdout + &stderr
    }

    /// Follows the rollout to its end and returns the last lines.
    fn follow(&self, code: i32) -> String {
        self.says(&["rollout", "status", NAME, "--timeout", "10m"], code)
    }

    /// What each revision changed.
    fn history(&self) -> Vec<String> {
        let told = self.says(&["rollout", "history", NAME], 0);
        let cells = |line: &str| line.split("  ").last().unwrap().trim().to_owned();
        told.lines().skip(1).map(cells).collect()
    }
}

/// Another image, held, let go, broken, undone, and scaled.
#[tokio::test]
async fn the_life_of_a_service_by_command() {
    let shell = Shell::start().await;
    assert!(shell.follow(0).ends_with(": rolled out; ready replicas: w 2 of 2\n"));
    assert_eq!(shell.history(), ["the oldest that is kept"]);

    assert_eq!(shell.says(&["rollout", "pause", NAME], 0), format!("{NAME}: rollout paused\n"));
    assert_eq!(shell.says(&["rollout", "pause", NAME], 0), format!("{NAME} is paused already\n"));
    shell.apply(&service("vllm/vllm-openai:v2")).await;
    let held = shell.follow(0);
    assert!(held.contains(": paused; rollout of w: 0 of 2 replicas are updated"), "{held}");
    assert_eq!(shell.says(&["rollout", "resume", NAME], 0), format!("{NAME}: rollout resumed\n"));
    assert!(shell.follow(0).contains(": rolled out; "));
    let image = "roles[w] … containers[vllm].image: vllm/vllm-openai:v1 → vllm/vllm-openai:v2";
    assert_eq!(shell.history(), ["the oldest that is kept", image]);

    shell.apply(&broken("vllm/vllm-openai:v2")).await;
    let stopped = shell.follow(1);
    assert!(stopped.contains(": stopped; rollout of w: 1 of 2 replicas are updated; "), "{stopped}");
    assert!(stopped.contains("nobody-made-it"), "{stopped}");
    assert!(stopped.contains(&format!("hint: `ostler rollout undo {NAME}` goes back")), "{stopped}");
    let undone = shell.says(&["rollout", "undo", NAME], 0);
    assert!(undone.starts_with(&format!("{NAME}: back to revision 2 (")), "{undone}");
    assert!(shell.follow(0).contains(": rolled out; "));

    assert_eq!(shell.says(&["scale", NAME, "w=3"], 0), format!("{NAME}: w 2 → 3\n"));
    assert!(shell.follow(0).ends_with(": rolled out; ready replicas: w 3 of 3\n"));
    let before = shell.history();
    assert_eq!(shell.says(&["rollout", "undo", NAME, "--to-revision", "1"], 0).lines().count(), 2);
    assert!(shell.follow(0).ends_with(": rolled out; ready replicas: w 3 of 3\n"), "undoing does not scale");
    assert_eq!(shell.history().len(), before.len());
    shell.says(&["rollout", "undo", NAME, "--to-revision", "77"], 1);
    shell.says(&["scale", NAME, "x=1"], 1);
}
