//! Time follows queue, batch and cache; places are freed by clients that leave.

use std::time::{Duration, Instant};

use crate::client::{Running, call, send, start, tiny};
use engine::{Config, Timing};
use tokio::io::AsyncReadExt;

async fn completion(engine: &Running, prompt: &str, max_tokens: usize) -> Duration {
    let body = format!(r#"{{"model":"tiny","prompt":"{prompt}","max_tokens":{max_tokens},"ignore_eos":true}}"#);
    let begin = Instant::now();
    let answer = call(engine.address, "POST", "/v1/completions", &body).await;
    assert_eq!(answer.status(), "200 OK", "{}", answer.body);
    begin.elapsed()
}

async fn metric(engine: &Running, series: &str) -> f64 {
    let page = call(engine.address, "GET", "/metrics", "").await.body;
    let line = page.lines().find(|line| line.starts_with(series)).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test]
async fn a_shared_prefix_is_answered_sooner() {
    let timing = Timing { prefill_tokens_per_second: 2_000.0, ..Timing::instant() };
    let engine = start(Config { timing, ..tiny() }).await;
    let prompt = "word ".repeat(400);
    let (cold, warm) = (completion(&engine, &prompt, 1).await, completion(&engine, &prompt, 1).await);
    assert!(cold >= Duration::from_millis(150) && warm * 2 < cold, "cold {cold:?}, warm {warm:?}");
    assert!(metric(&engine, "vllm:prefix_cache_hits_total").await >= 384.0);
}

#[tokio::test]
async fn more_requests_than_seats_wait_and_show_in_the_metrics() {
    let timing = Timing { decode_step: Duration::from_millis(10), ..Timing::instant() };
    let engine = start(Config { timing, max_num_seqs: 2, ..tiny() }).await;
    let all = futures::future::join_all((0..4).map(|n| completion(&engine, ["a", "b", "c", "d"][n], 20)));
    let seen = async {
        loop {
            let waiting = metric(&engine, "vllm:num_requests_waiting{").await;
            if waiting == 2.0 {
                return metric(&engine, "vllm:num_requests_running{").await;
            }
        }
    };
    let (times, running) = tokio::join!(all, seen);
    assert_eq!(running, 2.0);
    let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(*last >= *first + Duration::from_millis(150), "{times:?}");
    assert_eq!(metric(&engine, "vllm:request_success_total{engine=\"0\",finished_reason=\"length\"").await, 4.0);
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_seat() {
    let timing = Timing { decode_step: Duration::from_millis(5), ..Timing::instant() };
    let engine = start(Config { timing, ..tiny() }).await;
    let body = r#"{"model":"tiny","prompt":"x","max_tokens":1000,"ignore_eos":true,"stream":true}"#;
    let mut stream = send(engine.address, "POST", "/v1/completions", body).await;
    stream.read_u8().await.unwrap();
    assert_eq!(metric(&engine, "vllm:num_requests_running{").await, 1.0);
    drop(stream);
    let begin = Instant::now();
    while metric(&engine, "vllm:num_requests_running{").await > 0.0 {
        assert!(begin.elapsed() < Duration::from_secs(2), "the request still runs");
    }
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
    let engine = start(Config { load_time: Duration::from_secs(600), ..tiny() }).await;
    let answer = call(engine.address, "GET", "/health", "").await;
    assert_eq!((answer.status(), answer.body.as_str()), ("503 Service Unavailable", ""));
}
