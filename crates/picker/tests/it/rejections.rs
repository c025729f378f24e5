//! Tests of requests that the gateway rejects.

use crate::gateway_fixture::{
    GatewayFixture, TIMEOUT, engine_config, get, metric, pool, post, receive, start, start_with_options,
};
use picker::{ControlFields, GatewayOptions};
use rstest::rstest;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

// spec: GW-71
#[tokio::test]
async fn unknown_model_is_404_in_openai_format() {
    let fixture = start(vec![engine_config(&["nope"])], &[]).await;
    let response = post(fixture.gateway, "/v1/chat/completions", r#"{"model":"nope","messages":[]}"#).await;
    assert_eq!(response.status(), 404);
    assert_eq!(
        response.json(),
        json!({"error": {"message": "The model `nope` does not exist.", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}})
    );
    assert_eq!(metric(fixture.engines[0], "vllm:prompt_tokens_total{").await, 0.0);
}

// spec: GW-80
#[rstest]
#[case::not_json("{bad", "The request body is not a JSON object (at byte 1).")]
#[case::no_model(r#"{"messages":[]}"#, "You must provide a model parameter.")]
#[case::model_not_a_string(r#"{"model":1}"#, "`model` must be a string.")]
#[case::empty("", "The request body is not a JSON object (at byte 0).")]
#[case::list("[]", "The request body is not a JSON object (at byte 0).")]
#[case::byte_order_mark("\u{feff}{\"model\":\"chat\"}", "The request body is not a JSON object (at byte 0).")]
#[case::two_objects(r#"{"model":"chat"}{}"#, "The request body is not a JSON object (at byte 16).")]
#[case::deep(&format!("{{\"a\":{}", "[".repeat(100_000)), "The request body is not a JSON object (at byte 517).")]
#[case::null_model(r#"{"model":null}"#, "You must provide a model parameter.")]
#[case::empty_model(r#"{"model":""}"#, "You must provide a model parameter.")]
#[case::lone_surrogate(r#"{"model":"\ud800"}"#, "`model` must be a string.")]
#[tokio::test]
async fn invalid_body_is_400(#[case] body: &str, #[case] message: &str) {
    let fixture = start(Vec::new(), &[]).await;
    let response = post(fixture.gateway, "/v1/chat/completions", body).await;
    let error = &response.json()["error"];
    assert_eq!(
        (response.status(), &error["type"], &error["message"]),
        (400, &"invalid_request_error".into(), &message.into())
    );
}

/// Fields by which a client would make an engine connect to an address of its choice.
#[rstest]
#[case::vllm(
    r#""kv_transfer_params":{"do_remote_prefill":true,"remote_host":"169.254.169.254"}"#,
    "kv_transfer_params"
)]
#[case::arguments(r#""vllm_xargs":{"kv_transfer_params":"x"}"#, "vllm_xargs")]
#[case::sglang(r#""bootstrap_host":["169.254.169.254"]"#, "bootstrap_host")]
#[case::tensorrt(r#""disaggregated_params":{"request_type":"generation_only"}"#, "disaggregated_params")]
#[tokio::test]
async fn field_that_names_engines_is_400(#[case] field: &str, #[case] name: &str) {
    let request = |fixture: &GatewayFixture| {
        let (gateway, body) = (fixture.gateway, format!(r#"{{"model":"chat","prompt":"hi",{field}}}"#));
        async move { post(gateway, "/v1/completions", &body).await }
    };
    let fixture = start(vec![engine_config(&["chat"])], &[]).await;
    let response = request(&fixture).await;
    let error = &response.json()["error"];
    assert_eq!(
        (response.status(), &error["param"], &error["code"]),
        (400, &json!(name), &json!("unsupported_parameter"))
    );
    assert_eq!(metric(fixture.engines[0], "vllm:prompt_tokens_total{").await, 0.0);
    let options = GatewayOptions { control_fields: ControlFields::Forward, ..GatewayOptions::default() };
    let trusting = start_with_options(vec![engine_config(&["chat"])], options).await;
    assert_eq!(request(&trusting).await.status(), 200);
}

#[tokio::test]
async fn request_id_that_names_engines_is_400() {
    let fixture = start(vec![engine_config(&["chat"])], &[]).await;
    let mut stream = TcpStream::connect(fixture.gateway).await.unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-request-id: a\r\n\
        X-Request-Id: ___prefill_addr_169.254.169.254:80___1\r\nconnection: close\r\ncontent-length: 16\r\n\r\n";
    stream.write_all(format!("{head}{{\"model\":\"chat\"}}").as_bytes()).await.unwrap();
    let response = receive(stream).await;
    assert_eq!((response.status(), &response.json()["error"]["param"]), (400, &json!("x-request-id")));
}

// spec: GW-79
#[tokio::test]
async fn missing_endpoint_is_503_with_retry_after() {
    let fixture = start(vec![engine_config(&["chat"])], &[]).await;
    fixture.scheduler.replace(vec![pool(&fixture.scheduler, &[], &[])]);
    let response = post(fixture.gateway, "/v1/chat/completions", r#"{"model":"chat"}"#).await;
    assert_eq!((response.status(), response.header("retry-after")), (503, Some("1")));
    assert_eq!(response.header("x-llm-d-request-dropped-reason"), Some("rejected-no-endpoints"));
    assert_eq!(get(fixture.gateway, "/v1/models").await.json()["data"], json!([]));
}

/// Reads the protocol and the status of a response whose connection the gateway may close before the request is complete.
async fn receive_status(stream: &mut TcpStream) -> [u8; 12] {
    let mut status = [0; 12];
    timeout(TIMEOUT, stream.read_exact(&mut status)).await.expect("no response").unwrap();
    status
}

// spec: GW-80
#[tokio::test]
async fn oversized_body_is_413() {
    let fixture = start(Vec::new(), &[]).await;
    let mut stream = TcpStream::connect(fixture.gateway).await.unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 34000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(&receive_status(&mut stream).await, b"HTTP/1.1 413");
}

// spec: GW-80
#[tokio::test]
async fn oversized_body_of_unknown_length_is_413() {
    let fixture = start(Vec::new(), &[]).await;
    let mut stream = TcpStream::connect(fixture.gateway).await.unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
    for _ in 0..32 {
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    stream.write_all(b"1\r\nx\r\n").await.unwrap();
    assert_eq!(&receive_status(&mut stream).await, b"HTTP/1.1 413");
}

#[rstest]
#[case::broken_chunk("transfer-encoding: chunked\r\n\r\nzz\r\n")]
#[case::incomplete("content-length: 100\r\n\r\n{\"model\":\"chat\"")]
#[tokio::test]
async fn body_that_cannot_be_received_is_400(#[case] rest: &str) {
    let fixture = start(Vec::new(), &[]).await;
    let mut stream = TcpStream::connect(fixture.gateway).await.unwrap();
    let request = format!("POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{rest}");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let response = receive(stream).await;
    let message = "The request body is incomplete, or its chunks are invalid.";
    assert_eq!((response.status(), &response.json()["error"]["message"]), (400, &json!(message)));
}

/// Columns: headers, expected status.
#[rstest]
#[case::none("", 400)]
#[case::one("host: a\r\n", 200)]
#[case::two("host: a\r\nhost: b\r\n", 400)]
#[tokio::test]
async fn request_has_exactly_one_host(#[case] hosts: &str, #[case] status: u16) {
    let fixture = start(Vec::new(), &[]).await;
    let mut stream = TcpStream::connect(fixture.gateway).await.unwrap();
    let request = format!("GET /v1/models HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(receive(stream).await.status(), status);
}

#[tokio::test]
async fn oversized_headers_are_431() {
    let fixture = start(Vec::new(), &[]).await;
    let mut stream = TcpStream::connect(fixture.gateway).await.unwrap();
    let head = format!("GET /v1/models HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "a".repeat(80 * 1024));
    // The gateway may respond and close the connection before the whole request is sent.
    stream.write_all(head.as_bytes()).await.ok();
    assert_eq!(&receive_status(&mut stream).await, b"HTTP/1.1 431");
}

#[rstest]
#[case("/livez", 200)]
#[case("/health", 200)]
#[case("/", 404)]
#[case("/v1/chat/completions", 405)]
#[case("/v1/models/chat", 200)]
#[case("/v1/models/nope", 404)]
#[tokio::test]
async fn returns_status_of_path(#[case] path: &str, #[case] status: u16) {
    let fixture = start(vec![engine_config(&["chat"])], &[]).await;
    assert_eq!(get(fixture.gateway, path).await.status(), status);
}

/// The metrics of the gateway have the names of those of endpoint pickers.
#[tokio::test]
async fn requests_and_rejections_are_counted() {
    let fixture = start(vec![engine_config(&["chat"])], &[]).await;
    let path = "/v1/chat/completions";
    let body = |model: &str| format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#);
    assert_eq!(post(fixture.gateway, path, &body("chat")).await.status(), 200);
    assert_eq!(post(fixture.gateway, path, "{").await.status(), 400);
    fixture.scheduler.replace(Vec::new());
    assert_eq!(post(fixture.gateway, path, &body("chat")).await.status(), 404);
    let text = fixture.scheduler.render_metrics();
    for line in [
        r#"inference_objective_request_total{model_name="chat",target_model_name="chat"} 1"#,
        r#"inference_objective_request_duration_seconds_count{model_name="chat",target_model_name="chat"} 1"#,
        r#"inference_objective_request_error_total{model_name="",target_model_name="",error_code="BadRequest"} 2"#,
    ] {
        assert!(text.lines().any(|rendered| rendered == line), "{line}\n{text}");
    }
}
