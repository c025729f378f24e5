//! Plain answers: JSON, text, and failures as Status.

use apimachinery::status::Status;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

pub(crate) fn object(value: &Value) -> Response {
    json_body(StatusCode::OK, value)
}

/// An answer of 201 that is no stored object.
pub(crate) fn created(value: &Value) -> Response {
    json_body(StatusCode::CREATED, value)
}

pub(crate) fn text(text: &'static str) -> Response {
    Response::new(Body::from(text))
}

/// A path outside of every API group.
pub(crate) fn no_page() -> Response {
    let mut response = text("404 page not found\n");
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

pub(crate) fn failure(status: &Status) -> Response {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_body(code, &status.to_json())
}

/// JSON that is text already.
pub(crate) fn json_text(code: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn json_body(code: StatusCode, value: &Value) -> Response {
    json_text(code, value.to_string())
}
