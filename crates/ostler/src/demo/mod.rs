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
    pub runner_up: Option<RunnerUp>,
    /// The sentence of the decision.
    pub message: String,
}

/// The candidate that came nearest without being chosen.
#[derive(Debug, Serialize)]
pub(crate) struct RunnerUp {
    pub runtime: String,
    pub code: String,
    pub message: String,
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
    ServiceOutcome {
        kind: text(&service["kind"]).unwrap_or_default(),
        name: text(&service["metadata"]["name"]).unwrap_or_default(),
        runtime: text(&decision["runtime"]["name"]),
        accelerator_class: text(&decision["components"]["engine"]["acceleratorClass"]),
        runner_up: runner_up(decision),
        message: text(&decision["message"]).unwrap_or_default(),
    }
}

/// The best candidate that was not selected: one that was only outranked before one that was rejected.
fn runner_up(decision: &Value) -> Option<RunnerUp> {
    let candidates = decision["candidates"].as_array()?;
    let losers = || candidates.iter().filter(|candidate| candidate["selected"] != true);
    let loser = losers().find(|candidate| candidate["rejected"].is_null()).or_else(|| losers().next())?;
    let text = |value: &Value, or: &str| value.as_str().unwrap_or(or).to_owned();
    Some(RunnerUp {
        runtime: text(&loser["runtime"], ""),
        code: text(&loser["rejected"]["code"], "Outranked"),
        message: text(&loser["rejected"]["message"], "compatible, ranked lower"),
    })
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
