//! Tests of the endpoint picker behind a real Envoy.

use std::net::SocketAddr;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use engine::{Config, Timing};
use picker::{ServingCertificate, parse_config};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::envoy_fixture::{Envoy, EnvoyConfig, PickerProcess, exchange, stream};
use crate::gateway_fixture::{self, HttpResponse, engine_config, wait_until};
use crate::picker_fixture::{PickerFixture, install_definitions};

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// An engine whose responses the test writes.
#[derive(Clone, Default)]
struct ManualEngine(Arc<Mutex<Vec<ResponseSender>>>);

/// Sends chunks of a response.
type ResponseSender = mpsc::UnboundedSender<Result<Bytes, std::io::Error>>;

// === impl ManualEngine ===

impl ManualEngine {
    fn router(&self) -> axum::Router {
        let respond = |State(engine): State<Self>, _: Bytes| async move {
            let (sender, chunks) = mpsc::unbounded_channel();
            sender.send(Ok(Bytes::from_static(b"data: {\"model\":\"m\"}\n\n"))).unwrap();
            engine.0.lock().await.push(sender);
            let body = Body::from_stream(UnboundedReceiverStream::new(chunks));
            ([("content-type", "text/event-stream")], body).into_response()
        };
        axum::Router::new().route("/v1/completions", axum::routing::post(respond)).with_state(self.clone())
    }

    async fn wait_for_requests(&self, count: usize) {
        wait_until("requests of the engine", async || self.0.lock().await.len() == count).await;
    }

    /// Closes the connections of all responses, as a killed engine does.
    async fn abort(&self) {
        for response in self.0.lock().await.drain(..) {
            response.send(Err(std::io::Error::other("killed"))).unwrap();
        }
    }

    /// Ends all responses.
    async fn finish(&self) {
        for response in self.0.lock().await.drain(..) {
            // Without a receiver, the request was aborted.
            response.send(Ok(Bytes::from_static(b"data: {\"model\":\"m\"}\n\ndata: [DONE]\n\n"))).ok();
        }
    }
}

/// Returns a server whose responses contain its requests, and `host`.
fn echo_server(host: u8) -> axum::Router {
    let echo = move |headers: HeaderMap, body: Bytes| async move {
        let headers: serde_json::Map<String, Value> =
            headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().into())).collect();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Response::new(Body::from(json!({"host": host, "headers": headers, "body": body}).to_string()))
    };
    axum::Router::new().route("/v1/completions", axum::routing::post(echo))
}

fn simulated_engine() -> Config {
    Config { max_model_len: 300_000, num_gpu_blocks: 40_000, ..engine_config(&["m"]) }
}

/// Returns an engine that takes some milliseconds for each request.
fn slow_engine() -> Config {
    let timing = Timing { decode_step: Duration::from_millis(1), ..Timing::instant() };
    Config { timing, ..simulated_engine() }
}

async fn wait_for_endpoints(fixture: &PickerFixture, count: usize) {
    fixture.wait_until("the endpoints", |fixture| fixture.picker.endpoints().len() == count).await;
}

/// Creates the use case `chat` with the target `m`.
async fn create_use_case(fixture: &PickerFixture) {
    let spec = json!({"poolRef": [{"name": "pool"}], "modelName": "chat", "targetModels": [{"targetModelName": "m"}]});
    let object = json!({"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": "LLMUseCase",
        "metadata": {"namespace": "default", "name": "chat"}, "spec": spec});
    fixture.server.create("llmusecases.inference.networking.x-k8s.io", object).unwrap();
    let is_rewritten = async || fixture.send_for_model("chat", "hello", None).await.target_model() == "m";
    wait_until("the use case", is_rewritten).await;
}

/// Sends a request with additional headers.
async fn post(address: SocketAddr, headers: &[(&str, &str)], body: &str) -> HttpResponse {
    let mut head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n".to_owned();
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
    gateway_fixture::receive(stream).await
}

