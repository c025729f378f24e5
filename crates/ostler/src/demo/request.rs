//! A streaming chat completion of a demo, and what it shows.

use std::time::Instant;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::report::demo::RequestOutcome;

const PROMPT: &str = "Why do horses sleep standing?";

/// Parser of server-sent events in a body whose chunks may end anywhere.
#[derive(Default)]
struct EventParser {
    pending: Vec<u8>,
}

/// Sends a streaming chat completion for `model` through the gateway. Returns its outcome and the time of the first token.
pub(super) async fn send_request(gateway: &str, model: &str, max_tokens: u32) -> Result<(RequestOutcome, Instant)> {
    let body = json!({
        "model": model,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": max_tokens,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    let request = http::Request::post(format!("{gateway}/v1/chat/completions"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.to_string())))?;
    let client = HttpClient::builder(TokioExecutor::new()).build_http();
    let request_time = Instant::now();
    let response = client.request(request).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();

    let mut body = response.into_body();
    let mut events = EventParser::default();
    let (mut completion, mut usage, mut first_token) = (String::new(), Value::Null, None);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        for event in events.push(&data) {
            if let Some(text) =
                event.pointer("/choices/0/delta/content").and_then(Value::as_str).filter(|text| !text.is_empty())
            {
                first_token.get_or_insert_with(Instant::now);
                completion.push_str(text);
            }
            if event["usage"].is_object() {
                usage = event["usage"].clone();
            }
        }
    }
    anyhow::ensure!(status.is_success(), "the gateway responded {status}: {}", events.pending_text());
    let first_token = first_token.context("the response contained no tokens")?;
    let token_count = |name: &str| usage[name].as_u64().unwrap_or_default();
    let outcome = RequestOutcome {
        model: model.to_owned(),
        prompt: PROMPT.to_owned(),
        endpoint: endpoint(&header("x-ostler-pod"), &header("x-ostler-endpoint")),
        decision: header("x-ostler-decision"),
        completion,
        prompt_tokens: token_count("prompt_tokens"),
        completion_tokens: token_count("completion_tokens"),
        ttft_ms: millis(request_time, first_token),
        total_ms: millis(request_time, Instant::now()),
    };
    Ok((outcome, first_token))
}

fn endpoint(pod: &str, address: &str) -> String {
    if pod.is_empty() { address.to_owned() } else { format!("{pod} ({address})") }
}

/// Returns the milliseconds between two times.
pub(super) fn millis(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(u64::MAX)
}

// === impl EventParser ===

impl EventParser {
    /// Returns the JSON data of the events that `chunk` completes.
    fn push(&mut self, chunk: &[u8]) -> Vec<Value> {
        self.pending.extend_from_slice(chunk);
        let mut events = Vec::new();
        while let Some(end) = self.pending.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = self.pending.drain(..end + 2).collect();
            let data = event.strip_prefix(b"data: ").unwrap_or(&event);
            events.extend(serde_json::from_slice(data.trim_ascii()));
        }
        events
    }

    /// Returns the text after the last complete event.
    fn pending_text(&self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_events_split_at_any_byte() {
        let text = b"data: {\"a\":1}\n\ndata: {\"b\":\"\\n\\n\"}\n\ndata: [DONE]\n\n";
        for split in 0..text.len() {
            let mut events = EventParser::default();
            let mut parsed = events.push(&text[..split]);
            parsed.extend(events.push(&text[split..]));
            assert_eq!(parsed, [json!({"a": 1}), json!({"b": "\n\n"})], "split at {split}");
        }
    }
}
