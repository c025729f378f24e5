//! Requests from clients, read up to the limits of the gateway.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cluster::NamespacedName;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::{
    openai_error::OpenAiError,
    request::{self, MAX_BODY_BYTES, ModelField, RequestInfo},
};

/// Maximum time between two chunks of a request body.
const BODY_STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A request that is ready to be forwarded.
pub(super) struct ProxiedRequest {
    /// Path and query for the engine.
    pub(super) path: String,
    /// Pool in the request path, if any.
    pub(super) pool: Option<NamespacedName>,
    /// Headers from the client.
    pub(super) headers: HeaderMap,
    /// The whole body.
    pub(super) body: Bytes,
    /// Fields of the body, except for `model`.
    pub(super) info: RequestInfo,
    /// `model` of the body; its name is not empty.
    pub(super) model: ModelField,
}

/// Reads a request to `path`, without the prefix that addresses `pool`.
///
/// # Errors
/// The body is too large, incomplete or not JSON, stalls, or names no model.
pub(super) async fn read_request(
    request: Request<Incoming>,
    pool: Option<NamespacedName>,
    path: &str,
) -> Result<ProxiedRequest, OpenAiError> {
    let (head, body) = request.into_parts();
    // Reject an excessive `Content-Length` before reading the body.
    if http_body::Body::size_hint(&body).lower() > MAX_BODY_BYTES as u64 {
        return Err(OpenAiError::body_too_large());
    }
    let body = read_body(body).await?;
    let mut info = request::parse_request(&body)?;
    let model = info.model.take().filter(|model| !model.name.is_empty()).ok_or_else(OpenAiError::missing_model)?;
    let path = match head.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    Ok(ProxiedRequest { path, pool, headers: head.headers, body, info, model })
}

async fn read_body(body: Incoming) -> Result<Bytes, OpenAiError> {
    let mut body = Limited::new(body, MAX_BODY_BYTES);
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    loop {
        let frame = match timeout(BODY_STALL_TIMEOUT, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) if error.is::<LengthLimitError>() => return Err(OpenAiError::body_too_large()),
            Ok(Some(Err(_))) => return Err(OpenAiError::incomplete_body()),
            Ok(None) => break,
            Err(_) => return Err(OpenAiError::body_timeout()),
        };
        let Ok(data) = frame.into_data() else { continue };
        match (first.is_empty(), rest.is_empty()) {
            // Most bodies are a single chunk, which is not copied.
            (true, true) => first = data,
            (_, true) => {
                rest.extend_from_slice(&first);
                rest.extend_from_slice(&data);
            }
            _ => rest.extend_from_slice(&data),
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}