/// Starts a streamed request, and waits until `engine` has received it.
async fn start_stream(
    envoy: &Envoy,
    engine: &ManualEngine,
    model: &'static str,
    count: usize,
) -> JoinHandle<Result<HttpResponse, String>> {
    let address = envoy.address;
    let request = tokio::spawn(async move { stream(address, model, "x", 1).await });
    engine.wait_for_requests(count).await;
    request
}

// spec: GW-12
// spec: GW-49
// spec: GW-55
#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn requests_are_sent_to_the_selected_endpoint() {
    let fixture = PickerFixture::start("").await;
    fixture.create_pool();
    let _engines = [2, 3].map(|host| fixture.start_server(host, "worker", echo_server(host)));
    wait_for_endpoints(&fixture, 2).await;
    let envoy = Envoy::start(&EnvoyConfig::new(vec![fixture.ext_proc_address])).await;
    let body = r#"{"model": "m", "prompt": "x"}"#;
    for host in [2, 3, 2, 3] {
        let endpoint = fixture.address(host).to_string();
        let forged = [
            ("x-gateway-destination-endpoint-subset", endpoint.as_str()),
            ("x-gateway-destination-endpoint", "127.0.0.1:1"),
            ("x-prefiller-host-port", "127.0.0.1:1"),
            ("x-request-id", "r"),
        ];
        let echo = post(envoy.address, &forged, body).await.json();
        let header = |name: &str| echo["headers"][name].as_str().map(str::to_owned);
        assert_eq!((&echo["host"], &echo["body"]), (&json!(host), &json!(body)));
        assert_eq!(header("x-gateway-destination-endpoint"), Some(endpoint));
        assert_eq!((header("x-prefiller-host-port"), header("x-request-id")), (None, Some("r".to_owned())));
    }
    let rejected = post(envoy.address, &[("x-gateway-destination-endpoint-subset", "127.0.0.9:1")], body).await;
    assert_eq!(rejected.status(), 503);
    assert_eq!(rejected.header("x-llm-d-request-dropped-reason"), Some("rejected-no-endpoints"));
    assert_eq!(post(envoy.address, &[], "not JSON").await.status(), 400);
    assert_eq!(envoy.ext_proc_stat("streams_failed").await, 0);
}

/// A route of Envoy splits its requests over two pools, each with a picker of its own.
// spec: GW-58
#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn route_splits_requests_over_pools() {
    let fixture = PickerFixture::start("").await;
    let labels = |role: &str| json!({"app": "llama", "fusioninfer.io/component-type": role});
    fixture.create_pool_of("pool", &labels("worker"));
    fixture.create_pool_of("second", &labels("other"));
    let _engines =
        [(2, "worker"), (3, "other")].map(|(host, role)| fixture.start_server(host, role, echo_server(host)));
    wait_for_endpoints(&fixture, 1).await;
    let second = PickerProcess::start_for("second", &fixture.server, "", LOCALHOST, None).await;
    wait_until("the endpoint of the second pool", async || second.picker.endpoints().len() == 1).await;
    let second_pool = Some((second.address, 30));
    let envoy = Envoy::start(&EnvoyConfig { second_pool, ..EnvoyConfig::new(vec![fixture.ext_proc_address]) }).await;
    let mut requests = 0;
    for _ in 0..1_000 {
        let response = post(envoy.address, &[], r#"{"model": "m", "prompt": "x"}"#).await;
        assert_eq!(response.status(), 200, "{}", response.body);
        requests += usize::from(response.json()["host"] == 3);
    }
    assert!((250..=350).contains(&requests), "{requests}");
    assert_eq!(envoy.ext_proc_stat("streams_failed").await, 0);
}

