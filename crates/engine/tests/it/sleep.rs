//! Tests of sleep mode: what happens to requests that are in flight, or that arrive while the engine sleeps.

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use engine::{Config, RequestMemory, Timing};
use futures::poll;
use rstest::rstest;
use std::time::Duration;
use tower::ServiceExt;

use crate::client::recorded_config;

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
