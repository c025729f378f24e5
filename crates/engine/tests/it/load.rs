//! Time follows queue, batch and cache; places are freed by clients that leave.
//!
//! What takes how long is asked of the routes on paused time, which sockets do not know.

use std::time::Duration;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, Response},
};
use tokio::{io::AsyncReadExt, time::Instant};
use tower::ServiceExt;

use crate::client::{PATIENCE, call, send, start, tiny};
use engine::{Config, Timing};

async fn ask(engine: &Router, method: &str, path: &str, body: &str) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    engine.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap()
}

async fn text(answer: Response<Body>) -> String {
    String::from_utf8(to_bytes(answer.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap()
}

async fn completion(engine: &Router, prompt: &str, max_tokens: usize) -> Duration {
    let body = format!(r#"{{"model":"tiny","prompt":"{prompt}","max_tokens":{max_tokens},"ignore_eos":true}}"#);
    let begin = Instant::now();
    let answer = ask(engine, "POST", "/v1/completions", &body).await;
    let status = answer.status();
    let body = text(answer).await;
    assert_eq!(status, 200, "{body}");
    begin.elapsed()
}

async fn metric(engine: &Router, series: &str) -> f64 {
    value(&text(ask(engine, "GET", "/metrics", "").await).await, series)
}

fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(series)).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_shared_prefix_is_answered_sooner() {
    let timing = Timing { prefill_tokens_per_second: 2_000.0, ..Timing::instant() };
    let engine = engine::router(Config { timing, ..tiny() });
    let prompt = "word ".repeat(400);
    let (cold, warm) = (completion(&engine, &prompt, 1).await, completion(&engine, &prompt, 1).await);
    assert!(cold >= Duration::from_millis(150) && warm * 2 < cold, "cold {cold:?}, warm {warm:?}");
    assert!(metric(&engine, "vllm:prefix_cache_hits_total").await >= 384.0);
}

#[tokio::test(start_paused = true)]
async fn more_requests_than_seats_wait_and_show_in_the_metrics() {
    let timing = Timing { decode_step: Duration::from_millis(10), ..Timing::instant() };
    let engine = engine::router(Config { timing, max_num_seqs: 2, ..tiny() });
    let all = futures::future::join_all(["a", "b", "c", "d"].map(|prompt| completion(&engine, prompt, 20)));
    let seen = async {
        // Time passes when all four have begun.
        tokio::time::sleep(Duration::from_millis(1)).await;
        (metric(&engine, "vllm:num_requests_waiting{").await, metric(&engine, "vllm:num_requests_running{").await)
    };
    let (times, seen) = tokio::join!(all, seen);
    assert_eq!(seen, (2.0, 2.0));
    let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(*last >= *first + Duration::from_millis(150), "{times:?}");
    assert_eq!(metric(&engine, "vllm:request_success_total{engine=\"0\",finished_reason=\"length\"").await, 4.0);
}

/// It would take the better part of an hour.
#[tokio::test]
async fn a_client_that_leaves_frees_its_seat() {
    let timing = Timing { decode_step: Duration::from_secs(3), ..Timing::instant() };
    let engine = start(Config { timing, ..tiny() }).await;
    let body = r#"{"model":"tiny","prompt":"x","max_tokens":1000,"ignore_eos":true,"stream":true}"#;
    let running = async |expected: f64| {
        let asking = async {
            let page = async || call(engine.address, "GET", "/metrics", "").await.body;
            while value(&page().await, "vllm:num_requests_running{") != expected {}
        };
        assert!(tokio::time::timeout(PATIENCE, asking).await.is_ok(), "never {expected} running");
    };
    let mut stream = send(engine.address, "POST", "/v1/completions", body).await;
    stream.read_u8().await.unwrap();
    running(1.0).await;
    drop(stream);
    running(0.0).await;
}

#[tokio::test]
async fn stop_strings_and_limits_end_an_answer() {
    let engine = start(tiny()).await;
    let body = r#"{"messages":[{"role":"user","content":"hi"}],"stop":[" the"]}"#;
    let answer = call(engine.address, "POST", "/v1/chat/completions", body).await;
    assert!(answer.body.contains(r#""finish_reason":"stop","stop_reason":" the""#), "{}", answer.body);
    let body = r#"{"prompt":"hi","max_tokens":5000}"#;
    let answer = call(engine.address, "POST", "/v1/completions", body).await;
    assert_eq!(answer.status(), "400 Bad Request");
    assert!(answer.body.contains(r#""type":"BadRequestError","param":"max_tokens","code":400"#), "{}", answer.body);
}

#[tokio::test]
async fn while_loading_every_path_is_unavailable() {
    let engine = start(Config { load_time: Duration::from_secs(24 * 3600), ..tiny() }).await;
    let answer = call(engine.address, "GET", "/health", "").await;
    assert_eq!((answer.status(), answer.body.as_str()), ("503 Service Unavailable", ""));
}
