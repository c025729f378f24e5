//! Responses that the gateway generates itself, in the format of the OpenAI API.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use super::response_body::ResponseBody;
use crate::{
    pool::RoutingTable,
    request::{MAX_BODY_BYTES, ScanError},
    schedule::RoutingError,
};
use cluster::NamespacedName;

/// Returns a response with a JSON body.
pub(super) fn json_response(status: StatusCode, value: &Value) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(Bytes::from(value.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn error_response(
    status: StatusCode,
    message: &str,
    param: Option<&str>,
    code: Option<&str>,
) -> Response<ResponseBody> {
    json_response(status, &error_body(status, message, param, code))
}

/// Returns the body of an error response.
pub(crate) fn error_body(status: StatusCode, message: &str, param: Option<&str>, code: Option<&str>) -> Value {
    let error_type = if status.is_server_error() { "server_error" } else { "invalid_request_error" };
    json!({"error": {"message": message, "type": error_type, "param": param, "code": code}})
}

/// Returns the response to a health check: 200 with an empty body.
pub(super) fn health_response() -> Response<ResponseBody> {
    Response::new(ResponseBody::full(Bytes::new()))
}

pub(super) fn path_not_found(path: &str) -> Response<ResponseBody> {
    error_response(StatusCode::NOT_FOUND, &format!("Unknown request URL: {path}."), None, Some("unknown_url"))
}

pub(super) fn method_not_allowed(allowed: &'static str) -> Response<ResponseBody> {
    let message = format!("Only {allowed} is allowed for this URL.");
    let mut response = error_response(StatusCode::METHOD_NOT_ALLOWED, &message, None, Some("method_not_supported"));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

pub(super) fn body_too_large() -> Response<ResponseBody> {
    let message = format!("The request body is larger than {} MiB.", MAX_BODY_BYTES / (1024 * 1024));
    error_response(StatusCode::PAYLOAD_TOO_LARGE, &message, None, Some("request_too_large"))
}

pub(super) fn body_timeout() -> Response<ResponseBody> {
    error_response(
        StatusCode::REQUEST_TIMEOUT,
        "Timed out while reading the request body.",
        None,
        Some("request_timeout"),
    )
}

pub(super) fn invalid_body(message: &str) -> Response<ResponseBody> {
    error_response(StatusCode::BAD_REQUEST, message, None, None)
}

pub(super) fn scan_error(error: ScanError) -> Response<ResponseBody> {
    let param = (error == ScanError::ModelNotString).then_some("model");
    error_response(StatusCode::BAD_REQUEST, &format!("{error}."), param, None)
}

pub(super) fn missing_model() -> Response<ResponseBody> {
    error_response(StatusCode::BAD_REQUEST, "You must provide a model parameter.", Some("model"), None)
}

pub(super) fn routing_error(error: &RoutingError) -> Response<ResponseBody> {
    let message = error.to_string();
    match error {
        RoutingError::ModelNotFound(_) => {
            error_response(StatusCode::NOT_FOUND, &message, Some("model"), Some("model_not_found"))
        }
        RoutingError::PoolNotFound(_) => error_response(StatusCode::NOT_FOUND, &message, None, Some("pool_not_found")),
        RoutingError::NoEndpointAvailable(_) => {
            let mut response = error_response(StatusCode::SERVICE_UNAVAILABLE, &message, None, Some("no_endpoint"));
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            let reason = HeaderValue::from_static("rejected-no-endpoints");
            headers.insert("x-llm-d-request-dropped-reason", reason);
            response
        }
    }
}

/// Returns the models of all pools with ready endpoints, or of one pool.
pub(super) fn list_models(table: &RoutingTable, pool: Option<&NamespacedName>) -> Response<ResponseBody> {
    if let Some(key) = pool.filter(|key| !table.pools.contains_key(key)) {
        return routing_error(&RoutingError::PoolNotFound(key.clone()));
    }
    let data: Vec<Value> =
        visible_models(table, pool).map(|(model, key, created)| model_object(model, key, created)).collect();
    json_response(StatusCode::OK, &json!({"object": "list", "data": data}))
}

/// Returns one model.
pub(super) fn get_model(table: &RoutingTable, pool: Option<&NamespacedName>, name: &str) -> Response<ResponseBody> {
    match visible_models(table, pool).find(|(model, ..)| *model == name) {
        Some((model, key, created)) => json_response(StatusCode::OK, &model_object(model, key, created)),
        None => routing_error(&RoutingError::ModelNotFound(name.to_owned())),
    }
}

/// Returns model name, pool and creation timestamp, ordered by model name.
fn visible_models<'a>(
    table: &'a RoutingTable,
    pool: Option<&NamespacedName>,
) -> impl Iterator<Item = (&'a str, &'a NamespacedName, &'a str)> {
    let mut models = std::collections::BTreeMap::new();
    let pools = table.pools.values().filter(|candidate| pool.is_none_or(|key| candidate.key == *key));
    for candidate in pools.filter(|candidate| !candidate.ready_endpoints.is_empty()) {
        for (model, use_case) in &candidate.use_cases {
            // The pool of the oldest use case serves the model, whether it is ready or not.
            if pool.is_some() || table.by_model.get(model) == Some(&candidate.key) {
                models.insert(model.as_str(), (&candidate.key, use_case.creation_timestamp.as_str()));
            }
        }
    }
    models.into_iter().map(|(model, (key, created))| (model, key, created))
}

fn model_object(model: &str, pool: &NamespacedName, creation_timestamp: &str) -> Value {
    let created = creation_timestamp.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second);
    json!({"id": model, "object": "model", "created": created, "owned_by": pool.to_string()})
}
