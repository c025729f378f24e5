//! Plays a script against a server, through a `kube::Client`: in this process, or anywhere on the network.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::normal::Normal;
use super::script::Step;

/// What came back, comparable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) does: String,
    pub(super) code: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// An object; the events of a watch; a text.
    pub(super) body: Value,
}

/// How often a question is asked again, and how long apart. On a busy machine the controllers of a living server, which
/// look again at what failed after ever longer pauses, take their time.
const TRIES: usize = 3000;
const APART: Duration = Duration::from_millis(100);

/// Every answer to a script, played in `namespace`.
pub(super) async fn play(client: &kube::Client, steps: &[Step], namespace: &str) -> Vec<Answer> {
    let start = [("ns", namespace), ("last", "1"), ("continue", "")];
    let mut saved: BTreeMap<String, String> = start.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let mut normal = Normal::new(namespace);
    let mut answers = Vec::new();
    for step in steps {
        let raw = answer(client, step, &saved).await;
        for (name, pointer) in &step.save {
            let value =
                raw.body.pointer(pointer).unwrap_or_else(|| panic!("{}: no {pointer}: {}", step.does, raw.body));
            saved.insert(name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        remember(&raw.body, &mut saved);
        answers.push(Answer {
            warnings: raw.warnings.iter().map(|warning| normal.text(warning)).collect(),
            // What is not compared says nothing about versions either.
            body: if step.except.contains_key("") { Value::Null } else { normal.value(&raw.body) },
            ..raw
        });
    }
    answers
}

/// The version of the last object seen is `{last}`, the token of the last page `{continue}`.
fn remember(body: &Value, saved: &mut BTreeMap<String, String>) {
    for (name, pointer, sign) in
        [("last", "/metadata/resourceVersion", "/metadata/uid"), ("continue", "/metadata/continue", "/items")]
    {
        if let (Some(value), Some(_)) = (body.pointer(pointer).and_then(Value::as_str), body.pointer(sign)) {
            saved.insert(name.to_owned(), value.to_owned());
        }
    }
}

async fn answer(client: &kube::Client, step: &Step, saved: &BTreeMap<String, String>) -> Answer {
    if may_be_stale(&fill(step.request().1, saved)) {
        refresh(client, &fill(step.request().1, saved)).await;
    }
    let mut last = once(client, step, saved).await;
    for _ in 0..TRIES {
        let holds = step.until.as_ref().is_none_or(|until| until.holds(last.code, &last.body));
        if holds && !is_starting(&last) {
            return last;
        }
        tokio::time::sleep(APART).await;
        last = once(client, step, saved).await;
    }
    panic!("{}: {:?} never held: {} {}", step.does, step.until, last.code, last.body);
}

/// Whether a cache that is behind may answer: at any version, and watches that begin with what there is.
fn may_be_stale(path: &str) -> bool {
    let (watches, any) = (path.contains("watch=true"), path.contains("resourceVersion=0"));
    any || watches && !path.contains("resourceVersion=") && !path.contains("sendInitialEvents")
}

/// A list of the newest version waits until the cache has it.
async fn refresh(client: &kube::Client, path: &str) {
    let collection = path.split('?').next().unwrap_or_default();
    let request = http::Request::get(format!("{collection}?limit=1")).body(Body::empty()).unwrap();
    client.send(request).await.unwrap().into_body().collect().await.unwrap();
}

/// A cache that is not filled yet, as that of a definition that has just changed, serves no watches.
fn is_starting(answer: &Answer) -> bool {
    answer.code == 429 && answer.body["message"].as_str().is_some_and(|message| message.contains("initializing"))
}

async fn once(client: &kube::Client, step: &Step, saved: &BTreeMap<String, String>) -> Answer {
    let (method, path) = step.request();
    let body = match (&step.text, &step.body) {
        (Some(text), _) => fill(text, saved),
        (None, Some(body)) => fill_value(body, saved).to_string(),
        (None, None) => String::new(),
    };
    let mut request = http::Request::builder()
        .method(method)
        .uri(fill(path, saved).replace(' ', "%20"))
        .header("Accept", step.accept.media_type())
        .header("User-Agent", "script");
    if !body.is_empty() {
        request = request.header("Content-Type", step.kind.content_type());
    }
    let response = client.send(request.body(Body::from(body.into_bytes())).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter().map(|w| w.to_str().unwrap().to_owned()).collect();
    let does = step.does.clone();
    let wanted = (step.is_watch() && code == 200).then(|| step.events.unwrap_or(usize::MAX));
    let last = step.last.as_ref().map(|name| format!("\"name\":\"{name}\""));
    let text = read(response.into_body(), wanted.unwrap_or(usize::MAX), last.as_deref()).await;
    let body = match wanted {
        Some(wanted) => text.lines().take(wanted).map(|line| serde_json::from_str::<Value>(line).unwrap()).collect(),
        None => serde_json::from_str(&text).unwrap_or_else(|_| json!(text)),
    };
    Answer { does, code, warnings, body }
}

/// The body, up to so many lines, or the one with `last`.
async fn read(mut body: Body, lines: usize, last: Option<&str>) -> String {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.unwrap().into_data() else { continue };
        bytes.extend_from_slice(&data);
        let is_last = |line: &[u8]| last.is_some_and(|last| String::from_utf8_lossy(line).contains(last));
        let whole = bytes.iter().filter(|byte| **byte == b'\n').count();
        if whole >= lines || bytes.split(|byte| *byte == b'\n').take(whole).any(is_last) {
            break;
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn fill(text: &str, saved: &BTreeMap<String, String>) -> String {
    saved.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

fn fill_value(value: &Value, saved: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => json!(fill(text, saved)),
        Value::Array(items) => items.iter().map(|item| fill_value(item, saved)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (fill(name, saved), fill_value(value, saved))).collect()
        }
        other => other.clone(),
    }
}
