//! Tests of sleep mode: what happens to requests that are in flight, or that arrive while the engine sleeps.

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use engine::{Config, EngineMemory, NodeMemory, RequestMemory, Timing};
use futures::poll;
use rstest::rstest;
use std::{net::SocketAddr, time::Duration};
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::client::{self, TIMEOUT, recorded_config};

/// Returns an engine in development mode whose steps take 10 ms.
fn engine() -> Router {
    let timing = Timing { decode_step: Duration::from_millis(10), ..Timing::instant() };
    engine::router(Config { dev_mode: true, timing, ..recorded_config() }, RequestMemory::default())
}

async fn call(engine: &Router, method: &str, path: &str, body: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let response = engine.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let status = response.status();
    (status, String::from_utf8(to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap())
}

/// Completes 100 tokens, which takes a second.
async fn complete(engine: &Router) -> String {
    let body = r#"{"model":"tiny","prompt":"a","max_tokens":100,"ignore_eos":true}"#;
    let (status, body) = call(engine, "POST", "/v1/completions", body).await;
    assert_eq!(status, 200, "{body}");
    body
}

async fn is_sleeping(engine: &Router) -> bool {
    call(engine, "GET", "/is_sleeping", "").await.1 == r#"{"is_sleeping":true}"#
}

#[tokio::test(start_paused = true)]
async fn new_requests_hang_until_the_engine_wakes_up() {
    let engine = engine();
    call(&engine, "POST", "/sleep?level=1", "").await;
    let mut request = Box::pin(complete(&engine));
    assert!(tokio::time::timeout(Duration::from_secs(3600), &mut request).await.is_err());
    let metrics = call(&engine, "GET", "/metrics", "").await.1;
    for series in ["vllm:num_requests_waiting{engine=\"0\",model_name=\"tiny\"} 0.0", "sleep_state=\"awake\"} 0.0"] {
        assert!(metrics.contains(series), "{series}");
    }
    assert_eq!(call(&engine, "GET", "/health", "").await.0, 200);
    call(&engine, "POST", "/wake_up", "").await;
    assert!(request.await.contains(r#""finish_reason":"length""#));
}

#[rstest]
#[case::abort("", 0, "abort")]
#[case::wait("?mode=wait", 1, "length")]
#[tokio::test(start_paused = true)]
async fn requests_in_flight_end_before_the_engine_sleeps(
    #[case] query: &str,
    #[case] seconds: u64,
    #[case] finish_reason: &str,
) {
    let engine = engine();
    let mut request = Box::pin(complete(&engine));
    assert!(tokio::time::timeout(Duration::from_millis(105), &mut request).await.is_err());
    let started = tokio::time::Instant::now();
    let path = format!("/sleep{query}");
    let (response, sleep) = tokio::join!(request, call(&engine, "POST", &path, ""));
    assert_eq!(sleep, (StatusCode::OK, r#"{"status":"sleeping","level":1}"#.to_owned()));
    assert_eq!(started.elapsed().as_secs_f64().round() as u64, seconds);
    assert!(response.contains(&format!(r#""finish_reason":"{finish_reason}""#)), "{response}");
}

#[tokio::test(start_paused = true)]
async fn kept_requests_continue_after_the_engine_wakes_up() {
    let engine = engine();
    let mut request = Box::pin(complete(&engine));
    assert!(tokio::time::timeout(Duration::from_millis(105), &mut request).await.is_err());
    call(&engine, "POST", "/sleep?mode=keep", "").await;
    assert!(tokio::time::timeout(Duration::from_secs(3600), &mut request).await.is_err());
    assert!(
        call(&engine, "GET", "/metrics", "")
            .await
            .1
            .contains("num_requests_running{engine=\"0\",model_name=\"tiny\"} 1.0")
    );
    call(&engine, "POST", "/wake_up", "").await;
    assert!(request.await.contains(r#""finish_reason":"length""#));
}

/// A client that gives up while the engine drains does not leave it awake without new requests.
#[tokio::test(start_paused = true)]
async fn engine_falls_asleep_although_the_client_disconnects() {
    let engine = engine();
    let mut request = Box::pin(complete(&engine));
    assert!(poll!(&mut request).is_pending());
    let sleep = call(&engine, "POST", "/sleep?mode=wait", "");
    assert!(tokio::time::timeout(Duration::from_millis(10), sleep).await.is_err());
    request.await;
    while !is_sleeping(&engine).await {
        tokio::task::yield_now().await;
    }
}

#[rstest]
#[case::pause(0, false)]
#[case::offload(1, true)]
#[case::discard(2, true)]
#[tokio::test]
async fn sleep_discards_the_kv_cache(#[case] level: u8, #[case] discards: bool) {
    let engine =
        engine::router(Config { dev_mode: true, max_model_len: 2048, ..recorded_config() }, RequestMemory::default());
    let prompt = format!(r#"{{"model":"tiny","prompt":"{}","max_tokens":1}}"#, "word ".repeat(400));
    call(&engine, "POST", "/v1/completions", &prompt).await;
    call(&engine, "POST", &format!("/sleep?level={level}"), "").await;
    call(&engine, "POST", "/wake_up", "").await;
    call(&engine, "POST", "/v1/completions", &prompt).await;
    let metrics = call(&engine, "GET", "/metrics", "").await.1;
    let no_hits = "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"tiny\"} 0.0";
    assert_eq!(metrics.contains(no_hits), discards);
}

/// Clients that disconnect leave calls behind, but only a limited number.
#[tokio::test(start_paused = true)]
async fn abandoned_calls_are_limited() {
    let engine = engine();
    let mut request = Box::pin(complete(&engine));
    assert!(poll!(&mut request).is_pending());
    for _ in 0..1000 {
        let sleep = call(&engine, "POST", "/sleep?mode=wait", "");
        let _ = tokio::time::timeout(Duration::from_micros(1), sleep).await;
    }
    let metrics = call(&engine, "GET", "/metrics", "").await.1;
    assert!(metrics.contains("vllm:sleep_mode_operations_in_flight{operation=\"sleep\"} 64.0"), "{metrics}");
    request.await;
}

#[rstest]
#[case::level("/sleep?level=7", "level")]
#[case::mode("/sleep?mode=later", "mode")]
#[tokio::test]
async fn rejects_invalid_parameters(#[case] path: &str, #[case] param: &str) {
    let engine = engine();
    let (status, body) = call(&engine, "POST", path, "").await;
    assert_eq!(status, 400);
    assert!(body.contains(&format!(r#""param":"{param}""#)), "{body}");
    assert!(!is_sleeping(&engine).await);
}

const GIB: u64 = 1 << 30;

/// An engine on a device of 80 GiB, with 20 GiB of weights and 60 GiB of host memory.
fn config_on(node: &NodeMemory) -> Config {
    let memory = EngineMemory { node: node.clone(), devices: vec!["gpu".to_owned()], weight_bytes: 20 * GIB };
    Config { dev_mode: true, enable_sleep_mode: true, memory: Some(memory), ..recorded_config() }
}

type ServeTask = tokio::task::JoinHandle<std::io::Result<()>>;

async fn serve(config: Config) -> (SocketAddr, ServeTask) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, tokio::spawn(engine::serve(listener, config, RequestMemory::default(), CancellationToken::new())))
}

async fn error_of(task: ServeTask) -> String {
    timeout(TIMEOUT, task).await.expect("the engine serves").unwrap().unwrap_err().to_string()
}

async fn post(address: SocketAddr, path: &str) -> String {
    let response = client::call(address, "POST", path, "").await;
    format!("{} {}", response.status(), response.body)
}

#[tokio::test]
async fn engines_of_a_device_take_turns() {
    let node = NodeMemory::new([("gpu".to_owned(), 80 * GIB)], 60 * GIB);
    let (first, _first_task) = serve(config_on(&node)).await;
    assert!(post(first, "/sleep").await.starts_with("200"));
    let (second, second_task) = serve(config_on(&node)).await;
    assert!(post(second, "/sleep").await.starts_with("200"));
    assert!(post(first, "/wake_up").await.starts_with("200"));

    // Two engines are awake at the same time.
    let failure = "500 Internal Server Error {\"error\":{\"message\":\"EngineCore encountered an issue. See stack trace (above) \
                   for the root cause.\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}";
    assert_eq!(post(second, "/wake_up").await, failure);
    let message = "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:139";
    assert_eq!(error_of(second_task).await, message);
    let (_, third_task) = serve(config_on(&node)).await;
    assert_eq!(
        error_of(third_task).await,
        "ValueError: Free memory on device cuda:0 (6.4/80.0 GiB) on startup is less than desired GPU memory utilization (0.92, \
         73.6 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    );
}

/// A killed engine does not continue to wake up.
#[tokio::test]
async fn killed_engine_frees_its_memory() {
    let node = NodeMemory::new([("gpu".to_owned(), 80 * GIB)], 60 * GIB);
    let (first, first_task) = serve(Config { wake_time: Duration::from_secs(3600), ..config_on(&node) }).await;
    post(first, "/sleep").await;
    let _wake_up = client::send(first, "POST", "/wake_up", "").await;
    let in_flight = "vllm:sleep_mode_operations_in_flight{operation=\"wake\"} 1.0";
    while !client::call(first, "GET", "/metrics", "").await.body.contains(in_flight) {}
    first_task.abort();
    first_task.await.unwrap_err();
    let (second, _second_task) = serve(config_on(&node)).await;
    assert!(post(second, "/sleep").await.starts_with("200"));
}

/// As vLLM on a CPU.
#[tokio::test]
async fn engine_without_sleep_mode_releases_nothing() {
    let node = NodeMemory::new([("gpu".to_owned(), 80 * GIB)], 60 * GIB);
    let (first, _first_task) = serve(Config { enable_sleep_mode: false, ..config_on(&node) }).await;
    assert!(post(first, "/sleep").await.starts_with("200"));
    assert!(error_of(serve(config_on(&node)).await.1).await.starts_with("ValueError: Free memory on device cuda:0"));
    assert!(post(first, "/wake_up").await.starts_with("200"));
}

#[tokio::test]
async fn engine_that_cannot_offload_its_weights_fails() {
    let node = NodeMemory::new([("gpu".to_owned(), 80 * GIB)], 10 * GIB);
    let (engine, task) = serve(config_on(&node)).await;
    assert!(post(engine, "/sleep").await.starts_with("500"));
    assert_eq!(error_of(task).await, "RuntimeError: CUDA error: out of memory");
}

#[tokio::test(start_paused = true)]
async fn waking_up_takes_the_time_for_copying_the_weights() {
    let config = Config { dev_mode: true, wake_time: Duration::from_secs(3), ..recorded_config() };
    let engine = engine::router(config, RequestMemory::default());
    call(&engine, "POST", "/sleep", "").await;
    let started = tokio::time::Instant::now();
    let (_, is_asleep) = tokio::join!(call(&engine, "POST", "/wake_up", ""), async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        is_sleeping(&engine).await
    });
    assert!(is_asleep);
    assert_eq!(started.elapsed().as_secs(), 3);
    assert!(!is_sleeping(&engine).await);
}
