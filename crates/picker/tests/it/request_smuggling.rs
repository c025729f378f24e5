//! Requests whose end is ambiguous: the gateway rejects them, or forwards exactly one request, whose end is unambiguous.

use rstest::rstest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

use crate::gateway_fixture::{TIMEOUT, start_with_listeners};

/// A body that the engine may receive, and a request that it must not receive.
const BODY: &str = r#"{"model":"chat"}"#;
const HIDDEN: &str =
    "POST /v1/completions HTTP/1.1\r\nhost: hidden\r\ncontent-length: 18\r\n\r\n{\"model\":\"hidden\"}";

/// Serves one engine, which answers each request and reports its text.
async fn serve_engine(listener: TcpListener, received: mpsc::UnboundedSender<String>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let received = received.clone();
        tokio::spawn(async move {
            let mut text = Vec::new();
            while stream.read_buf(&mut text).await.is_ok_and(|count| count > 0) {
                if text.ends_with(b"}") {
                    received.send(String::from_utf8_lossy(&std::mem::take(&mut text)).into_owned()).unwrap();
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
                }
            }
        });
    }
}

/// Returns whether all responses are errors in OpenAI's format.
fn is_openai_error(responses: &str) -> bool {
    responses.split("HTTP/1.1 ").skip(1).all(|response| {
        let body = response.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
        body.is_some_and(|body: serde_json::Value| body["error"]["message"].is_string())
    })
}

/// Columns: lines of the head after `host`, body, expected status, whether the engine receives a request.
#[rstest]
#[case::length_and_chunked("content-length: 5\r\ntransfer-encoding: chunked\r\n", "CHUNKED", 200, true)]
#[case::chunked_and_length("transfer-encoding: chunked\r\ncontent-length: 5\r\n", "CHUNKED", 200, true)]
#[case::two_lengths("content-length: 16\r\ncontent-length: 200\r\n", BODY, 400, false)]
#[case::list_of_lengths("content-length: 16, 200\r\n", BODY, 400, false)]
#[case::signed_length("content-length: +16\r\n", BODY, 400, false)]
#[case::negative_length("content-length: -16\r\n", BODY, 400, false)]
#[case::hexadecimal_length("content-length: 0x10\r\n", BODY, 400, false)]
#[case::large_length("content-length: 18446744073709551632\r\n", BODY, 400, false)]
#[case::no_length("", BODY, 400, false)]
#[case::unknown_encoding("transfer-encoding: xchunked\r\n", "CHUNKED", 400, false)]
#[case::chunked_is_not_last("transfer-encoding: chunked, identity\r\n", "CHUNKED", 400, false)]
#[case::two_encodings("transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", "CHUNKED", 400, false)]
#[case::space_before_colon("transfer-encoding : chunked\r\n", "CHUNKED", 400, false)]
#[case::folded_line("transfer-encoding:\r\n chunked\r\n", "CHUNKED", 400, false)]
#[case::folded_header("x-a: 1\r\n content-length: 16\r\ncontent-length: 16\r\n", BODY, 400, false)]
#[case::null_byte("x-a: \0\r\ncontent-length: 16\r\n", BODY, 400, false)]
#[case::carriage_return("x-a: 1\rcontent-length: 200\r\ncontent-length: 16\r\n", BODY, 400, false)]
#[case::chunk_size_overflow("transfer-encoding: chunked\r\n", "fffffffffffffffff\r\nx\r\n0\r\n\r\n", 400, false)]
#[case::signed_chunk_size("transfer-encoding: chunked\r\n", "-1\r\nx\r\n0\r\n\r\n", 400, false)]
#[case::prefixed_chunk_size("transfer-encoding: chunked\r\n", "0x10\r\n{\"model\":\"chat\"}\r\n0\r\n\r\n", 400, false)]
#[case::upgrade("connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 16\r\n", BODY, 200, true)]
#[case::connection_names_length("connection: content-length\r\ncontent-length: 16\r\n", BODY, 200, true)]
#[tokio::test]
async fn ambiguous_request_smuggles_no_other_request(
    #[case] lines: &str,
    #[case] body: &str,
    #[case] status: u16,
    #[case] is_forwarded: bool,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = start_with_listeners(std::slice::from_ref(&listener)).await;
    let (sender, mut received) = mpsc::unbounded_channel();
    tokio::spawn(serve_engine(listener, sender));
    let body = match body {
        "CHUNKED" => format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", BODY.len()),
        body => body.to_owned(),
    };
    let mut client = TcpStream::connect(fixture.gateway).await.unwrap();
    let request = format!("POST /v1/completions HTTP/1.1\r\nhost: x\r\n{lines}\r\n{body}");
    // The gateway may close the connection before it has read everything.
    client.write_all(request.as_bytes()).await.ok();
    // Bytes after a request that is rejected belong to no request.
    let next = if is_forwarded { "GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" } else { HIDDEN };
    client.write_all(next.as_bytes()).await.ok();
    let mut response = Vec::new();
    timeout(TIMEOUT, client.read_to_end(&mut response)).await.expect("the response does not end").ok();
    let response = String::from_utf8_lossy(&response).into_owned();
    let statuses: Vec<&str> = response.split("HTTP/1.1 ").skip(1).map(|response| &response[..3]).collect();
    assert_eq!(statuses.first().copied(), Some(status.to_string().as_str()), "{response}");
    assert!(is_forwarded || is_openai_error(&response), "{response}");
    let forwarded: Vec<String> = std::iter::from_fn(|| received.try_recv().ok()).collect();
    assert_eq!(forwarded.len(), usize::from(is_forwarded), "{forwarded:?}");
    for request in forwarded {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, BODY);
        let framing = |line: &&str| line.starts_with("content-length:") || line.starts_with("transfer-encoding:");
        assert_eq!(head.lines().filter(framing).collect::<Vec<_>>(), ["content-length: 16"], "{head}");
    }
}

#[rstest]
#[case::no_http("hello\r\n\r\n")]
#[case::tls("\x16\x03\x01\x02\0\x01\0\x01\u{7c}\x03\x03")]
#[case::version("POST /v1/completions HTTP/9.9\r\n\r\n")]
#[case::path("POST /v1/\u{7f} completions HTTP/1.1\r\n\r\n")]
#[tokio::test]
async fn request_that_is_not_http_is_400(#[case] request: &str) {
    let fixture = start_with_listeners(&[]).await;
    let mut client = TcpStream::connect(fixture.gateway).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    let mut response = String::new();
    timeout(TIMEOUT, client.read_to_string(&mut response)).await.expect("the response does not end").unwrap();
    assert!(response.starts_with("HTTP/1.1 400 ") && is_openai_error(&response), "{response}");
}

/// Columns: number of headers, expected status.
#[rstest]
#[case::many(90, 200)]
#[case::flood(2_000, 431)]
#[tokio::test]
async fn number_of_headers_is_limited(#[case] count: usize, #[case] status: u16) {
    let fixture = start_with_listeners(&[]).await;
    let mut client = TcpStream::connect(fixture.gateway).await.unwrap();
    let headers: String = (0..count).map(|index| format!("x-{index}: 1\r\n")).collect();
    let head = format!("GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    client.write_all(head.as_bytes()).await.ok();
    let mut response = Vec::new();
    timeout(TIMEOUT, client.read_to_end(&mut response)).await.expect("the response does not end").unwrap();
    let response = String::from_utf8(response).unwrap();
    assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{response}");
    assert!(status == 200 || is_openai_error(&response), "{response}");
}
