//! Basic responses: JSON, text and Status.

use apimachinery::Status;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

/// Returns a JSON response with code 200.
pub(crate) fn json_object(value: &Value) -> Response {
    json_body(StatusCode::OK, value)
}

/// Returns a JSON response with code 201.
pub(crate) fn created(value: &Value) -> Response {
    json_body(StatusCode::CREATED, value)
}

/// Returns a plain text response.
pub(crate) fn text(text: &'static str) -> Response {
    Response::new(Body::from(text))
}

/// Returns the plain-text 404 page for paths outside all API groups.
pub(crate) fn not_found_page() -> Response {
    let mut response = text("404 page not found\n");
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// Returns the page of kube-apiserver for a request whose handler panicked.
pub(crate) fn panic_page() -> Response {
    let mut response = text("This request caused apiserver to panic. Look in the logs for details.\n");
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

/// Returns a Status as the response.
pub(crate) fn status_response(status: &Status) -> Response {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_body(code, &status.to_json())
}

/// Returns a response with a body that is encoded as JSON.
pub(crate) fn json_response(code: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn json_body(code: StatusCode, value: &Value) -> Response {
    json_response(code, value.to_string())
}
