//! Role-based services and their routers in `ostler up`, with a real endpoint picker.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use rstest::rstest;
use serde_json::{Value, json};

use crate::session::{Session, TempDirectory, ostler, outcome, post_chat, send, wait_until};

/// The four user stories of the specification of role-based services.
const STORIES: [&str; 4] = [
    include_str!("../../../plan/src/tests/stories/roles-1.yaml"),
    include_str!("../../../plan/src/tests/stories/roles-2.yaml"),
    include_str!("../../../plan/src/tests/stories/roles-3.yaml"),
    include_str!("../../../plan/src/tests/stories/roles-4.yaml"),
];
/// The model that the engines of the second story serve. With a router, clients use its name.
const MODEL: &str = "Qwen/Qwen3-8B";
/// The stories request 151 accelerators, at most 8 per node.
const NODES: &str = "8×H100-80G ×20";

/// Returns the service of a user story, renamed to `name` and with a router.
fn with_router(story: &str, name: &str, router: &str) -> String {
    story
        .replacen("  roles:\n", &format!("  roles:\n  - {{name: entry, componentType: router{router}}}\n"), 1)
        .replace("name: qwen-inference-service", &format!("name: {name}"))
}

fn story(number: usize) -> &'static str {
    STORIES[number - 1]
}

/// Runs `ostler` and returns its output and exit code.
fn run(session: &Session, args: &[&str]) -> (String, Option<i32>) {
    let args = [args, &["--kubeconfig", &session.kubeconfig]].concat();
    let (stdout, stderr, code) = outcome(&ostler(&args).output().unwrap());
    (stdout + &stderr, code)
}

/// Waits until the service is ready.
fn wait_for_rollout(session: &Session, name: &str) {
    let name = format!("inferenceservice.fusioninfer.io/{name}");
    let (output, code) = run(session, &["rollout", "status", &name, "--timeout", "10m"]);
    assert_eq!(code, Some(0), "{output}");
}

/// Sends a chat completion and returns status line and body. The request is repeated until the gateway has observed an
/// endpoint of `model`.
fn send_request(session: &Session, model: &str) -> (String, Value) {
    wait_until("an endpoint", || {
        let (status, body) = try_request(session, model);
        let has_endpoint = ![" 404 ", " 503 "].iter().any(|code| status.contains(code));
        has_endpoint.then_some((status, body))
    })
}

fn try_request(session: &Session, model: &str) -> (String, Value) {
    let messages = json!([{"role": "user", "content": "Why do horses sleep standing?"}]);
    let body = json!({"model": model, "messages": messages, "max_tokens": 4}).to_string();
    let response = post_chat(&session.gateway, &body);
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), serde_json::from_str(body).unwrap_or_default())
}

/// The gateway routes requests to leaders of all topologies: one Pod, disaggregated, multi-node, and both.
// spec: TOP-88
#[test]
fn routes_requests_for_all_stories() {
    let directory = TempDirectory::new();
    let file = directory.file("stories.yaml", &STORIES.join("---\n"));
    let session = Session::start(&["-f", &file, "--nodes", NODES]);
    for name in ["qwen-inference", "qwen-inference-service", "deepseek-r1-inference", "deepseek-r1-disagg"] {
        wait_for_rollout(&session, name);
        let (status, response) = send_request(&session, name);
        assert!(status.contains(" 200 "), "{name}: {status} {response}");
        assert!(response["choices"][0]["message"]["content"].is_string(), "{name}: {response}");
    }
}

/// The endpoint picker is this binary; its Pod becomes ready after it has observed its InferencePool.
// spec: TOP-88
#[rstest]
#[case::prefix_cache("")]
#[case::kv_cache(", strategy: kv-cache-utilization")]
#[case::queue(", strategy: queue-size")]
#[case::lora(", strategy: lora-affinity")]
#[case::disaggregated(", strategy: pd-disaggregation, httproute: {parentRefs: [{name: gateway}]}")]
fn runs_routers_with_all_strategies(#[case] router: &str) {
    let directory = TempDirectory::new();
    let file = directory.file("routed.yaml", &with_router(story(2), "routed", router));
    let session = Session::start(&["-f", &file, "--nodes", "8×H100-80G"]);
    wait_for_rollout(&session, "routed");
    let (explanation, _) = run(&session, &["explain", "inferenceservice.fusioninfer.io/routed"]);
    assert!(explanation.contains("entry 1 of 1"), "{explanation}");
    let (status, response) = send_request(&session, MODEL);
    assert!(status.contains(" 200 "), "{status} {response}");
    // The engines are asked for their models after their first metrics.
    wait_until("the model of the InferencePool at /v1/models", || {
        let models = send(&session.gateway, "GET /v1/models HTTP/1.0\r\n\r\n");
        models.contains(MODEL).then_some(())
    });
}

/// The gateway selects a pair, and the decoder lets the prefiller compute the prompt, as a sidecar for disaggregated serving does.
#[tokio::test]
async fn prefillers_compute_the_prompts_of_decoders() {
    let directory = TempDirectory::new();
    let file = directory.file("pair.yaml", story(2));
    let session = Session::start(&["-f", &file, "--nodes", "8×H100-80G"]);
    wait_for_rollout(&session, "qwen-inference-service");
    let content = "Horses sleep standing. ".repeat(100);
    let messages = json!([{"role": "user", "content": content}]);
    let body = json!({"model": "qwen-inference-service", "messages": messages, "max_tokens": 4}).to_string();
    wait_until("a response", || post_chat(&session.gateway, &body).lines().next()?.contains(" 200 ").then_some(()));
    let config = Kubeconfig::read_from(&session.kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(kube::Client::try_from(config).unwrap());
    let tokens = async |role: &str| {
        let selector = ListParams::default().labels(&format!("fusioninfer.io/component-type={role}"));
        let addresses =
            pods.list(&selector).await.unwrap().items.into_iter().map(|pod| pod.status.unwrap().pod_ip.unwrap());
        let tokens = |address: String| -> f64 {
            let page = send(&format!("{address}:8000"), "GET /metrics HTTP/1.0\r\n\r\n");
            let computed = |line: &&str| line.starts_with("vllm:prompt_tokens_total{");
            let line = page.lines().find(computed).unwrap();
            line.rsplit_once(' ').unwrap().1.parse().unwrap()
        };
        addresses.map(tokens).sum::<f64>()
    };
    assert!(tokens("prefiller").await >= 400.0 && tokens("decoder").await >= 400.0);
}

/// An invalid picker configuration makes the router not ready; requests still reach the engines.
#[test]
fn reports_invalid_picker_configuration() {
    let directory = TempDirectory::new();
    let file =
        directory.file("routed.yaml", &with_router(story(2), "routed", ", endpointPickerConfig: 'kind: Picker'"));
    let session = Session::start(&["-f", &file, "--nodes", "8×H100-80G"]);
    let (output, code) =
        run(&session, &["rollout", "status", "inferenceservice.fusioninfer.io/routed", "--timeout", "10m"]);
    assert_ne!(code, Some(0), "{output}");
    let (explanation, _) = run(&session, &["explain", "inferenceservice.fusioninfer.io/routed"]);
    assert!(explanation.contains("RouterReady=False") && explanation.contains("routed-epp"), "{explanation}");
    let (status, response) = send_request(&session, MODEL);
    assert!(status.contains(" 200 "), "{status} {response}");
}