/// Without its body, the picker does not know the model of a request: nothing is replaced.
#[rstest::rstest]
#[case::no_body(false)]
#[case::body_of_the_response(true)]
#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn request_whose_body_is_not_sent_to_the_picker_reaches_an_endpoint(#[case] sends_response_body: bool) {
    let fixture = PickerFixture::start("").await;
    fixture.create_pool();
    let _engines = [2, 3].map(|host| fixture.start_server(host, "worker", echo_server(host)));
    wait_for_endpoints(&fixture, 2).await;
    let config = EnvoyConfig::new(vec![fixture.ext_proc_address]);
    let envoy = Envoy::start(&EnvoyConfig { sends_request_body: false, sends_response_body, ..config }).await;
    let body = json!({"model": "m", "prompt": "x".repeat(200_000)}).to_string();
    for host in [2, 3] {
        let endpoint = fixture.address(host).to_string();
        let subset = ("x-gateway-destination-endpoint-subset", endpoint.as_str());
        let forged = ("x-prefiller-host-port", "127.0.0.1:1");
        let echo = post(envoy.address, &[subset, forged], &body).await.json();
        assert_eq!((&echo["host"], &echo["body"]), (&json!(host), &json!(body)));
        assert_eq!(echo["headers"]["x-prefiller-host-port"], Value::Null);
    }
    fixture.wait_until_idle().await;
    assert_eq!(envoy.ext_proc_stat("streams_failed").await, 0);
}

const QUEUE_CONFIG: &str = "
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: queue-scorer}]
";

/// Waits until the gateway sends requests to the engine `host` only.
async fn wait_for_host(gateway: SocketAddr, host: u8) {
    let body = r#"{"model": "chat", "prompt": "x"}"#;
    let is_selected = async || {
        for _ in 0..5 {
            if post(gateway, &[], body).await.json()["host"] != host {
                return false;
            }
        }
        true
    };
    wait_until(&format!("requests to host {host}"), is_selected).await;
}

// spec: GW-14
#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn envoy_and_the_native_gateway_select_the_same_endpoint() {
    let fixture = PickerFixture::start(QUEUE_CONFIG).await;
    fixture.create_pool();
    let queues: [Arc<AtomicU64>; 3] = Default::default();
    let servers = (2_u8..).zip(&queues).map(|(host, queue)| {
        let queue = Arc::clone(queue);
        let metrics = move || async move { format!("vllm:num_requests_waiting {}\n", queue.load(Relaxed)) };
        let router = echo_server(host).route("/metrics", axum::routing::get(metrics));
        fixture.start_server(host, "worker", router)
    });
    let _servers: Vec<_> = servers.collect();
    wait_for_endpoints(&fixture, 3).await;
    let envoy = Envoy::start(&EnvoyConfig::new(vec![fixture.ext_proc_address])).await;
    let policy = parse_config(QUEUE_CONFIG).unwrap().policy;
    let native = gateway_fixture::start_with_policy(Vec::new(), &[], policy).await;
    let addresses = [2, 3, 4].map(|host| fixture.address(host));
    native.scheduler.replace(vec![gateway_fixture::pool(&native.scheduler, &addresses, &[])]);
    for lengths in [[0, 4, 9], [9, 0, 4], [4, 9, 0], [4, 0, 9]] {
        queues.iter().zip(lengths).for_each(|(queue, length)| queue.store(length, Relaxed));
        let shortest = (2_u8..).zip(lengths).find(|(_, length)| *length == 0).unwrap().0;
        wait_for_host(envoy.address, shortest).await;
        wait_for_host(native.gateway, shortest).await;
    }
}

#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn decoder_receives_the_address_of_a_prefiller() {
    let fixture = PickerFixture::start("").await;
    fixture.create_pool();
    let types = [(2, "prefiller"), (3, "decoder"), (4, "prefiller")];
    let _servers = types.map(|(host, role)| fixture.start_server(host, role, echo_server(host)));
    wait_for_endpoints(&fixture, 3).await;
    let envoy = Envoy::start(&EnvoyConfig::new(vec![fixture.ext_proc_address])).await;
    let prefillers = [2, 4].map(|host| fixture.address(host).to_string());
    for number in 0..8 {
        let body = json!({"model": "m", "prompt": format!("prompt {number}")}).to_string();
        let echo = post(envoy.address, &[("x-prefiller-host-port", "127.0.0.1:1")], &body).await.json();
        let prefiller = echo["headers"]["x-prefiller-host-port"].as_str().unwrap().to_owned();
        assert!(echo["host"] == 3 && prefillers.contains(&prefiller), "{echo}");
    }
}

