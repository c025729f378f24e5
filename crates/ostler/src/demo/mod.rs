//! `ostler up --demo`: a small fleet, one question, and why it was answered as it was.

use std::time::Instant;

use anyhow::{Context, Result};
use api::manifest::{self, Document};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::progress;
use crate::report::explain::service::left_out;

/// Three nodes of three sizes, so that there is something to decide.
pub(crate) const FLEET: &str = "big=8×H100-80G, mid=8×A100-40G, small=4×L40S";

const MODEL: &str = "chat";
const QUESTION: &str = "Why do horses sleep standing?";

pub(crate) fn manifests() -> Result<Vec<Document>> {
    Ok(manifest::read("demo/fleet.yaml", include_str!("fleet.yaml"))?)
}

/// What `--demo -o json` prints; scripts rely on it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    pub services: Vec<ServiceOutcome>,
    pub request: RequestOutcome,
    /// Milliseconds from the start of the process.
    pub start_to_first_token_ms: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceOutcome {
    pub kind: String,
    pub name: String,
    pub runtime: Option<String>,
    pub accelerator_class: Option<String>,
    /// The candidate that came nearest without being chosen.
    pub runner_up: Option<Loser>,
    /// The one of those that could not serve at all.
    pub nearest_rejected: Option<Loser>,
    /// How many could not.
    pub rejected: usize,
    /// The sentence of the decision.
    pub message: String,
}

/// A candidate that was not chosen, with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Loser {
    pub runtime: String,
    pub code: String,
    pub message: String,
    #[serde(skip)]
    pub rejected: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestOutcome {
    pub model: String,
    pub question: String,
    pub endpoint: String,
    /// Why that endpoint, in the gateway's words.
    pub decision: String,
    pub answer: String,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub ttft_ms: u64,
    pub total_ms: u64,
}

/// Sends the question through the gateway and gathers why it went where it went.
pub(crate) async fn ask(machine: &Machine, started: Instant) -> Result<Outcome> {
    let (request, first_token) = stream(&format!("http://{}", machine.gateway)).await.context("the demo's request")?;
    Ok(Outcome {
        services: progress::services(machine.cluster.server()).iter().map(|service| outcome(service)).collect(),
        request,
        start_to_first_token_ms: millis(started, first_token),
    })
}

async fn stream(gateway: &str) -> Result<(RequestOutcome, Instant)> {
    let body = json!({
        "model": MODEL,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 48,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    let request = http::Request::post(format!("{gateway}/v1/chat/completions"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.to_string())))?;
    let client = HttpClient::builder(TokioExecutor::new()).build_http();
    let sent = Instant::now();
    let response = client.request(request).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();

    let mut body = response.into_body();
    let (mut events, mut answer, mut usage, mut first) = (Events::default(), String::new(), Value::Null, None);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        for event in events.push(&data) {
            if let Some(text) =
                event.pointer("/choices/0/delta/content").and_then(Value::as_str).filter(|t| !t.is_empty())
            {
                first.get_or_insert_with(Instant::now);
                answer.push_str(text);
            }
            if event["usage"].is_object() {
                usage = event["usage"].clone();
            }
        }
    }
    anyhow::ensure!(status.is_success(), "the gateway answered {status}: {}", events.rest());
    let first = first.context("the answer had no token")?;
    let tokens = |name: &str| usage[name].as_u64().unwrap_or_default();
    let outcome = RequestOutcome {
        model: MODEL.to_owned(),
        question: QUESTION.to_owned(),
        endpoint: endpoint(&header("x-ostler-pod"), &header("x-ostler-endpoint")),
        decision: header("x-ostler-decision"),
        answer,
        prompt_tokens: tokens("prompt_tokens"),
        completion_tokens: tokens("completion_tokens"),
        ttft_ms: millis(sent, first),
        total_ms: millis(sent, Instant::now()),
    };
    Ok((outcome, first))
}

fn endpoint(pod: &str, address: &str) -> String {
    if pod.is_empty() { address.to_owned() } else { format!("{pod} ({address})") }
}

fn millis(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(u64::MAX)
}

fn outcome(service: &Value) -> ServiceOutcome {
    let decision = &service["status"]["decision"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let losers = losers(decision);
    let nearest_rejected = losers.iter().find(|loser| loser.rejected).cloned();
    let recorded = losers.iter().filter(|loser| loser.rejected).count();
    ServiceOutcome {
        kind: text(&service["kind"]).unwrap_or_default(),
        name: text(&service["metadata"]["name"]).unwrap_or_default(),
        runtime: text(&decision["runtime"]["name"]),
        accelerator_class: text(&decision["components"]["engine"]["acceleratorClass"]),
        runner_up: losers.into_iter().next(),
        nearest_rejected,
        rejected: recorded + left_out(decision),
        message: text(&decision["message"]).unwrap_or_default(),
    }
}

/// Those that could serve and were outranked, then those that were rejected, the nearest first.
fn losers(decision: &Value) -> Vec<Loser> {
    let candidates = decision["candidates"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let loser = |candidate: &Value| {
        let rejected = candidate["rejected"].is_object();
        let why = &candidate[if rejected { "rejected" } else { "outranked" }];
        Loser {
            runtime: text(&candidate["runtime"]),
            code: text(&why["code"]),
            message: text(&why["message"]),
            rejected,
        }
    };
    let mut losers: Vec<Loser> =
        candidates.iter().filter(|candidate| candidate["selected"] != true).map(loser).collect();
    losers.sort_by_key(|loser| loser.rejected);
    losers
}

/// Server-sent events, cut out of chunks that may end anywhere.
#[derive(Default)]
struct Events {
    pending: Vec<u8>,
}

impl Events {
    /// The JSON of every event that `chunk` completes.
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

    fn rest(&self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_any_cut() {
        let text = b"data: {\"a\":1}\n\ndata: {\"b\":\"\\n\\n\"}\n\ndata: [DONE]\n\n";
        for cut in 0..text.len() {
            let mut events = Events::default();
            let mut all = events.push(&text[..cut]);
            all.extend(events.push(&text[cut..]));
            assert_eq!(all, [json!({"a": 1}), json!({"b": "\n\n"})], "cut at {cut}");
        }
    }

    #[test]
    fn the_demos_manifests_lint_clean() {
        for document in manifests().unwrap() {
            assert_eq!(api::lint::check(&document), [], "{} {}", document.kind(), document.name());
        }
    }
}
