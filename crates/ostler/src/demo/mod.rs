//! `ostler up --demo`: sample services and a request, with the reasons for its routing.

use std::time::Instant;

use anyhow::{Context, Result};
use api::{Document, parse_manifest};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde_json::{Value, json};

use crate::local_cluster::LocalCluster;
use crate::progress;
use crate::report::explain::service::omitted_rejections;

/// Nodes with three kinds of accelerators, so that selection has alternatives.
pub(crate) const NODES: &str = "big=8×H100-80G, mid=8×A100-40G, small=4×L40S";

const MODEL: &str = "chat";
const PROMPT: &str = "Why do horses sleep standing?";

/// Returns the sample manifests.
pub(crate) fn manifests() -> Result<Vec<Document>> {
    Ok(parse_manifest("demo/manifests.yaml", include_str!("manifests.yaml"))?)
}

/// The result of the demo. Its JSON form is the stable output of `--demo -o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DemoOutcome {
    pub services: Vec<ServiceOutcome>,
    pub request: RequestOutcome,
    /// Milliseconds from the start of the process to the first token.
    pub start_to_first_token_ms: u64,
}

/// The decision for a service of the demo.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceOutcome {
    pub kind: String,
    pub name: String,
    pub runtime: Option<String>,
    pub accelerator_class: Option<String>,
    /// The best candidate that was not selected.
    pub runner_up: Option<UnselectedCandidate>,
    /// The rejected candidate that passed the most checks.
    pub nearest_rejected: Option<UnselectedCandidate>,
    /// Number of rejected candidates.
    pub rejected: usize,
    /// Message of the decision.
    pub message: String,
}

/// A candidate that was not selected, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct UnselectedCandidate {
    pub runtime: String,
    pub code: String,
    pub message: String,
    #[serde(skip)]
    pub is_rejected: bool,
}

/// The request of the demo, its routing and its response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestOutcome {
    pub model: String,
    #[serde(rename = "question")]
    pub prompt: String,
    pub endpoint: String,
    /// Reason for the endpoint, as reported by the gateway.
    pub decision: String,
    #[serde(rename = "answer")]
    pub completion: String,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub ttft_ms: u64,
    pub total_ms: u64,
}

/// Sends the request through the gateway and collects the decisions of services and gateway.
pub(crate) async fn run(local_cluster: &LocalCluster, start_time: Instant) -> Result<DemoOutcome> {
    let (request, first_token) =
        send_request(&format!("http://{}", local_cluster.gateway)).await.context("request of the demo")?;
    Ok(DemoOutcome {
        services: progress::services(local_cluster.cluster.server())
            .iter()
            .map(|service| service_outcome(service))
            .collect(),
        request,
        start_to_first_token_ms: millis(start_time, first_token),
    })
}

/// Sends a streaming chat completion. Returns its outcome and the time of the first token.
async fn send_request(gateway: &str) -> Result<(RequestOutcome, Instant)> {
    let body = json!({
        "model": MODEL,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": 48,
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
        model: MODEL.to_owned(),
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

fn millis(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(u64::MAX)
}

fn service_outcome(service: &Value) -> ServiceOutcome {
    let decision = &service["status"]["decision"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let candidates = unselected_candidates(decision);
    let nearest_rejected = candidates.iter().find(|candidate| candidate.is_rejected).cloned();
    let recorded_rejections = candidates.iter().filter(|candidate| candidate.is_rejected).count();
    ServiceOutcome {
        kind: text(&service["kind"]).unwrap_or_default(),
        name: text(&service["metadata"]["name"]).unwrap_or_default(),
        runtime: text(&decision["runtime"]["name"]),
        accelerator_class: text(&decision["components"]["engine"]["acceleratorClass"]),
        runner_up: candidates.into_iter().next(),
        nearest_rejected,
        rejected: recorded_rejections + omitted_rejections(decision),
        message: text(&decision["message"]).unwrap_or_default(),
    }
}

/// Returns the outranked candidates, then the rejected ones, in the order of the decision.
fn unselected_candidates(decision: &Value) -> Vec<UnselectedCandidate> {
    let candidates = decision["candidates"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let unselected_candidate = |candidate: &Value| {
        let is_rejected = candidate["rejected"].is_object();
        let reason = &candidate[if is_rejected { "rejected" } else { "outranked" }];
        UnselectedCandidate {
            runtime: text(&candidate["runtime"]),
            code: text(&reason["code"]),
            message: text(&reason["message"]),
            is_rejected,
        }
    };
    let mut unselected: Vec<UnselectedCandidate> =
        candidates.iter().filter(|candidate| candidate["selected"] != true).map(unselected_candidate).collect();
    unselected.sort_by_key(|candidate| candidate.is_rejected);
    unselected
}

/// Parser of server-sent events in a body whose chunks may end anywhere.
#[derive(Default)]
struct EventParser {
    pending: Vec<u8>,
}

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

    #[test]
    fn manifests_pass_lint() {
        for document in manifests().unwrap() {
            assert_eq!(api::lint_document(&document), [], "{} {}", document.kind(), document.name());
        }
    }
}
