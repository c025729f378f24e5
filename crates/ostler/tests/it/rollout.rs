//! `ostler rollout` and `ostler scale` against a running cluster.

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use crate::session::{Session, TempDirectory, ostler, outcome};

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

/// Returns a service whose container cannot be created because a Secret does not exist.
fn service_with_missing_secret(image: &str) -> Value {
    let mut service = service(image);
    let key = json!({"secretKeyRef": {"name": "missing-secret", "key": "token"}});
    service["spec"]["roles"][0]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "HF_TOKEN", "valueFrom": key}]);
    service
}

/// A cluster with the service, and a client of the cluster.
struct RolloutTest {
    session: Session,
    services: Api<DynamicObject>,
}

impl RolloutTest {
    async fn start() -> Self {
        let directory = TempDirectory::new();
        let file = directory.file("chat.json", &service("vllm/vllm-openai:v1").to_string());
        let session = Session::start(&["-f", &file]);
        let client = session.client().await;
        let kind = kube::core::GroupVersionKind::gvk("fusioninfer.io", "v1alpha1", "InferenceService");
        Self { session, services: Api::namespaced_with(client, "default", &ApiResource::from_gvk(&kind)) }
    }

    /// Applies the service like `kubectl apply --server-side`.
    async fn apply(&self, service: &Value) {
        self.services.patch("chat", &PatchParams::apply("test").force(), &Patch::Apply(service)).await.unwrap();
    }

    fn run(&self, args: &[&str], expected_code: i32) -> String {
        run(&self.session, args, expected_code)
    }

    /// Waits for the end of the rollout and returns the output.
    fn wait_for_rollout(&self, expected_code: i32) -> String {
        self.run(&["rollout", "status", NAME, "--timeout", "10m"], expected_code)
    }

    /// Returns the changes of each revision.
    fn history(&self) -> Vec<String> {
        let output = self.run(&["rollout", "history", NAME], 0);
        let parse_change = |line: &str| line.split("  ").last().unwrap().trim().to_owned();
        output.lines().skip(1).map(parse_change).collect()
    }
}

/// Returns the services of `ome.io` in the cluster.
async fn ome_services(session: &Session) -> Api<DynamicObject> {
    let kind = kube::core::GroupVersionKind::gvk("ome.io", "v1beta1", "InferenceService");
    Api::namespaced_with(session.client().await, "default", &ApiResource::from_gvk(&kind))
}

/// Runs `ostler` against the cluster and returns its output, after checking the exit code.
fn run(session: &Session, args: &[&str], expected_code: i32) -> String {
    let args = [args, &["--kubeconfig", &session.kubeconfig]].concat();
    let (stdout, stderr, code) = outcome(&ostler(&args).output().unwrap());
    assert_eq!(code, Some(expected_code), "{args:?}: {stdout}{stderr}");
    stdout + &stderr
}

/// The only accelerator is in use by the Pod that the edit replaces.
#[tokio::test]
async fn edit_on_a_full_class_is_rolled_out() {
    let directory = TempDirectory::new();
    let chat = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"}, "spec": {"model": {"name": "llama-3-2-3b-instruct"}}});
    let file = directory.file("chat.json", &chat.to_string());
    let session = Session::start(&["--nodes", "1×L40S-48G", "-f", &file]);
    let name = "inferenceservice.ome.io/chat";
    run(&session, &["rollout", "status", name, "--timeout", "10m"], 0);
    let undo = run(&session, &["rollout", "undo", name], 1);
    assert!(undo.contains("the current revision is the only one"), "{undo}");
    let edit = json!({"spec": {"engine": {"runner": {"args": ["--context-length", "4096"]}}}});
    ome_services(&session).await.patch("chat", &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    let status = run(&session, &["rollout", "status", name, "--timeout", "10m"], 0);
    assert!(status.ends_with(": successfully rolled out\n"), "{status}");
    run(&session, &["rollout", "undo", name], 0);
    let status = run(&session, &["rollout", "status", name, "--timeout", "10m"], 0);
    assert!(status.ends_with(": successfully rolled out\n"), "{status}");
}

/// The generation of the service does not change with its runtime, so its status may be older than the change.
#[tokio::test]
async fn change_of_a_runtime_is_waited_for() {
    let directory = TempDirectory::new();
    let chat = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"}, "spec": {"model": {"name": "llama-3-2-3b-instruct"}}});
    let file = directory.file("chat.json", &chat.to_string());
    let session = Session::start(&["--nodes", "2×L40S-48G", "-f", &file]);
    let name = "inferenceservice.ome.io/chat";
    run(&session, &["rollout", "status", name, "--timeout", "10m"], 0);
    let client = session.client().await;
    let api = |group: &str, version: &str, kind: &str| {
        ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, kind))
    };
    let runtimes: Api<DynamicObject> =
        Api::all_with(client.clone(), &api("ome.io", "v1beta1", "ClusterServingRuntime"));
    let deployments: Api<DynamicObject> = Api::default_namespaced_with(client, &api("apps", "v1", "Deployment"));
    for image in ["example.com/sglang:1", "example.com/sglang:2", "example.com/sglang:3"] {
        let mut runtime = runtimes.get("srt-llama-3-2-3b-instruct").await.unwrap();
        runtime.data["spec"]["engineConfig"]["runner"]["image"] = json!(image);
        runtimes.replace("srt-llama-3-2-3b-instruct", &PostParams::default(), &runtime).await.unwrap();
        let status = run(&session, &["rollout", "status", name, "--timeout", "10m"], 0);
        assert!(status.ends_with(": successfully rolled out\n"), "{status}");
        let deployment = deployments.get("chat-engine").await.unwrap().data;
        assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], image, "{status}");
        assert_eq!(deployment["status"]["updatedReplicas"], 1, "{status}");
    }
}

