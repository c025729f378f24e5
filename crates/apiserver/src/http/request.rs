//! Parses API requests independently of the resource.

use apimachinery::Status;
use bytes::Bytes;
use http::{Method, header};

use super::query::Query;
use super::response_format::ResponseFormat;

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

/// Returns all values of a header, joined by commas.
pub(super) fn header_text<B>(request: &http::Request<B>, name: header::HeaderName) -> String {
    let values = request.headers().get_all(name);
    values.iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",")
}
