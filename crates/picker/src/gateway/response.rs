//! Responses that the gateway generates itself.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_server::ErrorContent;
use serde_json::Value;

use super::response_body::ResponseBody;
use crate::openai_error::OpenAiError;

/// Returns the response to a probe: 200 with an empty body, or 503 with the reasons.
pub(super) fn health(failures: &[String]) -> Response<ResponseBody> {
    let lines: String = failures.iter().map(|failure| format!("{failure}\n")).collect();
    let mut response = Response::new(ResponseBody::full(Bytes::from(lines)));
    if !failures.is_empty() {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

/// Returns a response with a JSON body.
pub(super) fn json(status: StatusCode, value: &Value) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(Bytes::from(value.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the body of the response to a request that is not valid HTTP.
pub(super) fn invalid_http(status: StatusCode) -> ErrorContent {
    let body = OpenAiError::invalid_http(status).body();
    ErrorContent { content_type: "application/json", bytes: Bytes::from(body.to_string()) }
}

/// Returns the response for an error.
pub(super) fn error(error: &OpenAiError) -> Response<ResponseBody> {
    let mut response = json(error.status, &error.body());
    for (name, value) in &error.headers {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn health_check_fails_while_a_task_does_not_run() {
        let check = async |outages: &[String]| {
            let response = health(outages);
            let status = response.status().as_u16();
            (status, response.into_body().collect().await.unwrap().to_bytes())
        };
        assert_eq!(check(&[]).await, (200, Bytes::new()));
        assert_eq!(
            check(&["the watch of pods panicked".to_owned()]).await,
            (503, "the watch of pods panicked\n".into())
        );
    }
}