// spec: GW-52
#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn only_the_model_changes_in_long_bodies() {
    let fixture = PickerFixture::start_with("", install_definitions).await;
    fixture.create_pool();
    let _engine = fixture.start_server(2, "worker", echo_server(2));
    fixture.start_engine_with(3, "worker", simulated_engine());
    wait_for_endpoints(&fixture, 2).await;
    create_use_case(&fixture).await;
    let envoy = Envoy::start(&EnvoyConfig::new(vec![fixture.ext_proc_address])).await;
    // 100,000 tokens.
    let prompt = "wörd ".repeat(100_000);
    for model in ["chat", "other"] {
        let body = format!(
            r#"{{ "z":1.50, "prompt":"{prompt}", "big":12345678901234567890,"model" : "{model}" ,"max_tokens":1}}"#
        );
        let endpoint = fixture.address(2).to_string();
        let echo = post(envoy.address, &[("x-gateway-destination-endpoint-subset", &endpoint)], &body).await.json();
        let expected = body.replace("\"chat\"", "\"m\"");
        assert!(echo["body"] == expected, "only the model changes");
    }
    let body = json!({"model": "chat", "prompt": prompt, "max_tokens": 1}).to_string();
    let endpoint = fixture.address(3).to_string();
    let response = post(envoy.address, &[("x-gateway-destination-endpoint-subset", &endpoint)], &body).await.json();
    assert!(response["usage"]["prompt_tokens"].as_u64().unwrap() >= 100_000, "{}", response["usage"]);
}

#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn long_stream_causes_no_message_per_chunk() {
    let fixture = PickerFixture::start("").await;
    fixture.create_pool();
    fixture.start_engine_with(2, "worker", simulated_engine());
    wait_for_endpoints(&fixture, 1).await;
    let envoy = Envoy::start(&EnvoyConfig::new(vec![fixture.ext_proc_address])).await;
    let response = stream(envoy.address, "m", "x", 10_000).await.unwrap();
    assert!(response.body.matches("data: {").count() >= 10_000);
    fixture.wait_until_idle().await;
    let sent = envoy.ext_proc_stat("stream_msgs_sent").await;
    assert!((3..=5).contains(&sent), "headers and body of the request, headers and end of the response: {sent}");
}

// spec: GW-53
#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn model_names_are_restored() {
    let fixture = PickerFixture::start_with("", install_definitions).await;
    fixture.create_pool();
    fixture.start_engine_with(2, "worker", simulated_engine());
    wait_for_endpoints(&fixture, 1).await;
    create_use_case(&fixture).await;
    let config = EnvoyConfig { sends_response_body: true, ..EnvoyConfig::new(vec![fixture.ext_proc_address]) };
    let envoy = Envoy::start(&config).await;
    for model in ["chat", "m"] {
        let body = json!({"model": model, "prompt": "x", "max_tokens": 3});
        assert_eq!(exchange(envoy.address, &body.to_string()).await.unwrap().json()["model"], model);
        let response = stream(envoy.address, model, "x", 10_000).await.unwrap();
        let events = response.body.lines().filter_map(|line| line.strip_prefix("data: {"));
        let named = events.map(|event| event.contains(&format!("\"model\":\"{model}\"")));
        let named: Vec<bool> = named.collect();
        assert!(named.len() >= 10_000 && named.iter().all(|is_named| *is_named), "{} events", named.len());
    }
    let body = json!({"model": "unknown", "prompt": "x", "max_tokens": 3});
    let error = exchange(envoy.address, &body.to_string()).await.unwrap();
    assert_eq!((error.status(), &error.json()["error"]["param"]), (404, &json!("model")));
    assert_eq!(envoy.ext_proc_stat("streams_failed").await, 0);
}

