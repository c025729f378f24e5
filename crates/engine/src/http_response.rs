//! Responses of routes.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};

use crate::api_error::ApiError;

/// Content type of JSON bodies.
pub(crate) const JSON: &str = "application/json";

/// Returns a response; without `content_type`, it has no such header.
pub(crate) fn build_response(status: StatusCode, content_type: Option<&'static str>, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    if let Some(content_type) = content_type {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

/// Returns the response for `error`.
pub(crate) fn error_response(error: &ApiError) -> Response<Body> {
    build_response(error.status, Some(JSON), error.to_json())
}
