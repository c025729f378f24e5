//! Replays a script against a server through a `kube::Client`.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::normalizer::Normalizer;
use super::script::Step;

/// Normalized response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedResponse {
    #[serde(rename = "does")]
    pub(super) description: String,
    pub(super) code: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// An object, the events of a watch, or plain text.
    pub(super) body: Value,
}

/// Number and interval of retries. On a busy host, controllers of a real cluster may need minutes, because they retry
/// with exponential back-off.
const MAX_RETRIES: usize = 3000;
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Replays a script in `namespace` and returns the responses.
pub(super) async fn replay(client: &kube::Client, steps: &[Step], namespace: &str) -> Vec<RecordedResponse> {
    let initial_values = [("ns", namespace), ("last", "1"), ("continue", "")];
    let mut saved: BTreeMap<String, String> =
        initial_values.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let mut normalizer = Normalizer::new(namespace);
    let mut responses = Vec::new();
    for step in steps {
        let raw = send_step(client, step, &saved).await;
        for (name, pointer) in &step.save {
            let value =
                raw.body.pointer(pointer).unwrap_or_else(|| panic!("{}: no {pointer}: {}", step.description, raw.body));
            saved.insert(name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        save_position(&raw.body, &mut saved);
        responses.push(RecordedResponse {
            warnings: raw.warnings.iter().map(|warning| normalizer.normalize_text(warning)).collect(),
            // Do not normalize responses that are not compared, because that would number their resource versions.
            body: if step.except.contains_key("") { Value::Null } else { normalizer.normalize_body(&raw.body) },
            ..raw
        });
    }
    responses
}

/// Saves the resource version of the last object as `{last}` and the token of the last page as `{continue}`.
fn save_position(body: &Value, saved: &mut BTreeMap<String, String>) {
    for (name, pointer, marker) in
        [("last", "/metadata/resourceVersion", "/metadata/uid"), ("continue", "/metadata/continue", "/items")]
    {
        if let (Some(value), Some(_)) = (body.pointer(pointer).and_then(Value::as_str), body.pointer(marker)) {
            saved.insert(name.to_owned(), value.to_owned());
        }
    }
}

async fn send_step(client: &kube::Client, step: &Step, saved: &BTreeMap<String, String>) -> RecordedResponse {
    if may_be_stale(&fill_text(step.request().1, saved)) {
        refresh(client, &fill_text(step.request().1, saved)).await;
    }
    let mut last = send_once(client, step, saved).await;
    for _ in 0..MAX_RETRIES {
        let is_satisfied = step.until.as_ref().is_none_or(|until| until.is_satisfied(last.code, &last.body));
        if is_satisfied && !is_initializing(&last) {
            return last;
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
        last = send_once(client, step, saved).await;
    }
    panic!("{}: {:?} was never satisfied: {} {}", step.description, step.until, last.code, last.body);
}

/// Reports whether kube-apiserver may respond from an outdated cache: to requests that accept any version, and with the
/// initial events of a watch.
fn may_be_stale(path: &str) -> bool {
    let (watches, accepts_any_version) = (path.contains("watch=true"), path.contains("resourceVersion=0"));
    accepts_any_version || watches && !path.contains("resourceVersion=") && !path.contains("sendInitialEvents")
}

/// Lists the latest version, for which kube-apiserver waits until its cache is current.
async fn refresh(client: &kube::Client, path: &str) {
    let collection = path.split('?').next().unwrap_or_default();
    let request = http::Request::get(format!("{collection}?limit=1")).body(Body::empty()).unwrap();
    client.send(request).await.unwrap().into_body().collect().await.unwrap();
}

/// Reports whether the watch cache is still initializing, as after an update of a CustomResourceDefinition.
fn is_initializing(response: &RecordedResponse) -> bool {
    response.code == 429 && response.body["message"].as_str().is_some_and(|message| message.contains("initializing"))
}

async fn send_once(client: &kube::Client, step: &Step, saved: &BTreeMap<String, String>) -> RecordedResponse {
    let (method, path) = step.request();
    let body = match (&step.text, &step.body) {
        (Some(text), _) => fill_text(text, saved),
        (None, Some(body)) => fill_value(body, saved).to_string(),
        (None, None) => String::new(),
    };
    let mut request = http::Request::builder()
        .method(method)
        .uri(fill_text(path, saved).replace(' ', "%20"))
        .header("Accept", step.accept.media_type())
        .header("User-Agent", "script");
    if !body.is_empty() {
        request = request.header("Content-Type", step.kind.content_type());
    }
    let response = client.send(request.body(Body::from(body.into_bytes())).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter().map(|w| w.to_str().unwrap().to_owned()).collect();
    let description = step.description.clone();
    let event_limit = (step.is_watch() && code == 200).then(|| step.events.unwrap_or(usize::MAX));
    let last = step.last.as_ref().map(|name| format!("\"name\":\"{name}\""));
    let text = read(response.into_body(), event_limit.unwrap_or(usize::MAX), last.as_deref()).await;
    let body = match event_limit {
        Some(event_limit) => {
            text.lines().take(event_limit).map(|line| serde_json::from_str::<Value>(line).unwrap()).collect()
        }
        None => serde_json::from_str(&text).unwrap_or_else(|_| json!(text)),
    };
    RecordedResponse { description, code, warnings, body }
}

/// Reads the body, up to `lines` lines or the line that contains `last`.
async fn read(mut body: Body, lines: usize, last: Option<&str>) -> String {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.unwrap().into_data() else { continue };
        bytes.extend_from_slice(&data);
        let is_last = |line: &[u8]| last.is_some_and(|last| String::from_utf8_lossy(line).contains(last));
        let complete_lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        if complete_lines >= lines || bytes.split(|byte| *byte == b'\n').take(complete_lines).any(is_last) {
            break;
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn fill_text(text: &str, saved: &BTreeMap<String, String>) -> String {
    saved.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

fn fill_value(value: &Value, saved: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => json!(fill_text(text, saved)),
        Value::Array(items) => items.iter().map(|item| fill_value(item, saved)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (fill_text(name, saved), fill_value(value, saved))).collect()
        }
        other => other.clone(),
    }
}