/// A response that does not pass the picker continues without it; the old picker waits for the others.
#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn replaced_picker_aborts_no_response() {
    for sends_response_body in [false, true] {
        let fixture = PickerFixture::start_with("", install_definitions).await;
        fixture.create_pool();
        let engine = ManualEngine::default();
        let _manual = fixture.start_server(2, "worker", engine.router());
        wait_for_endpoints(&fixture, 1).await;
        create_use_case(&fixture).await;
        let old = PickerProcess::start(&fixture.server, "", LOCALHOST, None).await;
        let new = PickerProcess::start(&fixture.server, "", LOCALHOST, None).await;
        new.picker.drain();
        let config = EnvoyConfig { sends_response_body, ..EnvoyConfig::new(vec![old.address, new.address]) };
        let envoy = Envoy::start(&config).await;
        envoy.wait_for_healthy_pickers(1).await;
        let response = start_stream(&envoy, &engine, "chat", 1).await;
        drop(new);
        old.stop(Duration::ZERO).await;
        if !sends_response_body {
            old.wait_until_ended().await;
        }
        assert!(!response.is_finished());
        assert!(!sends_response_body || !old.has_ended(), "the response passes the old picker");
        engine.finish().await;
        let response = response.await.unwrap().unwrap();
        let restored = if sends_response_body { "chat" } else { "m" };
        assert_eq!(response.body.matches(&format!("{{\"model\":\"{restored}\"}}")).count(), 2, "{}", response.body);
        old.wait_until_ended().await;
        assert_eq!(envoy.ext_proc_stat("streams_failed").await, 0);
    }
}

#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn rolling_update_of_the_picker_fails_no_request() {
    let fixture = PickerFixture::start("").await;
    fixture.create_pool();
    for host in [2, 3] {
        fixture.start_engine_with(host, "worker", slow_engine());
    }
    let mut pickers = Vec::new();
    for _ in 0..3 {
        pickers.push(PickerProcess::start(&fixture.server, "", LOCALHOST, None).await);
    }
    let config = EnvoyConfig::new(pickers.iter().map(|picker| picker.address).collect());
    let envoy = Envoy::start(&config).await;
    envoy.wait_for_healthy_pickers(3).await;
    let load = envoy.load(8);
    load.wait_for(50).await;
    for (remaining, picker) in [2, 1].into_iter().zip(&pickers) {
        picker.stop(Duration::from_secs(1)).await;
        envoy.wait_for_healthy_pickers(remaining).await;
        picker.wait_until_ended().await;
        load.wait_for(50).await;
    }
    assert_eq!(load.stop().await, [] as [String; 0]);
    assert_eq!(envoy.ext_proc_stat("streams_failed").await, 0);
}

/// Returns whether Envoy responded with 500; clients that have not sent the whole request may not receive that.
fn is_rejection(failure: &str) -> bool {
    ["aborted", "500 "].contains(&failure)
}

/// Envoy sends requests to any engine while the picker is gone.
#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn killed_picker_that_fails_open() {
    let fixture = PickerFixture::start("").await;
    fixture.create_pool();
    for host in [2, 3] {
        fixture.start_engine_with(host, "worker", slow_engine());
    }
    let picker = PickerProcess::start(&fixture.server, "", LOCALHOST, None).await;
    let address = picker.address;
    let engines = vec![fixture.address(2), fixture.address(3)];
    let config = EnvoyConfig { fail_open: true, engines, ..EnvoyConfig::new(vec![address]) };
    let envoy = Envoy::start(&config).await;
    envoy.wait_for_healthy_pickers(1).await;
    let load = envoy.load(8);
    load.wait_for(50).await;
    assert_eq!(load.take_failures(), [] as [String; 0]);
    picker.kill();
    envoy.wait_for_healthy_pickers(0).await;
    load.wait_for(50).await;
    // Envoy aborts requests whose body it has sent to the picker, and rejects further ones until it knows that there is none.
    assert!(load.take_failures().iter().all(|failure| is_rejection(failure)));
    load.wait_for(50).await;
    assert_eq!(load.take_failures(), [] as [String; 0], "requests are sent without a picker");
    let _restarted = PickerProcess::start(&fixture.server, "", address, None).await;
    envoy.wait_for_healthy_pickers(1).await;
    load.wait_for(50).await;
    assert_eq!(load.stop().await, [] as [String; 0]);
}