/// Edits of a runtime that are rolled out and fail, are rejected by the API server, or leave the service without a plan. Undo of
/// the service cannot help, nor does the old failure concern the corrected runtime, or the old success the edited one.
#[tokio::test]
async fn failure_of_an_edited_runtime_is_not_blamed_on_the_service() {
    let directory = TempDirectory::new();
    let runtime_name = "srt-llama-3-2-3b-instruct";
    let chat = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {"model": {"name": "llama-3-2-3b-instruct"}, "runtime": {"name": runtime_name}}});
    let file = directory.file("chat.json", &chat.to_string());
    let session = Session::start(&["--nodes", "2×L40S-48G", "-f", &file]);
    let name = "inferenceservice.ome.io/chat";
    run(&session, &["rollout", "status", name, "--timeout", "10m"], 0);
    let edit = json!({"spec": {"engine": {"runner": {"args": ["--context-length", "4096"]}}}});
    ome_services(&session).await.patch("chat", &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    run(&session, &["rollout", "status", name, "--timeout", "10m"], 0);

    let kind = kube::core::GroupVersionKind::gvk("ome.io", "v1beta1", "ClusterServingRuntime");
    let runtimes: Api<DynamicObject> = Api::all_with(session.client().await, &ApiResource::from_gvk(&kind));
    let replace = async |spec: &Value| {
        let mut runtime = runtimes.get(runtime_name).await.unwrap();
        runtime.data["spec"] = spec.clone();
        runtimes.replace(runtime_name, &PostParams::default(), &runtime).await.unwrap();
    };
    let working = runtimes.get(runtime_name).await.unwrap().data["spec"].clone();
    let with = |pointer: &str, field: &str, value: Value| {
        let mut spec = working.clone();
        spec.pointer_mut(pointer).unwrap()[field] = value;
        spec
    };
    let env = json!([{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "missing-secret", "key": "token"}}}]);
    let failing = with("/engineConfig/runner", "env", env);
    let rejected = with("/engineConfig/runner", "imagePullPolicy", json!("Sometimes"));
    let disabled = with("", "disabled", json!(true));
    let cases = [
        (failing, "10m", "rollout failed: "),
        (rejected, "10m", "rollout failed: "),
        (disabled, "3s", "no progress for 3 s; "),
    ];
    for (broken, deadline, failure) in cases {
        replace(&broken).await;
        let status = run(&session, &["rollout", "status", name, "--no-wait"], 0);
        assert!(!status.contains("successfully rolled out"), "{status}");
        let status = run(&session, &["rollout", "status", name, "--progress-deadline", deadline], 1);
        assert!(status.contains(failure) && !status.contains("rollout undo"), "{status}");
        assert!(status.contains(&format!("`kubectl edit clusterservingruntime.ome.io/{runtime_name}`")), "{status}");
        let undo = run(&session, &["rollout", "undo", name], 1);
        assert!(undo.contains(&format!("the latest change of {name} is not an edit of its spec")), "{undo}");
        assert!(undo.contains(&format!("`ostler rollout undo {name} --to-revision 1`")), "{undo}");

        replace(&working).await;
        let status = run(&session, &["rollout", "status", name, "--no-wait"], 0);
        assert!(!status.contains("rollout failed"), "{status}");
        let status = run(&session, &["rollout", "status", name, "--timeout", "10m"], 0);
        assert!(!status.contains("rollout failed") && !status.contains("note: "), "{status}");
    }
}

