//! Tests that clients cannot make an engine use unlimited memory or connections.

use std::{io, time::Duration};

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use engine::{Config, RequestMemory, Timing};
use futures::{StreamExt as _, poll, stream};
use rstest::rstest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tower::ServiceExt;

use crate::client::{TIMEOUT, recorded_config, send, start};

#[tokio::test]
async fn rejects_a_body_that_is_too_large() {
    let body = vec![b' '; (32 << 20) + 1];
    let request = Request::post("/v1/completions").header("content-type", "application/json").body(Body::from(body));
    let response = engine::router(recorded_config(), RequestMemory::default()).oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 413);
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert_eq!(
        std::str::from_utf8(&body).unwrap(),
        r#"{"error":{"message":"The request body is larger than 32 MiB.","type":"Request Entity Too Large","param":null,"code":413}}"#
    );
}

/// A body that never ends occupies the memory of both engines.
#[tokio::test(start_paused = true)]
async fn engines_share_the_memory() {
    let memory = RequestMemory::new(64 << 10);
    let respond = |body| {
        let request = Request::post("/v1/completions").header("content-type", "application/json").body(body);
        engine::router(recorded_config(), memory.clone()).oneshot(request.unwrap())
    };
    let chunks = stream::iter([Ok::<_, io::Error>("{")]).chain(stream::pending());
    let mut first = Box::pin(respond(Body::from_stream(chunks)));
    assert!(poll!(&mut first).is_pending());
    let mut second = Box::pin(respond(Body::from(r#"{"model":"tiny","prompt":"a"}"#)));
    assert!(timeout(Duration::from_secs(30), &mut second).await.is_err(), "the first engine has reserved the memory");
    drop(first);
    assert_eq!(second.await.unwrap().status(), 200);
}

#[tokio::test]
async fn closes_a_connection_that_sends_nothing() {
    let engine = start(Config { keep_alive: Duration::from_millis(1), ..recorded_config() }).await;
    let mut stream = TcpStream::connect(engine.address).await.unwrap();
    let mut received = Vec::new();
    timeout(TIMEOUT, stream.read_to_end(&mut received)).await.expect("the connection stays open").unwrap();
    assert_eq!(received, b"");
}

#[tokio::test]
async fn further_clients_wait_for_a_connection() {
    let engine = start(Config { max_connections: 1, ..recorded_config() }).await;
    let mut first = TcpStream::connect(engine.address).await.unwrap();
    let health_check = async |stream: &mut TcpStream| {
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        timeout(TIMEOUT, stream.read(&mut [0; 1024])).await.unwrap().unwrap();
    };
    health_check(&mut first).await;
    let mut second = send(engine.address, "GET", "/health", "").await;
    health_check(&mut first).await;
    assert_eq!(second.try_read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(first);
    let mut response = String::new();
    timeout(TIMEOUT, second.read_to_string(&mut response)).await.expect("no response").unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
}

#[tokio::test]
async fn closes_a_connection_whose_client_does_not_read() {
    let config = Config { max_connections: 1, stall_timeout: Duration::from_millis(1), ..recorded_config() };
    let engine = start(config).await;
    let prompt = serde_json::json!({"prompt": "a ".repeat(1 << 20)}).to_string();
    let _stalled = send(engine.address, "POST", "/tokenize", &prompt).await;
    let mut next = send(engine.address, "GET", "/health", "").await;
    let mut head = [0; 12];
    timeout(TIMEOUT, next.read_exact(&mut head)).await.expect("the first connection stays open").unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
}

/// A stream of 900 tokens takes nine seconds.
#[rstest]
#[case::default(Duration::ZERO, false)]
#[case::too_short(Duration::from_secs(5), false)]
#[case::sufficient(Duration::from_secs(20), true)]
#[tokio::test(start_paused = true)]
async fn stopped_engine_completes_requests_within_the_shutdown_timeout(
    #[case] shutdown_timeout: Duration,
    #[case] is_complete: bool,
) {
    let timing = Timing { decode_step: Duration::from_millis(10), ..Timing::instant() };
    let engine = start(Config { timing, shutdown_timeout, ..recorded_config() }).await;
    let body = r#"{"model":"tiny","prompt":"a","max_tokens":900,"ignore_eos":true,"stream":true}"#;
    let mut stream = send(engine.address, "POST", "/v1/completions", body).await;
    let mut received = Vec::new();
    while !received.windows(5).any(|window| window == b"data:") {
        assert!(stream.read_buf(&mut received).await.unwrap() > 0);
    }
    engine.stop();
    stream.read_to_end(&mut received).await.ok();
    assert_eq!(String::from_utf8(received).unwrap().contains("data: [DONE]"), is_complete);
    assert!(TcpStream::connect(engine.address).await.is_err(), "new connections are refused");
}
