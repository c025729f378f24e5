//! Requests from clients, read up to the limits of the gateway.

use std::error::Error;

use bytes::Bytes;
use cluster::NamespacedName;
use http::{HeaderMap, Request, header};
use http_body::Body;
use http_server::{BodyMemory, HeadReservation, RequestProgress, read_body};
use tokio::time::Instant;

use super::forwarded_headers::remove_unforwarded_headers;
use crate::{
    flow_headers::FlowHeaders,
    openai_error::OpenAiError,
    request::{self, BODY_LIMITS, ModelField, RequestInfo},
};

/// A request that is ready to be forwarded.
pub(super) struct ProxiedRequest {
    /// Path and query for the engine.
    pub(super) path: String,
    /// Pool in the request path, if any.
    pub(super) pool: Option<NamespacedName>,
    /// Headers from the client that are forwarded, if they do not contain an API key of the gateway.
    pub(super) headers: HeaderMap,
    /// The whole body. Its memory is reserved as long as the request, an attempt to send it or a part of it exists.
    pub(super) body: Bytes,
    /// Fields of the body, except for `model`.
    pub(super) info: RequestInfo,
    /// `model` of the body; its name is not empty.
    pub(super) model: ModelField,
    /// How the request waits if it has no use case.
    pub(super) flow: Option<Box<FlowHeaders>>,
    /// When the response must be complete; `None` without a limit.
    pub(super) deadline: Option<Instant>,
    /// Memory of everything but the body.
    _head_reservation: HeadReservation,
}

// === impl ProxiedRequest ===