/// The engine of the first revision crashes, and the fixed engine starts while the old Pod still exists.
#[tokio::test]
async fn fix_of_a_crashing_engine_is_not_blamed_for_the_crash() {
    let directory = TempDirectory::new();
    let crash = "echo 'ValidationError: 1 validation error for ModelConfig'; echo '  Value error, the cause'; \
        echo '    For further information visit https://errors.example.com'; exit 1";
    let runner = json!({"name": "ome-container", "image": "sh", "command": ["/bin/sh", "-c"], "args": [crash],
        "ports": [{"containerPort": 18080}]});
    let service = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "crash", "namespace": "default"}, "spec": {"engine": {"runner": runner}}});
    let file = directory.file("crash.json", &service.to_string());
    let config = directory.file("config.yaml", "images: {sh: {entrypoint: []}}");
    let session = Session::start(&["--nodes", "this", "--config", &config, "-f", &file]);
    let name = "inferenceservice.ome.io/crash";
    let failed = run(&session, &["rollout", "status", name, "--timeout", "10m"], 1);
    assert!(failed.contains("terminated with exit code 1 (Value error, the cause)"), "{failed}");
    assert!(failed.contains("hint: run `ostler explain") && !failed.contains("rollout undo"), "{failed}");

    let fix = json!({"spec": {"engine": {"runner": {"args": ["exec sleep 1000"]}}}});
    ome_services(&session).await.patch("crash", &PatchParams::default(), &Patch::Merge(&fix)).await.unwrap();
    let status = run(&session, &["rollout", "status", name, "--progress-deadline", "3s"], 1);
    assert!(status.contains("its readiness probe does not succeed yet"), "{status}");
    assert!(!status.contains("rollout failed") && !status.contains("rollout undo"), "{status}");
    let explanation = run(&session, &["explain", name], 0);
    assert!(!explanation.contains("the cause"), "{explanation}");
    assert_eq!(run(&session, &["rollout", "history", name], 0).lines().count(), 3);
}

/// A first revision cannot be undone.
#[tokio::test]
async fn undo_is_not_proposed_for_a_first_revision() {
    let directory = TempDirectory::new();
    let runner = json!({"name": "ome-container", "image": "sh", "command": ["/bin/sh", "-c"], "args": ["exec sleep 1000"],
        "ports": [{"containerPort": 18080}]});
    let service = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "slow", "namespace": "default"}, "spec": {"engine": {"runner": runner}}});
    let file = directory.file("slow.json", &service.to_string());
    let config = directory.file("config.yaml", "images: {sh: {entrypoint: []}}");
    let session = Session::start(&["--nodes", "this", "--config", &config, "-f", &file]);
    let name = "inferenceservice.ome.io/slow";
    let status = run(&session, &["rollout", "status", name, "--progress-deadline", "2s"], 1);
    assert!(status.contains("no progress for 2 s") && status.contains("run `ostler explain"), "{status}");
    assert!(!status.contains("rollout undo"), "{status}");
}

/// Pauses and resumes the rollout of an image, fails and undoes a rollout, and scales.
#[tokio::test]
async fn rolls_out_undoes_and_scales() {
    let test = RolloutTest::start().await;
    assert!(test.wait_for_rollout(0).ends_with(": successfully rolled out: Ready replicas: w 2 of 2\n"));
    assert_eq!(test.history(), ["(oldest revision)"]);

    assert_eq!(test.run(&["rollout", "pause", NAME], 0), format!("{NAME}: rollout paused\n"));
    assert_eq!(test.run(&["rollout", "pause", NAME], 0), format!("{NAME} is already paused\n"));
    test.apply(&service("vllm/vllm-openai:v2")).await;
    let paused_output = test.wait_for_rollout(0);
    assert!(
        paused_output.contains(": rollout paused: Rollout of role w: 0 of 2 replicas are updated"),
        "{paused_output}"
    );
    assert_eq!(test.run(&["rollout", "resume", NAME], 0), format!("{NAME}: rollout resumed\n"));
    assert!(test.wait_for_rollout(0).contains(": successfully rolled out: "));
    let image = "roles[w] … containers[vllm].image: vllm/vllm-openai:v1 → vllm/vllm-openai:v2";
    assert_eq!(test.history(), ["(oldest revision)", image]);

    test.apply(&service_with_missing_secret("vllm/vllm-openai:v2")).await;
    let failed_output = test.wait_for_rollout(1);
    assert!(
        failed_output.contains(": rollout failed: Rollout of role w: 1 of 2 replicas are updated; "),
        "{failed_output}"
    );
    assert!(failed_output.contains("missing-secret") && !failed_output.contains("note: "), "{failed_output}");
    assert!(failed_output.contains(&format!("hint: run `ostler rollout undo {NAME}` to roll back")), "{failed_output}");
    let undo_output = test.run(&["rollout", "undo", NAME], 0);
    assert!(undo_output.starts_with(&format!("{NAME}: rolled back to revision 2 (")), "{undo_output}");
    assert!(test.wait_for_rollout(0).contains(": successfully rolled out: "));

    assert_eq!(test.run(&["scale", NAME, "w=3"], 0), format!("{NAME}: w 2 → 3\n"));
    assert!(test.wait_for_rollout(0).ends_with(": successfully rolled out: Ready replicas: w 3 of 3\n"));
    let old_history = test.history();
    assert_eq!(test.run(&["rollout", "undo", NAME, "--to-revision", "1"], 0).lines().count(), 2);
    assert!(
        test.wait_for_rollout(0).ends_with(": successfully rolled out: Ready replicas: w 3 of 3\n"),
        "undo does not scale"
    );
    assert_eq!(test.history().len(), old_history.len());
    test.run(&["rollout", "undo", NAME, "--to-revision", "77"], 1);
    test.run(&["scale", NAME, "x=1"], 1);
}
