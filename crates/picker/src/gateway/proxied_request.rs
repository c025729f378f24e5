//! Requests from clients, read up to the limits of the gateway.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cluster::NamespacedName;
use http::{HeaderMap, Request};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use crate::{
    openai_error::OpenAiError,
    request::{self, MAX_BODY_BYTES, ModelField, RequestInfo},
};

/// Maximum time between two chunks of a request body.
const BODY_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for a whole request body: [`MAX_BODY_BYTES`] at 2 Mbit/s.
const BODY_TIMEOUT: Duration = Duration::from_secs(135);

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
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
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

/// Reads a whole body.
///
/// # Errors
/// The body is too large or incomplete, stalls, or takes longer than [`BODY_TIMEOUT`].
async fn read_body<B>(body: B) -> Result<Bytes, OpenAiError>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
{
    let deadline = Instant::now() + BODY_TIMEOUT;
    let mut body = Limited::new(body, MAX_BODY_BYTES);
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    loop {
        let next_chunk = deadline.min(Instant::now() + BODY_STALL_TIMEOUT);
        let frame = match timeout_at(next_chunk, body.frame()).await {
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http::StatusCode;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use rstest::rstest;

    use super::*;

    /// Columns: chunks, seconds before each, expected seconds until the end, whether the body is accepted.
    #[rstest]
    #[case::steady(10, 10, 100, true)]
    #[case::stalled(2, 31, 30, false)]
    #[case::slow(1000, 29, 135, false)]
    #[tokio::test(start_paused = true)]
    async fn body_must_arrive_in_time(
        #[case] chunks: u64,
        #[case] interval: u64,
        #[case] expected_seconds: u64,
        #[case] is_accepted: bool,
    ) {
        let frames = stream::unfold(0, move |index| async move {
            if index == chunks {
                return None;
            }
            tokio::time::sleep(Duration::from_secs(interval)).await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x"))), index + 1))
        });
        let start = Instant::now();
        let result = read_body(StreamBody::new(Box::pin(frames))).await;
        assert_eq!(start.elapsed().as_secs(), expected_seconds);
        match result {
            Ok(body) => assert!(is_accepted && body.len() as u64 == chunks),
            Err(error) => assert!(!is_accepted && error.status == StatusCode::REQUEST_TIMEOUT),
        }
    }
}