impl ProxiedRequest {
    /// Returns the path without the query.
    pub(super) fn api_path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

/// Reads a request to `path`, without the prefix that addresses `pool`.
///
/// # Errors
/// The body is too large, incomplete or not JSON, stalls, names no model, or `memory` is exhausted.
pub(super) async fn read_request<B>(
    request: Request<B>,
    pool: Option<NamespacedName>,
    path: &str,
    memory: &BodyMemory,
) -> Result<ProxiedRequest, OpenAiError>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    let (mut head, body) = request.into_parts();
    let head_reservation = memory.reserve_head(&head)?;
    // Reject an excessive `Content-Length` before reading the body.
    if body.size_hint().lower() > BODY_LIMITS.max_bytes as u64 {
        return Err(OpenAiError::body_too_large());
    }
    let body = read_body(body, BODY_LIMITS, Some(memory.clone())).await?.into_bytes();
    if let Some(progress) = head.extensions.remove::<RequestProgress>() {
        progress.record_received();
    }
    let mut info = request::parse_request(&body)?;
    let model = info.model.take().filter(|model| !model.name.is_empty()).ok_or_else(OpenAiError::missing_model)?;
    let flow = FlowHeaders::read(|name| head.headers.get(name).and_then(|value| value.to_str().ok()));
    remove_unforwarded_headers(&mut head.headers);
    // The client for engines adds its own.
    for name in [header::HOST, header::CONTENT_LENGTH, header::EXPECT] {
        head.headers.remove(name);
    }
    let path = match head.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    Ok(ProxiedRequest {
        path,
        pool,
        headers: head.headers,
        body,
        info,
        model,
        flow,
        deadline: None,
        _head_reservation: head_reservation,
    })
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use futures::{FutureExt as _, future::join_all, stream};
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};
    use rstest::rstest;
    use tokio::time::timeout;

    use super::*;
    use crate::request::{DEFAULT_REQUEST_MEMORY, MAX_BODY_BYTES};

    /// Returns a request of `length` bytes.
    fn body(length: usize) -> Bytes {
        let mut body = br#"{"model":"m"}"#.to_vec();
        body.resize(length, b' ');
        Bytes::from(body)
    }

    async fn read<B>(body: B, memory: &BodyMemory) -> Result<ProxiedRequest, OpenAiError>
    where
        B: Body<Data = Bytes, Error = Infallible> + Unpin,
    {
        read_request(Request::new(body), None, "/v1/completions", memory).await
    }

    /// Many requests of the maximum size: those that fit are read, the others wait and then fail.
    // spec: GW-80
    #[tokio::test(start_paused = true)]
    async fn bodies_stay_within_the_memory() {
        let memory = BodyMemory::new(DEFAULT_REQUEST_MEMORY);
        let largest = body(MAX_BODY_BYTES);
        let start = Instant::now();
        let results = join_all((0..100).map(|_| read(Full::new(largest.clone()), &memory))).await;
        let (read_requests, rejected): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!((read_requests.len(), memory.available_bytes()), (DEFAULT_REQUEST_MEMORY / MAX_BODY_BYTES, 0));
        assert_eq!(start.elapsed(), Duration::from_secs(30));
        for error in rejected.into_iter().filter_map(Result::err) {
            assert_eq!((error.status.as_u16(), error.code), (503, Some("memory_exhausted")));
            assert_eq!(error.headers, [("retry-after", "1")]);
        }
        drop(read_requests);
        assert_eq!(memory.available_bytes(), DEFAULT_REQUEST_MEMORY);
    }

    /// Many requests with large headers whose bodies never arrive: those that fit are held, the others fail at once.
    #[tokio::test(start_paused = true)]
    async fn heads_stay_within_the_memory() {
        let memory = BodyMemory::new(DEFAULT_REQUEST_MEMORY);
        let value = "v".repeat(58 * 1024);
        let mut pending = Vec::new();
        let mut rejected = 0;
        for _ in 0..2000 {
            let body = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
            let request = Request::builder().header("x-large", &value).body(body).unwrap();
            let mut reading = Box::pin(read_request(request, None, "/v1/completions", &memory));
            match reading.as_mut().now_or_never() {
                None => pending.push(reading),
                Some(result) => {
                    let error = result.err().unwrap();
                    assert_eq!((error.status.as_u16(), error.code), (503, Some("memory_exhausted")));
                    rejected += 1;
                }
            }
        }
        let header_bytes = pending.len() * value.len();
        assert!(rejected > 0 && header_bytes <= DEFAULT_REQUEST_MEMORY / 4, "{header_bytes} bytes are held");
        drop(pending);
        assert!(read(Full::new(body(100)), &memory).await.is_ok());
    }

    /// An attempt to send the request may outlive it.
    #[tokio::test(start_paused = true)]
    async fn memory_is_reserved_until_the_last_attempt_ends() {
        let memory = BodyMemory::new(MAX_BODY_BYTES);
        let first = read(Full::new(body(MAX_BODY_BYTES)), &memory).await.unwrap();
        let attempt = first.body.slice(100..);
        drop(first);
        let mut second = Box::pin(read(Full::new(body(100)), &memory));
        assert!(timeout(Duration::from_secs(29), &mut second).await.is_err(), "it waits for the memory");
        drop(attempt);
        assert!(second.now_or_never().unwrap().is_ok());
    }

    /// Columns: chunks, seconds before each, expected seconds until the end.
    #[rstest]
    #[case::stalled(2, 31, 30)]
    #[case::slow(1000, 29, 135)]
    #[tokio::test(start_paused = true)]
    async fn body_must_arrive_in_time(#[case] chunks: u64, #[case] interval: u64, #[case] expected_seconds: u64) {
        let frames = stream::unfold(0, move |index| async move {
            if index == chunks {
                return None;
            }
            tokio::time::sleep(Duration::from_secs(interval)).await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x"))), index + 1))
        });
        let start = Instant::now();
        let error =
            read(StreamBody::new(Box::pin(frames)), &BodyMemory::new(DEFAULT_REQUEST_MEMORY)).await.err().unwrap();
        assert_eq!((error.status.as_u16(), start.elapsed().as_secs()), (408, expected_seconds));
    }
}
