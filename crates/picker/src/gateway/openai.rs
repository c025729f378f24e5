//! The gateway's own answers, in OpenAI's shapes.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use super::relay::Body;
use crate::{
    pool::{PoolKey, Routing},
    request::{MAX_BODY, ScanError},
    schedule::Refusal,
};

/// 200 with a JSON body.
pub(super) fn json(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::whole(Bytes::from(value.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn error(status: StatusCode, message: &str, param: Option<&str>, code: Option<&str>) -> Response<Body> {
    json(status, &problem(status, message, param, code))
}

/// The body of an error answer.
pub(crate) fn problem(status: StatusCode, message: &str, param: Option<&str>, code: Option<&str>) -> Value {
    let kind = if status.is_server_error() { "server_error" } else { "invalid_request_error" };
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

/// Empty 200.
pub(super) fn healthy() -> Response<Body> {
    Response::new(Body::whole(Bytes::new()))
}

pub(super) fn no_such_path(path: &str) -> Response<Body> {
    error(StatusCode::NOT_FOUND, &format!("Unknown request URL: {path}."), None, Some("unknown_url"))
}

pub(super) fn wrong_method(allowed: &'static str) -> Response<Body> {
    let message = format!("Only {allowed} is allowed here.");
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, &message, None, Some("method_not_supported"));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

pub(super) fn too_large() -> Response<Body> {
    let message = format!("The request body is larger than {} MiB.", MAX_BODY / (1024 * 1024));
    error(StatusCode::PAYLOAD_TOO_LARGE, &message, None, Some("request_too_large"))
}

pub(super) fn too_slow() -> Response<Body> {
    error(StatusCode::REQUEST_TIMEOUT, "The request body stopped coming.", None, Some("request_timeout"))
}

pub(super) fn unreadable(message: &str) -> Response<Body> {
    error(StatusCode::BAD_REQUEST, message, None, None)
}

pub(super) fn not_scanned(reason: ScanError) -> Response<Body> {
    let param = (reason == ScanError::ModelNotString).then_some("model");
    error(StatusCode::BAD_REQUEST, &format!("{reason}."), param, None)
}

pub(super) fn no_model() -> Response<Body> {
    error(StatusCode::BAD_REQUEST, "You must provide a model parameter.", Some("model"), None)
}

pub(super) fn refused(refusal: &Refusal) -> Response<Body> {
    let message = refusal.to_string();
    match refusal {
        Refusal::UnknownModel(_) => error(StatusCode::NOT_FOUND, &message, Some("model"), Some("model_not_found")),
        Refusal::UnknownPool(_) => error(StatusCode::NOT_FOUND, &message, None, Some("pool_not_found")),
        Refusal::NoEndpoint(_) => {
            let mut response = error(StatusCode::SERVICE_UNAVAILABLE, &message, None, Some("no_endpoint"));
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            let reason = HeaderValue::from_static("rejected-no-endpoints");
            headers.insert("x-llm-d-request-dropped-reason", reason);
            response
        }
    }
}

/// The use cases of ready pools, or of one pool.
pub(super) fn models(routing: &Routing, pool: Option<&PoolKey>) -> Response<Body> {
    if let Some(key) = pool.filter(|key| !routing.pools.contains_key(key)) {
        return refused(&Refusal::UnknownPool(key.clone()));
    }
    let data: Vec<Value> = listed(routing, pool).map(|(model, key, created)| entry(model, key, created)).collect();
    json(StatusCode::OK, &json!({"object": "list", "data": data}))
}

/// One use case.
pub(super) fn model(routing: &Routing, pool: Option<&PoolKey>, name: &str) -> Response<Body> {
    match listed(routing, pool).find(|(model, ..)| *model == name) {
        Some((model, key, created)) => json(StatusCode::OK, &entry(model, key, created)),
        None => refused(&Refusal::UnknownModel(name.to_owned())),
    }
}

/// Model name, pool and creation time, by model name.
fn listed<'a>(routing: &'a Routing, pool: Option<&PoolKey>) -> impl Iterator<Item = (&'a str, &'a PoolKey, &'a str)> {
    let mut found = std::collections::BTreeMap::new();
    let pools = routing.pools.values().filter(|candidate| pool.is_none_or(|key| candidate.key == *key));
    for candidate in pools.filter(|candidate| !candidate.ready.is_empty()) {
        for (model, use_case) in &candidate.use_cases {
            // The answering pool is that of the oldest use case, ready or not.
            if pool.is_some() || routing.by_model.get(model) == Some(&candidate.key) {
                found.insert(model.as_str(), (&candidate.key, use_case.created.as_str()));
            }
        }
    }
    found.into_iter().map(|(model, (key, created))| (model, key, created))
}

fn entry(model: &str, pool: &PoolKey, created: &str) -> Value {
    let created = created.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second);
    json!({"id": model, "object": "model", "created": created, "owned_by": pool.to_string()})
}
