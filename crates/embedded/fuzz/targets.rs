//! What is fuzzed: four readers of text that anybody may send. Each takes any bytes, ends soon, and holds its promises.

use std::sync::{Arc, OnceLock};

use apimachinery::apply::{self, ApplyOptions};
use apimachinery::patch;
use apimachinery::schema::Schema;
use apimachinery::selector::{FieldSelector, LabelSelector};
use apimachinery::structure::Structure;
use embedded::Server;
use embedded::ports::{AdmitAll, Container, Exit, Loopback, Ports, Runner, SystemClock, SystemRandom};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// `KIND`, an object, a patch; a line each. KIND is one of json, merge, strategic, apply.
pub fn patches(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.splitn(3, '\n');
    let kind = lines.next().unwrap_or_default();
    let (Some(object), Some(patch)) = (document(lines.next()), document(lines.next())) else { return };
    let structure = Structure::builtin("apps", "Deployment");
    match kind {
        "json" => drop(patch::json::apply(&object, &patch)),
        "merge" => {
            let once = patch::merge::apply(&object, &patch);
            assert_eq!(patch::merge::apply(&once, &patch), once, "merged twice is merged once");
        }
        "strategic" => drop(patch::strategic::apply(&structure, &object, &patch)),
        _ => applied(&structure, &object, &patch),
    }
}

fn applied(structure: &Structure, object: &Value, configuration: &Value) {
    let options = ApplyOptions {
        manager: "fuzz".to_owned(),
        force: true,
        api_version: "apps/v1".to_owned(),
        subresource: None,
        now: "2026-01-01T00:00:00Z".to_owned(),
    };
    let Ok(once) = apply::apply(structure, Some(object), configuration, &options) else { return };
    let twice = apply::apply(structure, Some(&once), configuration, &options).unwrap();
    assert_eq!(twice, once, "applied twice is applied once");
}

fn document(line: Option<&str>) -> Option<Value> {
    serde_json::from_str(line?).ok()
}

/// A selector of labels, and one of fields.
pub fn selectors(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(selector) = LabelSelector::parse(&text) {
        let object = json!({"metadata": {"labels": {"app": "x", "tier": "front", "n": "3"}}});
        let again = LabelSelector::parse(&selector.to_string()).unwrap();
        assert_eq!(again.matches_object(&object), selector.matches_object(&object), "what is printed means the same");
    }
    if let Ok(selector) = FieldSelector::parse(&text) {
        selector.matches_with(str::to_owned);
    }
    if let Ok(value) = serde_json::from_str(&text) {
        drop(LabelSelector::from_json(&value));
    }
}

/// A rule, and the object that it is evaluated on; a line each.
pub fn cel(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (rule, object) = text.split_once('\n').unwrap_or((&text, "{}"));
    let object: Value = serde_json::from_str(object).unwrap_or_else(|_| json!({"s": "text", "n": 3, "l": [1, 2, 3]}));
    let schema = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-validations": [{"rule": rule, "messageExpression": rule}],
    });
    if let Ok(schema) = Schema::from_json(&schema) {
        schema.check_rules(&object, None);
        schema.check_rules(&object, Some(&object));
    }
}

/// A method and a path with its query; the body comes after a line break.
pub fn paths(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once('\n').unwrap_or((&text, "{}"));
    let (method, path) = head.split_once(' ').unwrap_or(("GET", head));
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    let Ok(request) = request.body(axum::body::Body::from(body.to_owned())) else { return };
    let answer = futures::executor::block_on(server().router().oneshot(request));
    let code = answer.map_or(0, |answer| answer.status().as_u16());
    assert!((200..=501).contains(&code), "{code}");
}

/// An empty cluster. What the fuzzer writes into it stays for its next paths.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        Server::new(&Ports {
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            admission: Arc::new(AdmitAll),
            runner: Arc::new(Nothing),
            network: Arc::new(Loopback),
        })
    })
}

struct Nothing;

impl Runner for Nothing {
    fn run(&self, _container: Container, _stop: CancellationToken) -> BoxFuture<'static, Exit> {
        Box::pin(async { Exit { code: 0, message: String::new() } })
    }
}
