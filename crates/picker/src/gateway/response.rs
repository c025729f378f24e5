//! Responses that the gateway generates itself.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use super::response_body::ResponseBody;
use crate::openai_error::OpenAiError;

/// Returns the response to a health check: 200 with an empty body.
pub(super) fn health() -> Response<ResponseBody> {
    Response::new(ResponseBody::full(Bytes::new()))
}

/// Returns a response with a JSON body.
pub(super) fn json(status: StatusCode, value: &Value) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(Bytes::from(value.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the response for an error.
pub(super) fn error(error: &OpenAiError) -> Response<ResponseBody> {
    let mut response = json(error.status, &error.body());
    for (name, value) in &error.headers {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}
