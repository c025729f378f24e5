//! Reads request bodies within limits of size, time and total memory. vLLM has no such limits; these keep one process that
//! simulates many engines responsive.

use std::time::Duration;

use axum::{
    body::{Bytes, HttpBody},
    http::Request,
};
use http_server::{BodyError, BodyLimits, BodyMemory, HeadReservation, ReservedBody, read_body};

use crate::api_error::ApiError;

/// Limits of a body: the size as in the gateway.
const LIMITS: BodyLimits = BodyLimits {
    max_bytes: 32 << 20,
    timeout: Duration::from_secs(60),
    pause_timeout: Duration::from_secs(60),
    memory_timeout: Duration::from_secs(60),
};

/// Default of [`RequestMemory`] in bytes, as in the gateway.
const DEFAULT_MEMORY: usize = 256 << 20;

/// Memory for the requests that engines read and parse at the same time. Clones share it: a process that simulates many
/// engines passes clones of one value to all of them. A request whose body does not fit waits; one whose head does not fit,
/// for which there is a quarter of the memory in addition, is rejected.
#[derive(Clone, Debug)]
pub struct RequestMemory(BodyMemory);

/// A complete body. The memory of the request is reserved until the value is dropped.
pub(crate) struct RequestBody {
    body: ReservedBody,
    _head: HeadReservation,
}

// === impl RequestMemory ===

impl Default for RequestMemory {
    /// Returns 256 MiB of unused memory for bodies.
    fn default() -> Self {
        Self::new(DEFAULT_MEMORY)
    }
}

impl RequestMemory {
    /// Returns `bytes` of unused memory for bodies.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(BodyMemory::new(bytes))
    }

    /// Reads the body of `request`.
    ///
    /// # Errors
    /// 413 for a body that is too large, 408 for one that is not complete in time, 400 for one that ends early, 503 if other
    /// bodies occupy the memory for too long, or if the head does not fit.
    pub(crate) async fn read<B>(&self, request: Request<B>) -> Result<RequestBody, ApiError>
    where
        B: HttpBody<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
    {
        let (head, body) = request.into_parts();
        let reservation = self.0.reserve_head(&head).map_err(|_| ApiError::out_of_memory("headers"))?;
        if body.size_hint().lower() > LIMITS.max_bytes as u64 {
            return Err(ApiError::body_too_large(LIMITS.max_bytes));
        }
        let body = read_body(body, LIMITS, Some(self.0.clone())).await;
        let body = body.map_err(|error| match error {
            BodyError::TooLarge { max_bytes } => ApiError::body_too_large(max_bytes),
            BodyError::Timeout(_) | BodyError::Paused(_) | BodyError::Stalled => ApiError::body_timeout(),
            BodyError::OutOfMemory(_) => ApiError::out_of_memory("bodies"),
            BodyError::Read(_) => ApiError::incomplete_body(),
        })?;
        Ok(RequestBody { body, _head: reservation })
    }
}

// === impl RequestBody ===

impl RequestBody {
    /// Returns the bytes of the body.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.body.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{FutureExt, StreamExt, future::join_all, stream};
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use tokio::time::Instant;

    use super::*;

    /// Memory for two bodies of the maximum size.
    const MEMORY: usize = 2 * LIMITS.max_bytes;

    /// Returns a body of unknown length: `chunks` chunks of 1 MiB, then nothing until the client sends more.
    fn stalled_body(chunks: usize) -> impl HttpBody<Data = Bytes, Error = Infallible> + Unpin {
        let chunk = Bytes::from(vec![b' '; 1 << 20]);
        let frames = stream::iter((0..chunks).map(move |_| Ok(Frame::data(chunk.clone()))));
        StreamBody::new(frames.chain(stream::pending()))
    }

    fn full_body(length: usize) -> Full<Bytes> {
        Full::new(Bytes::from(vec![b' '; length]))
    }

    async fn read<B>(memory: &RequestMemory, body: B) -> Result<RequestBody, ApiError>
    where
        B: HttpBody<Data = Bytes, Error = Infallible> + Unpin,
    {
        memory.read(Request::new(body)).await
    }

    #[tokio::test]
    async fn limits_the_size() {
        let memory = RequestMemory::new(MEMORY);
        let largest = read(&memory, full_body(LIMITS.max_bytes)).await;
        assert_eq!(largest.map(|body| body.bytes().len()).ok(), Some(LIMITS.max_bytes));
        let declared = read(&memory, full_body(LIMITS.max_bytes + 1)).await.err().unwrap();
        let streamed = read(&memory, stalled_body(33)).await.err().unwrap();
        assert_eq!([declared.status.as_u16(), streamed.status.as_u16()], [413, 413]);
    }

    #[tokio::test(start_paused = true)]
    async fn limits_the_time() {
        let error = read(&RequestMemory::new(MEMORY), stalled_body(1)).await.err().unwrap();
        assert_eq!(error.status, 408);
    }

    #[tokio::test(start_paused = true)]
    async fn limits_the_total_memory() {
        let memory = RequestMemory::new(MEMORY);
        let (mut first, mut second) =
            (Box::pin(read(&memory, stalled_body(5))), Box::pin(read(&memory, stalled_body(5))));
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
        let mut small = Box::pin(read(&memory, full_body(2)));
        assert!(futures::poll!(&mut small).is_pending(), "the memory is exhausted");
        drop(first);
        let body = small.now_or_never().unwrap().ok().unwrap();
        assert_eq!(body.bytes(), b"  ");
    }

    #[tokio::test(start_paused = true)]
    async fn request_without_memory_is_rejected() {
        let (memory, start) = (RequestMemory::new(MEMORY), Instant::now());
        let results = join_all((0..4).map(|_| read(&memory, full_body(LIMITS.max_bytes)))).await;
        let statuses: Vec<_> =
            results.iter().map(|result| result.as_ref().map_err(|error| error.status.as_u16()).err()).collect();
        assert_eq!(statuses, [None, None, Some(503), Some(503)]);
        assert_eq!(start.elapsed(), LIMITS.memory_timeout);
    }

    /// Many requests with large headers whose bodies never arrive, and then one that is complete.
    #[tokio::test(start_paused = true)]
    async fn heads_stay_within_the_memory() {
        let memory = RequestMemory::new(4 << 20);
        let value = "v".repeat(58 << 10);
        let (mut pending, mut rejected) = (Vec::new(), 0);
        for _ in 0..100 {
            let body = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
            let request = Request::builder().header("x-large", &value).body(body).unwrap();
            let mut reading = Box::pin(memory.read(request));
            match reading.as_mut().now_or_never() {
                None => pending.push(reading),
                Some(result) => {
                    assert_eq!(result.err().unwrap(), ApiError::out_of_memory("headers"));
                    rejected += 1;
                }
            }
        }
        assert_eq!((pending.len(), rejected), (16, 84));
        drop(pending);
        let body = read(&memory, full_body(2)).await.ok().unwrap();
        assert_eq!(body.bytes(), b"  ");
    }
}
