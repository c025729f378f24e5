//! Requests that never reach an engine.

use crate::fleet::{PATIENCE, engine, get, metric, pool, post, start};
use rstest::rstest;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

// spec: GW-71
#[tokio::test]
async fn an_unknown_model_is_404_in_openais_shape() {
    let fleet = start(vec![engine(&["nope"])], &[]).await;
    let answer = post(fleet.gateway, "/v1/chat/completions", r#"{"model":"nope","messages":[]}"#).await;
    assert_eq!(answer.status(), 404);
    assert_eq!(
        answer.json(),
        json!({"error": {"message": "The model `nope` does not exist.", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}})
    );
    assert_eq!(metric(fleet.engines[0], "vllm:prompt_tokens_total{").await, 0.0);
}

// spec: GW-80
#[rstest]
#[case::no_json("{bad", "The request body is not a JSON object (at byte 1).")]
#[case::no_model(r#"{"messages":[]}"#, "You must provide a model parameter.")]
#[case::number(r#"{"model":1}"#, "`model` must be a string.")]
#[tokio::test]
async fn what_cannot_be_read_is_400(#[case] body: &str, #[case] message: &str) {
    let fleet = start(Vec::new(), &[]).await;
    let answer = post(fleet.gateway, "/v1/chat/completions", body).await;
    let error = &answer.json()["error"];
    assert_eq!(
        (answer.status(), &error["type"], &error["message"]),
        (400, &"invalid_request_error".into(), &message.into())
    );
}

// spec: GW-79
#[tokio::test]
async fn without_an_endpoint_the_answer_is_503_and_when_to_come_back() {
    let fleet = start(vec![engine(&["chat"])], &[]).await;
    fleet.pools.replace(vec![pool(&fleet.pools, &[], &[])]);
    let answer = post(fleet.gateway, "/v1/chat/completions", r#"{"model":"chat"}"#).await;
    assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("1")));
    assert_eq!(answer.header("x-llm-d-request-dropped-reason"), Some("rejected-no-endpoints"));
    assert_eq!(get(fleet.gateway, "/v1/models").await.json()["data"], json!([]));
}

// spec: GW-80
#[tokio::test]
async fn a_body_above_the_cap_is_413() {
    let fleet = start(Vec::new(), &[]).await;
    let mut stream = tokio::net::TcpStream::connect(fleet.gateway).await.unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 34000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("no answer").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[tokio::test]
async fn a_head_above_the_cap_is_431() {
    let fleet = start(Vec::new(), &[]).await;
    let mut stream = tokio::net::TcpStream::connect(fleet.gateway).await.unwrap();
    let head = format!("GET /v1/models HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "a".repeat(80 * 1024));
    // The gateway may answer and close before all of it is sent.
    stream.write_all(head.as_bytes()).await.ok();
    let mut answer = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("no answer").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 431");
}

#[rstest]
#[case("/health", 200)]
#[case("/", 404)]
#[case("/v1/chat/completions", 405)]
#[case("/v1/models/chat", 200)]
#[case("/v1/models/nope", 404)]
#[tokio::test]
async fn other_paths(#[case] path: &str, #[case] status: u16) {
    let fleet = start(vec![engine(&["chat"])], &[]).await;
    assert_eq!(get(fleet.gateway, path).await.status(), status);
}