#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn killed_picker_that_fails_closed() {
    let fixture = PickerFixture::start("").await;
    fixture.create_pool();
    for host in [2, 3] {
        fixture.start_engine_with(host, "worker", slow_engine());
    }
    let picker = PickerProcess::start(&fixture.server, "", LOCALHOST, None).await;
    let address = picker.address;
    let envoy = Envoy::start(&EnvoyConfig::new(vec![address])).await;
    envoy.wait_for_healthy_pickers(1).await;
    let load = envoy.load(8);
    load.wait_for(50).await;
    assert_eq!(load.take_failures(), [] as [String; 0]);
    picker.kill();
    envoy.wait_for_healthy_pickers(0).await;
    assert!(is_rejection(&stream(envoy.address, "m", "x", 1).await.err().unwrap()));
    let _restarted = PickerProcess::start(&fixture.server, "", address, None).await;
    envoy.wait_for_healthy_pickers(1).await;
    load.wait_for(50).await;
    assert!(load.take_failures().iter().all(|failure| is_rejection(failure)));
    load.wait_for(50).await;
    assert_eq!(load.stop().await, [] as [String; 0]);
}

/// Writes a new certificate to `directory`, and returns its path.
fn write_certificate(directory: &std::path::Path) -> String {
    let generated = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join("tls.key"), generated.signing_key.serialize_pem()).unwrap();
    let path = directory.join("tls.crt");
    std::fs::write(&path, generated.cert.pem()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Open connections continue with the old certificate; new ones have the new one.
#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn certificate_is_rotated_under_load() {
    let fixture = PickerFixture::start("").await;
    fixture.create_pool();
    fixture.start_engine_with(2, "worker", slow_engine());
    let directory = tempfile::tempdir().unwrap();
    let [serving, old, new] = ["serving", "old", "new"].map(|name| directory.path().join(name));
    write_certificate(&serving);
    std::fs::create_dir(&old).unwrap();
    std::fs::copy(serving.join("tls.crt"), old.join("tls.crt")).unwrap();
    let certificate = Arc::new(ServingCertificate::from_directory(&serving).unwrap());
    let picker = PickerProcess::start(&fixture.server, "", LOCALHOST, Some(certificate)).await;
    let config = |directory: &std::path::Path| EnvoyConfig {
        picker_ca: Some(directory.join("tls.crt").to_str().unwrap().to_owned()),
        ..EnvoyConfig::new(vec![picker.address])
    };
    let envoy = Envoy::start(&config(&old)).await;
    envoy.wait_for_healthy_pickers(1).await;
    let load = envoy.load(4);
    load.wait_for(20).await;
    write_certificate(&new);
    let rejecting = Envoy::start(&config(&new)).await;
    assert!(stream(rejecting.address, "m", "x", 1).await.is_err(), "the picker has the old certificate");
    for file in ["tls.key", "tls.crt"] {
        std::fs::copy(new.join(file), serving.join(file)).unwrap();
    }
    rejecting.wait_for_healthy_pickers(1).await;
    stream(rejecting.address, "m", "x", 1).await.unwrap();
    load.wait_for(20).await;
    assert_eq!(load.stop().await, [] as [String; 0]);
}

const TWO_ENDPOINTS_CONFIG: &str = "
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: max-score-picker, parameters: {maxNumOfEndpoints: 2}}]
";

