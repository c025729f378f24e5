//! The picker beside the endpoint picker (EPP) of gateway-api-inference-extension, both behind a real Envoy.

use std::future::Future;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use engine::{Config, Timing};
use futures::future::join_all;
use serde_json::json;
use tempfile::TempDir;

use crate::envoy_fixture::{Envoy, EnvoyConfig, exchange};
use crate::gateway_fixture::{self, engine_config, wait_until};
use crate::picker_fixture::{PickerFixture, install_definitions};

const ENGINES: [u8; 3] = [2, 3, 4];

/// Documents, of which an engine caches a third.
const DOCUMENTS: usize = 12;
/// Bytes of a document, about 2,000 tokens.
const DOCUMENT_BYTES: usize = 8_000;
/// Blocks of 16 tokens for five documents.
const KV_BLOCKS: usize = 5 * DOCUMENT_BYTES / 4 / 16;

const CLIENTS: usize = 6;
/// Requests of each client.
const REQUESTS: usize = 16;

/// A running EPP, which is killed when the value is dropped.
struct UpstreamPicker {
    process: Child,
    address: SocketAddr,
    health_port: u16,
    _directory: TempDir,
}

// === impl UpstreamPicker ===

impl UpstreamPicker {
    /// Starts EPP without a configuration for the pool of `fixture`.
    async fn start(fixture: &PickerFixture) -> Self {
        let program = std::env::var_os("OSTLER_EPP").expect("OSTLER_EPP is set by `cargo xtask test --with epp`");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = listener.local_addr().unwrap();
        tokio::spawn(axum::serve(listener, apiserver::router(&fixture.server)).into_future());
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{api}")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
        });
        std::fs::write(&kubeconfig, content.to_string()).unwrap();
        let mut command = Command::new(program);
        command.env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
        command.args(["--pool-name", "pool", "--pool-namespace", "default", "--secure-serving=false"]);
        command.args(["--metrics-endpoint-auth=false", "--tracing=false", "--zap-log-level=error"]);
        let ports = [free_port(), free_port(), free_port()];
        for (flag, port) in ["--grpc-port", "--grpc-health-port", "--metrics-port"].into_iter().zip(ports) {
            command.args([flag, &port.to_string()]);
        }
        let process = command.spawn().unwrap();
        Self { process, address: ([127, 0, 0, 1], ports[0]).into(), health_port: ports[1], _directory: directory }
    }
}

impl Drop for UpstreamPicker {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns a request for one of the documents of `name`.
fn request(name: &str, document: usize, question: usize) -> String {
    let text: String = format!("{name} {document} ").chars().cycle().take(DOCUMENT_BYTES).collect();
    json!({"model": "m", "prompt": format!("{text} Question {question}?"), "max_tokens": 4}).to_string()
}

/// Returns the number of prompt tokens that the engines have computed, because they were not cached.
async fn computed_tokens(fixture: &PickerFixture) -> f64 {
    let tokens = ENGINES.map(async |host| {
        let metric = async |series| gateway_fixture::metric(fixture.address(host), series).await;
        metric("vllm:prefix_cache_queries_total").await - metric("vllm:prefix_cache_hits_total").await
    });
    join_all(tokens).await.into_iter().sum()
}

/// Sends requests for the documents of `name` by concurrent clients. Returns the number of prompt tokens that the engines compute.
async fn computed_by<F: Future<Output = ()>>(
    fixture: &PickerFixture,
    name: &str,
    send: impl Fn(usize, String) -> F,
) -> f64 {
    let before = computed_tokens(fixture).await;
    let clients = (0..CLIENTS).map(async |client| {
        for number in 0..REQUESTS {
            let question = client * REQUESTS + number;
            // Each document is requested by all clients.
            let document = (client + 5 * number) % DOCUMENTS;
            send(question, request(name, document, question)).await;
        }
    });
    join_all(clients).await;
    computed_tokens(fixture).await - before
}

/// The time to first token of a prompt is that of computing what is not cached, so the tokens that are computed stand for it on
/// machines of any speed.
// spec: GW-22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Envoy and EPP: cargo xtask test --with epp"]
async fn shared_prefixes_are_computed_less_often_than_in_turn() {
    let fixture = PickerFixture::start_with("", |server| {
        install_definitions(server);
        for definition in api::integrations::crds() {
            let name = definition["metadata"]["name"].as_str().unwrap();
            if name.ends_with("inference.networking.x-k8s.io") {
                server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
            }
        }
    })
    .await;
    fixture.create_pool();
    let timing = Timing { prefill_tokens_per_second: 20_000.0, ..Timing::instant() };
    for host in ENGINES {
        let config = Config { timing: timing.clone(), num_gpu_blocks: KV_BLOCKS, ..engine_config(&["m"]) };
        fixture.start_engine_with(host, "worker", config);
    }
    fixture.wait_until("the endpoints", |fixture| fixture.picker.endpoints().len() == ENGINES.len()).await;
    fixture.wait_until_scraped(ENGINES.len()).await;
    let upstream = UpstreamPicker::start(&fixture).await;
    // The modes that EPP documents.
    let config = |picker| EnvoyConfig { sends_response_body: true, ..EnvoyConfig::new(vec![picker]) };
    let own_envoy = Envoy::start(&config(fixture.ext_proc_address)).await;
    let health_port = Some(upstream.health_port);
    let upstream_envoy = Envoy::start(&EnvoyConfig { health_port, ..config(upstream.address) }).await;
    upstream_envoy.wait_for_healthy_pickers(1).await;
    wait_until("EPP", async || {
        exchange(upstream_envoy.address, &request("warm-up", 0, 0)).await.is_ok_and(|response| response.status() == 200)
    })
    .await;

    let send = async |address: SocketAddr, body: String| {
        let response = exchange(address, &body).await.unwrap();
        assert_eq!(response.status(), 200, "{}", response.body);
    };
    let engines = ENGINES.map(|host| fixture.address(host));
    let in_turn = |question: usize, body| send(engines[question % engines.len()], body);
    let round_robin = computed_by(&fixture, "in turn", in_turn).await;
    let upstream = computed_by(&fixture, "upstream", |_, body| send(upstream_envoy.address, body)).await;
    let own = computed_by(&fixture, "own", |_, body| send(own_envoy.address, body)).await;
    eprintln!("computed prompt tokens: {round_robin} in turn, {upstream} with EPP, {own} with the picker");
    assert!(own <= 0.5 * round_robin, "{own} of {round_robin} tokens in turn");
    assert!(upstream <= 0.5 * round_robin, "{upstream} of {round_robin} tokens in turn");
}
