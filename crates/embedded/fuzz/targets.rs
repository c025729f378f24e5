//! Fuzz targets: parsers of untrusted input. Each accepts any bytes, terminates and checks invariants.

use std::sync::OnceLock;

use apimachinery::{
    ApplyOptions, FieldSelector, LabelSelector, MergeSchema, Schema, apply_json_patch, apply_merge_patch,
    apply_strategic_merge_patch, builtin_merge_schema, server_side_apply,
};
use embedded::Server;
use embedded::ports::ServerPorts;
use serde_json::{Value, json};
use tower::ServiceExt;

/// Applies a patch. Input lines: kind (json, merge, strategic, apply), object, patch.
pub fn patches(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.splitn(3, '\n');
    let kind = lines.next().unwrap_or_default();
    let (Some(object), Some(patch)) = (document(lines.next()), document(lines.next())) else { return };
    let merge_schema = builtin_merge_schema("apps", "Deployment");
    match kind {
        "json" => drop(apply_json_patch(&object, &patch)),
        "merge" => {
            let first = apply_merge_patch(&object, &patch);
            assert_eq!(apply_merge_patch(&first, &patch), first, "merge patches are idempotent");
        }
        "strategic" => drop(apply_strategic_merge_patch(&merge_schema, &object, &patch)),
        _ => applied(&merge_schema, &object, &patch),
    }
}

fn applied(merge_schema: &MergeSchema, object: &Value, configuration: &Value) {
    let options = ApplyOptions {
        manager: "fuzz".to_owned(),
        force: true,
        api_version: "apps/v1".to_owned(),
        subresource: None,
        now: "2026-01-01T00:00:00Z".to_owned(),
    };
    let Ok(first) = server_side_apply(merge_schema, Some(object), configuration, &options) else { return };
    let second = server_side_apply(merge_schema, Some(&first), configuration, &options).unwrap();
    assert_eq!(second, first, "server-side apply is idempotent");
}

fn document(line: Option<&str>) -> Option<Value> {
    serde_json::from_str(line?).ok()
}

/// Parses label and field selectors.
pub fn selectors(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(selector) = LabelSelector::parse(&text) {
        let object = json!({"metadata": {"labels": {"app": "x", "tier": "front", "n": "3"}}});
        let reparsed = LabelSelector::parse(&selector.to_string()).unwrap();
        assert_eq!(
            reparsed.matches_object(&object),
            selector.matches_object(&object),
            "formatted selectors are equivalent"
        );
    }
    if let Ok(selector) = FieldSelector::parse(&text) {
        selector.matches_with(str::to_owned);
    }
    if let Ok(value) = serde_json::from_str(&text) {
        drop(LabelSelector::from_json(&value));
    }
}

/// Evaluates a CEL rule. Input lines: rule, object.
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

/// Sends a request. Input lines: method and path, body.
pub fn paths(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (request_line, body) = text.split_once('\n').unwrap_or((&text, "{}"));
    let (method, path) = request_line.split_once(' ').unwrap_or(("GET", request_line));
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    let Ok(request) = request.body(axum::body::Body::from(body.to_owned())) else { return };
    let response = futures::executor::block_on(embedded::router(server()).oneshot(request));
    let code = response.map_or(0, |response| response.status().as_u16());
    assert!((200..=501).contains(&code), "{code}");
}

/// Server that all inputs share; it retains the objects that they create.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::new(&ServerPorts::default()))
}
