//! Tests that latencies depend on queue, batch and cache, and that disconnected clients free their slots.
//!
//! Tests of latencies call the router with paused time, because sockets need real time.

use std::time::Duration;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, Response},
};
use tokio::{io::AsyncReadExt, time::Instant};
use tower::ServiceExt;

use crate::client::{TIMEOUT, call, recorded_config, send, start};
use engine::{Config, RequestMemory, Timing};

async fn request(engine: &Router, method: &str, path: &str, body: &str) -> Response<Body> {
    let builder = Request::builder().method(method).uri(path).header("content-type", "application/json");
    engine.clone().oneshot(builder.body(Body::from(body.to_owned())).unwrap()).await.unwrap()
}

async fn body_text(response: Response<Body>) -> String {
    String::from_utf8(to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap()
}

async fn completion(engine: &Router, prompt: &str, max_tokens: usize) -> Duration {
    let body = format!(r#"{{"model":"tiny","prompt":"{prompt}","max_tokens":{max_tokens},"ignore_eos":true}}"#);
    let start = Instant::now();
    let response = request(engine, "POST", "/v1/completions", &body).await;
    let status = response.status();
    let body = body_text(response).await;
    assert_eq!(status, 200, "{body}");
    start.elapsed()
}

async fn metric(engine: &Router, series: &str) -> f64 {
    sample(&body_text(request(engine, "GET", "/metrics", "").await).await, series)
}

fn sample(page: &str, series: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(series)).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn cached_prefix_reduces_latency() {
    let timing = Timing { prefill_tokens_per_second: 2_000.0, ..Timing::instant() };
    let engine = engine::router(Config { timing, ..recorded_config() }, RequestMemory::default());
    let prompt = "word ".repeat(400);
    let (cold, warm) = (completion(&engine, &prompt, 1).await, completion(&engine, &prompt, 1).await);
    assert!(cold >= Duration::from_millis(150) && warm * 2 < cold, "cold {cold:?}, warm {warm:?}");
    assert!(metric(&engine, "vllm:prefix_cache_hits_total").await >= 384.0);
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_batch_size_wait_and_are_counted() {
    let timing = Timing { decode_step: Duration::from_millis(10), ..Timing::instant() };
    let engine = engine::router(Config { timing, max_num_seqs: 2, ..recorded_config() }, RequestMemory::default());
    let requests = futures::future::join_all(["a", "b", "c", "d"].map(|prompt| completion(&engine, prompt, 20)));
    let counts = async {
        // Paused time advances once all four requests are pending.
        tokio::time::sleep(Duration::from_millis(1)).await;
        (metric(&engine, "vllm:num_requests_waiting{").await, metric(&engine, "vllm:num_requests_running{").await)
    };
    let (times, counts) = tokio::join!(requests, counts);
    assert_eq!(counts, (2.0, 2.0));
    let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(*last >= *first + Duration::from_millis(150), "{times:?}");
    assert_eq!(metric(&engine, "vllm:request_success_total{engine=\"0\",finished_reason=\"length\"").await, 4.0);
}

/// The request would take 50 minutes to complete.
#[tokio::test]
async fn disconnected_client_frees_its_slot() {
    let timing = Timing { decode_step: Duration::from_secs(3), ..Timing::instant() };
    let engine = start(Config { timing, ..recorded_config() }).await;
    let body = r#"{"model":"tiny","prompt":"x","max_tokens":1000,"ignore_eos":true,"stream":true}"#;
    let wait_for_running = async |expected: f64| {
        let poll = async {
            let page = async || call(engine.address, "GET", "/metrics", "").await.body;
            while sample(&page().await, "vllm:num_requests_running{") != expected {}
        };
        assert!(tokio::time::timeout(TIMEOUT, poll).await.is_ok(), "timed out waiting for {expected} running requests");
    };
    let mut stream = send(engine.address, "POST", "/v1/completions", body).await;
    stream.read_u8().await.unwrap();
    wait_for_running(1.0).await;
    drop(stream);
    wait_for_running(0.0).await;
}

#[tokio::test]
async fn stop_strings_and_limits_apply() {
    let engine = start(recorded_config()).await;
    let body = r#"{"messages":[{"role":"user","content":"hi"}],"stop":[" the"]}"#;
    let response = call(engine.address, "POST", "/v1/chat/completions", body).await;
    assert!(response.body.contains(r#""finish_reason":"stop","stop_reason":" the""#), "{}", response.body);
    let body = r#"{"prompt":"hi","max_tokens":5000}"#;
    let response = call(engine.address, "POST", "/v1/completions", body).await;
    assert_eq!(response.status(), "400 Bad Request");
    assert!(response.body.contains(r#""type":"BadRequestError","param":"max_tokens","code":400"#), "{}", response.body);
}

#[tokio::test]
async fn responds_503_while_loading() {
    let engine = start(Config { load_time: Duration::from_secs(24 * 3600), ..recorded_config() }).await;
    let response = call(engine.address, "GET", "/health", "").await;
    assert_eq!((response.status(), response.body.as_str()), ("503 Service Unavailable", ""));
}
