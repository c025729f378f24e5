//! Compares responses with recordings of vLLM, field by field and event by event.

use crate::client::{Response, call, recorded_config, start};
use engine::{Config, LoraModule};
use rstest::rstest;

struct Recording {
    method: String,
    path: String,
    body: String,
    response: Response,
}

fn parse_recording(text: &str) -> Recording {
    let (request, response) = text.split_once("\n\n").unwrap();
    let mut request = request.lines().map(|line| line.trim_start_matches("> "));
    let (method, path) = request.next().unwrap().split_once(' ').unwrap();
    let text = response.replace("\r\n", "\n");
    let (head, body) = text.split_once("\n\n").unwrap();
    Recording {
        method: method.to_owned(),
        path: path.to_owned(),
        body: request.next().unwrap_or_default().to_owned(),
        response: Response { head: head.to_owned(), body: body.to_owned() },
    }
}

#[rstest]
#[case::chat(include_str!("../data/chat.http"))]
#[case::chat_stream(include_str!("../data/chat-stream-usage.http"))]
#[case::completion(include_str!("../data/completion.http"))]
#[case::completion_stream(include_str!("../data/completion-stream.http"))]
#[case::models(include_str!("../data/models.http"))]
#[tokio::test]
async fn responses_have_the_recorded_shape(#[case] text: &str) {
    let (engine, recorded) = (start(recorded_config()).await, parse_recording(text));
    let actual = call(engine.address, &recorded.method, &recorded.path, &recorded.body).await;
    assert_eq!(actual.status(), recorded.response.status());
    assert_eq!(headers(&actual), headers(&recorded.response));
    assert_eq!(shape(actual.body.trim_end()), shape(recorded.response.body.trim_end()));
}

/// The recorded engine has the adapters `alpha` and `beta`.
#[tokio::test]
async fn adapters_are_listed_and_served() {
    let lora_modules = ["alpha", "beta"]
        .map(|name| LoraModule { name: name.to_owned(), path: format!("/models/lora-{name}") })
        .to_vec();
    let engine = start(Config { lora_modules, ..recorded_config() }).await;
    let recorded = parse_recording(include_str!("../data/lora-models.http"));
    let list = call(engine.address, "GET", "/v1/models", "").await;
    assert_eq!(shape(list.body.trim_end()), shape(recorded.response.body.trim_end()));
    let [list, recorded]: [serde_json::Value; 2] =
        [&list.body, &recorded.response.body].map(|body| serde_json::from_str(body).unwrap());
    for field in ["id", "root", "parent", "max_model_len"] {
        let values =
            |list: &serde_json::Value| (0..3).map(|index| list["data"][index][field].clone()).collect::<Vec<_>>();
        assert_eq!(values(&list), values(&recorded));
    }
    let body = r#"{"model":"beta","prompt":"x","max_tokens":1}"#;
    let completion = call(engine.address, "POST", "/v1/completions", body).await;
    let completion: serde_json::Value = serde_json::from_str(&completion.body).unwrap();
    assert_eq!(completion["model"], "beta");
}

#[rstest]
#[case::bad_json(include_str!("../data/err-bad-json.http"))]
#[case::unknown_model(include_str!("../data/err-unknown-model-chat.http"))]
#[tokio::test]
async fn errors_equal_the_recordings(#[case] text: &str) {
    let (engine, recorded) = (start(recorded_config()).await, parse_recording(text));
    let actual = call(engine.address, &recorded.method, &recorded.path, &recorded.body).await;
    assert_eq!(actual.status(), recorded.response.status());
    assert_eq!(headers(&actual), headers(&recorded.response));
    assert_eq!(actual.body, recorded.response.body);
}

/// The recordings are consecutive responses of one engine in development mode.
#[tokio::test]
async fn sleep_mode_responds_as_recorded() {
    let engine = start(Config { dev_mode: true, ..recorded_config() }).await;
    for text in [
        include_str!("../data/sleep-1.http"),
        include_str!("../data/sleep-is1.http"),
        include_str!("../data/wake-weights.http"),
        include_str!("../data/wake-all.http"),
    ] {
        let recorded = parse_recording(text);
        let actual = call(engine.address, &recorded.method, &recorded.path, &recorded.body).await;
        assert_eq!(actual.status(), recorded.response.status());
        assert_eq!(headers(&actual), headers(&recorded.response));
        assert_eq!(actual.body, recorded.response.body);
    }
    assert_eq!(call(engine.address, "GET", "/is_sleeping", "").await.body, r#"{"is_sleeping":false}"#);
}

#[rstest]
#[case("POST", "/sleep", "404 Not Found", "{\"detail\":\"Not Found\"}")]
#[case("POST", "/wake_up", "404 Not Found", "{\"detail\":\"Not Found\"}")]
#[case("GET", "/is_sleeping", "404 Not Found", "{\"detail\":\"Not Found\"}")]
#[case("GET", "/nothing", "404 Not Found", "{\"detail\":\"Not Found\"}")]
#[case("GET", "/v1/completions", "405 Method Not Allowed", "{\"detail\":\"Method Not Allowed\"}")]
#[case("OPTIONS", "/health", "405 Method Not Allowed", "{\"detail\":\"Method Not Allowed\"}")]
#[case("GET", "/health", "200 OK", "")]
#[case("GET", "/ping", "200 OK", "")]
#[case("GET", "/health_generate", "200 OK", "")]
#[case("GET", "/version", "200 OK", "{\"version\":\"0.32.0\"}")]
#[tokio::test]
async fn other_routes(#[case] method: &str, #[case] path: &str, #[case] status: &str, #[case] body: &str) {
    let engine = start(recorded_config()).await;
    let response = call(engine.address, method, path, "").await;
    assert_eq!((response.status(), response.body.as_str()), (status, body));
}

#[tokio::test]
async fn rejects_head_requests_as_vllm_does() {
    let engine = start(recorded_config()).await;
    assert_eq!(call(engine.address, "HEAD", "/health", "").await.status(), "405 Method Not Allowed");
}

/// Returns the headers in order, without values that vary.
fn headers(response: &Response) -> Vec<String> {
    let varying = ["date", "content-length"];
    let lines = response.head.lines().skip(1).filter_map(|line| line.split_once(": "));
    // vLLM and hyper send transfer-encoding at different positions.
    let mut lines: Vec<_> = lines
        .map(|(name, value)| if varying.contains(&name) { name.to_owned() } else { format!("{name}: {value}") })
        .collect();
    lines.sort_by_key(|line| line.starts_with("transfer-encoding"));
    lines
}

/// Replaces the strings and numbers of a JSON text with placeholders, and keeps keys, order and white space.
fn shape(body: &str) -> String {
    let mut shape = String::new();
    let mut rest = body;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' => string_end(rest),
            '0'..='9' | '-' => rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '.' | 'e')).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, remainder) = rest.split_at(end);
        shape.push_str(match first {
            '"' if !remainder.starts_with(':') => "\"text\"",
            '0'..='9' | '-' => "0",
            _ => token,
        });
        rest = remainder;
    }
    shape
}

fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    text.len()
}
