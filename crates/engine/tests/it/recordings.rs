//! Answers compared with a real vLLM's, field by field and event by event.

use crate::client::{Answer, call, start, tiny};
use rstest::rstest;

struct Recording {
    method: String,
    path: String,
    body: String,
    answer: Answer,
}

fn recording(text: &str) -> Recording {
    let (request, answer) = text.split_once("\n\n").unwrap();
    let mut request = request.lines().map(|line| line.trim_start_matches("> "));
    let (method, path) = request.next().unwrap().split_once(' ').unwrap();
    let text = answer.replace("\r\n", "\n");
    let (head, body) = text.split_once("\n\n").unwrap();
    Recording {
        method: method.to_owned(),
        path: path.to_owned(),
        body: request.next().unwrap_or_default().to_owned(),
        answer: Answer { head: head.to_owned(), body: body.to_owned() },
    }
}

#[rstest]
#[case::chat(include_str!("../data/chat.http"))]
#[case::chat_stream(include_str!("../data/chat-stream-usage.http"))]
#[case::completion(include_str!("../data/completion.http"))]
#[case::completion_stream(include_str!("../data/completion-stream.http"))]
#[case::models(include_str!("../data/models.http"))]
#[tokio::test]
async fn answers_have_the_recorded_shape(#[case] text: &str) {
    let (engine, recorded) = (start(tiny()).await, recording(text));
    let ours = call(engine.address, &recorded.method, &recorded.path, &recorded.body).await;
    assert_eq!(ours.status(), recorded.answer.status());
    assert_eq!(headers(&ours), headers(&recorded.answer));
    assert_eq!(shape(ours.body.trim_end()), shape(recorded.answer.body.trim_end()));
}

#[rstest]
#[case::bad_json(include_str!("../data/err-bad-json.http"))]
#[case::unknown_model(include_str!("../data/err-unknown-model-chat.http"))]
#[tokio::test]
async fn errors_are_equal_to_the_byte(#[case] text: &str) {
    let (engine, recorded) = (start(tiny()).await, recording(text));
    let ours = call(engine.address, &recorded.method, &recorded.path, &recorded.body).await;
    assert_eq!(ours.status(), recorded.answer.status());
    assert_eq!(headers(&ours), headers(&recorded.answer));
    assert_eq!(ours.body, recorded.answer.body);
}

#[rstest]
#[case("GET", "/nothing", "404 Not Found", "{\"detail\":\"Not Found\"}")]
#[case("GET", "/v1/completions", "405 Method Not Allowed", "{\"detail\":\"Method Not Allowed\"}")]
#[case("OPTIONS", "/health", "405 Method Not Allowed", "{\"detail\":\"Method Not Allowed\"}")]
#[case("GET", "/health", "200 OK", "")]
#[case("GET", "/ping", "200 OK", "")]
#[case("GET", "/version", "200 OK", "{\"version\":\"0.32.0\"}")]
#[tokio::test]
async fn small_routes(#[case] method: &str, #[case] path: &str, #[case] status: &str, #[case] body: &str) {
    let engine = start(tiny()).await;
    let answer = call(engine.address, method, path, "").await;
    assert_eq!((answer.status(), answer.body.as_str()), (status, body));
}

#[tokio::test]
async fn head_is_refused_as_by_vllm() {
    let engine = start(tiny()).await;
    assert_eq!(call(engine.address, "HEAD", "/health", "").await.status(), "405 Method Not Allowed");
}

/// Header names in order, with the values that are the same on every machine.
fn headers(answer: &Answer) -> Vec<String> {
    let varying = ["date", "content-length"];
    let lines = answer.head.lines().skip(1).filter_map(|line| line.split_once(": "));
    // Chunking is announced first by one server and last by the other.
    let mut lines: Vec<_> = lines
        .map(|(name, value)| if varying.contains(&name) { name.to_owned() } else { format!("{name}: {value}") })
        .collect();
    lines.sort_by_key(|line| line.starts_with("transfer-encoding"));
    lines
}

/// JSON text with every value but null replaced by its kind; keys, order and everything between stay.
fn shape(body: &str) -> String {
    let mut shape = String::new();
    let mut rest = body;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' => string_end(rest),
            '0'..='9' | '-' => rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '.' | 'e')).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, behind) = rest.split_at(end);
        shape.push_str(match first {
            '"' if !behind.starts_with(':') => "\"text\"",
            '0'..='9' | '-' => "0",
            _ => token,
        });
        rest = behind;
    }
    shape
}

fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}
