//! Parses API requests independently of the resource.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use apimachinery::Status;
use axum::body::Body;
use bytes::Bytes;
use http::{Method, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::query::Query;
use super::response_format::ResponseFormat;

/// Maximum size of a request body in bytes, as in kube-apiserver.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Time limit for receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Parsed API request.
pub(crate) struct ApiRequest {
    /// HTTP method.
    pub(crate) method: Method,
    /// Query parameters.
    pub(crate) query: Query,
    /// Format of objects in the response.
    pub(crate) format: ResponseFormat,
    /// Content type without parameters.
    pub(crate) content_type: String,
    /// Product name of the user agent, the default of `fieldManager`.
    pub(crate) user_agent: String,
    /// Body, complete.
    pub(crate) body: Bytes,
}

// === impl ApiRequest ===

impl ApiRequest {
    /// Parses headers and query of a request.
    ///
    /// # Errors
    /// 400 for invalid query parameters, 406 for unsupported formats.
    pub(super) fn read(request: &http::Request<()>, body: Bytes, accept: &str) -> Result<Self, Status> {
        let content_type = header_text(request, header::CONTENT_TYPE);
        let content_type = content_type.split(';').next().unwrap_or_default().trim().to_owned();
        let user_agent = header_text(request, header::USER_AGENT);
        let user_agent = user_agent.split(['/', ' ']).next().unwrap_or_default().to_owned();
        let query = Query::parse(request.method(), request.uri())?;
        let format = ResponseFormat::negotiate(accept)?;
        let method = request.method().clone();
        Ok(Self { method, query, format, content_type, user_agent, body })
    }
}

/// Returns the number of bytes that a body can need in memory.
pub(super) fn max_body_bytes(body: &Body) -> u32 {
    let length = http_body::Body::size_hint(body).upper().and_then(|length| u32::try_from(length).ok());
    length.unwrap_or(u32::MAX).min(MAX_BODY_BYTES as u32)
}

/// Reads the body of a request.
///
/// # Errors
/// 400 if reading fails, 408 on timeout, 413 if the body is too large.
pub(super) async fn read_body(body: Body) -> Result<Bytes, Status> {
    let mut collect = pin!(Limited::new(body, MAX_BODY_BYTES).collect());
    // Most bodies arrive together with the request headers and need no timer.
    let result = match futures::poll!(&mut collect) {
        Poll::Ready(result) => result,
        Poll::Pending => tokio::time::timeout(BODY_TIMEOUT, collect).await.map_err(|_| {
            let limit = BODY_TIMEOUT.as_secs();
            Status::request_timeout(format!("the request body did not arrive within {limit} seconds"))
        })?,
    };
    let collected = result.map_err(|error| {
        if error.downcast_ref::<LengthLimitError>().is_some() {
            Status::request_entity_too_large(format!("limit is {MAX_BODY_BYTES} bytes"))
        } else {
            Status::bad_request(format!("failed to read the request body: {error}"))
        }
    })?;
    Ok(collected.to_bytes())
}

/// Returns all values of a header, joined by commas.
pub(super) fn header_text<B>(request: &http::Request<B>, name: header::HeaderName) -> String {
    let values = request.headers().get_all(name);
    values.iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",")
}