/// The picker does not scrape without scorers, so only the proxy knows that an engine refuses connections.
#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn request_counts_where_the_proxy_sent_it() {
    let fixture = PickerFixture::start(TWO_ENDPOINTS_CONFIG).await;
    fixture.create_pool();
    let engine = ManualEngine::default();
    let refusing = fixture.start_server(2, "worker", axum::Router::new());
    let _manual = [3, 4].map(|host| fixture.start_server(host, "worker", engine.router()));
    wait_for_endpoints(&fixture, 3).await;
    let engines = [2, 3, 4].map(|host| fixture.address(host)).to_vec();
    let envoy = Envoy::start(&EnvoyConfig { engines, ..EnvoyConfig::new(vec![fixture.ext_proc_address]) }).await;
    drop(refusing);
    let is_refused = async || TcpStream::connect(fixture.address(2)).await.is_err();
    wait_until("the refused connection", is_refused).await;
    let subset =
        |hosts: &[u8]| hosts.iter().map(|host| fixture.address(*host).to_string()).collect::<Vec<_>>().join(",");
    let mut responses = Vec::new();
    // The third request is sent to the idle endpoint 2 first.
    for (count, hosts) in [&[3_u8][..], &[4], &[2, 3]].into_iter().enumerate() {
        let (address, hint) = (envoy.address, subset(hosts));
        responses.push(tokio::spawn(async move {
            let body = r#"{"model": "m", "prompt": "x", "stream": true}"#;
            post(address, &[("x-gateway-destination-endpoint-subset", &hint)], body).await
        }));
        engine.wait_for_requests(count + 1).await;
    }
    let counts_on_3 = async || {
        for _ in 0..16 {
            if fixture.send("x", Some(&subset(&[3, 4]))).await.hosts() != [4, 3] {
                return false;
            }
        }
        true
    };
    wait_until("two requests on endpoint 3, one on endpoint 4", counts_on_3).await;
    engine.finish().await;
    for response in responses {
        assert!(response.await.unwrap().body.ends_with("data: [DONE]\n\n"));
    }
    fixture.wait_until_idle().await;
    assert_eq!(envoy.ext_proc_stat("streams_failed").await, 0);
}

/// The scrapes of the picker detect the endpoint; Envoy only reports that it could not connect, after 5 s.
#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn requests_leave_an_endpoint_that_drops_connection_attempts() {
    let fixture = PickerFixture::start("").await;
    fixture.create_pool();
    let _unresponsive = fixture.start_unresponsive(2).await;
    let _engine = fixture.start_server(3, "worker", echo_server(3));
    wait_for_endpoints(&fixture, 2).await;
    let envoy = Envoy::start(&EnvoyConfig::new(vec![fixture.ext_proc_address])).await;
    let body = r#"{"model": "m", "prompt": "x"}"#;
    let is_served = async || post(envoy.address, &[], body).await.status() == 200;
    wait_until("a response", is_served).await;
    for _ in 0..16 {
        assert!(is_served().await);
    }
}

/// Envoy resets a response whose engine fails, and sends the picker no message in which it could return an error event.
#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test --with envoy"]
async fn stream_of_a_killed_engine_is_aborted() {
    for sends_response_body in [false, true] {
        let fixture = PickerFixture::start_with("", install_definitions).await;
        fixture.create_pool();
        let engine = ManualEngine::default();
        let _manual = fixture.start_server(2, "worker", engine.router());
        wait_for_endpoints(&fixture, 1).await;
        create_use_case(&fixture).await;
        let config = EnvoyConfig { sends_response_body, ..EnvoyConfig::new(vec![fixture.ext_proc_address]) };
        let envoy = Envoy::start(&config).await;
        let body = json!({"model": "chat", "prompt": "x", "stream": true}).to_string();
        let mut response = gateway_fixture::send(envoy.address, "POST", "/v1/completions", &body).await;
        engine.wait_for_requests(1).await;
        // If the engine fails before the picker has processed the head, Envoy responds with 502.
        response.read_u8().await.unwrap();
        engine.abort().await;
        let mut rest = Vec::new();
        let result = timeout(Duration::from_secs(60), response.read_to_end(&mut rest)).await.unwrap();
        assert!(result.is_err() || !rest.ends_with(b"\r\n0\r\n\r\n"));
        fixture.wait_until_idle().await;
    }
}
