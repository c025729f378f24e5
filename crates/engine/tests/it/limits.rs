//! Tests that clients cannot make an engine use unlimited memory or connections.

use std::{io, time::Duration};

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use engine::Config;
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
    let response = engine::router(recorded_config()).oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 413);
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert_eq!(
        std::str::from_utf8(&body).unwrap(),
        r#"{"error":{"message":"The request body is larger than 32 MiB.","type":"Request Entity Too Large","param":null,"code":413}}"#
    );
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
