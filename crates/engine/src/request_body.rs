//! Reads request bodies within limits of size, time and total memory. vLLM has no such limits; these keep one process that
//! simulates many engines responsive.

use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use http_server::{BodyError, BodyLimits, BodyMemory, ReservedBody, read_body};

use crate::api_error::ApiError;

/// Limits of a body: the size as in the gateway.
const LIMITS: BodyLimits = BodyLimits {
    max_bytes: 32 << 20,
    timeout: Duration::from_secs(60),
    pause_timeout: Duration::from_secs(60),
    memory_timeout: Duration::from_secs(60),
};

/// Maximum total size in bytes of the bodies that one engine reads and parses at the same time. Further requests wait.
const BODY_MEMORY: usize = 2 * LIMITS.max_bytes;

/// The memory for the bodies of one engine.
pub(crate) struct BodyBudget(BodyMemory);

/// A complete body. Its memory counts towards the budget until the value is dropped.
pub(crate) struct RequestBody(ReservedBody);

impl Default for BodyBudget {
    /// Returns the unused budget.
    fn default() -> Self {
        Self(BodyMemory::new(BODY_MEMORY))
    }
}

// === impl BodyBudget ===

impl BodyBudget {
    /// Reads `body`.
    ///
    /// # Errors
    /// 413 for a body that is too large, 408 for one that is not complete in time, 400 for one that ends early, 503 if other
    /// bodies occupy the memory for too long.
    pub(crate) async fn read<B>(&self, body: B) -> Result<RequestBody, ApiError>
    where
        B: HttpBody<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
    {
        if body.size_hint().lower() > LIMITS.max_bytes as u64 {
            return Err(ApiError::body_too_large(LIMITS.max_bytes));
        }
        let body = read_body(body, LIMITS, Some(self.0.clone())).await;
        body.map(RequestBody).map_err(|error| match error {
            BodyError::TooLarge { max_bytes } => ApiError::body_too_large(max_bytes),
            BodyError::Timeout(_) | BodyError::Paused(_) | BodyError::Stalled => ApiError::body_timeout(),
            BodyError::OutOfMemory(_) => ApiError::out_of_memory(),
            BodyError::Read(_) => ApiError::incomplete_body(),
        })
    }
}

// === impl RequestBody ===

impl RequestBody {
    /// Returns the bytes of the body.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0.bytes
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

    /// Returns a body of unknown length: `chunks` chunks of 1 MiB, then nothing until the client sends more.
    fn stalled_body(chunks: usize) -> impl HttpBody<Data = Bytes, Error = Infallible> + Unpin {
        let chunk = Bytes::from(vec![b' '; 1 << 20]);
        let frames = stream::iter((0..chunks).map(move |_| Ok(Frame::data(chunk.clone()))));
        StreamBody::new(frames.chain(stream::pending()))
    }

    fn full_body(length: usize) -> Full<Bytes> {
        Full::new(Bytes::from(vec![b' '; length]))
    }

    #[tokio::test]
    async fn limits_the_size() {
        let budget = BodyBudget::default();
        let largest = budget.read(full_body(LIMITS.max_bytes)).await;
        assert_eq!(largest.map(|body| body.bytes().len()).ok(), Some(LIMITS.max_bytes));
        let declared = budget.read(full_body(LIMITS.max_bytes + 1)).await.err().unwrap();
        let streamed = budget.read(stalled_body(33)).await.err().unwrap();
        assert_eq!([declared.status.as_u16(), streamed.status.as_u16()], [413, 413]);
    }

    #[tokio::test(start_paused = true)]
    async fn limits_the_time() {
        let error = BodyBudget::default().read(stalled_body(1)).await.err().unwrap();
        assert_eq!(error.status, 408);
    }

    #[tokio::test(start_paused = true)]
    async fn limits_the_total_memory() {
        let budget = BodyBudget::default();
        let (mut first, mut second) = (Box::pin(budget.read(stalled_body(5))), Box::pin(budget.read(stalled_body(5))));
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
        let mut small = Box::pin(budget.read(full_body(2)));
        assert!(futures::poll!(&mut small).is_pending(), "the budget is exhausted");
        drop(first);
        let body = small.now_or_never().unwrap().ok().unwrap();
        assert_eq!(body.bytes(), b"  ");
    }

    #[tokio::test(start_paused = true)]
    async fn request_without_memory_is_rejected() {
        let (budget, start) = (BodyBudget::default(), Instant::now());
        let results = join_all((0..4).map(|_| budget.read(full_body(LIMITS.max_bytes)))).await;
        let statuses: Vec<_> =
            results.iter().map(|result| result.as_ref().map_err(|error| error.status.as_u16()).err()).collect();
        assert_eq!(statuses, [None, None, Some(503), Some(503)]);
        assert_eq!(start.elapsed(), LIMITS.memory_timeout);
    }
}
