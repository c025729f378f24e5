//! Reads request bodies within limits of size, time and total memory. vLLM has no such limits; these keep one process that
//! simulates many engines responsive.

use std::{sync::Arc, time::Duration};

use axum::body::{Bytes, HttpBody};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::api_error::ApiError;

/// Maximum size of a body in bytes, as in the gateway.
const MAX_BODY_BYTES: usize = 32 << 20;

/// Maximum total size in bytes of the bodies that one engine reads and parses at the same time. Requests with further
/// bodies wait, before anything of their body is read.
const MAX_BUFFERED_BYTES: usize = 2 * MAX_BODY_BYTES;

/// Maximum time until a body is complete.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Unit of the memory budget in bytes.
const PERMIT_BYTES: usize = 1 << 10;

/// The memory budget for the bodies of one engine.
pub(crate) struct BodyBudget(Arc<Semaphore>);

/// A complete body. Its memory counts towards the budget until the value is dropped.
pub(crate) struct RequestBody {
    /// The bytes of the body.
    pub(crate) bytes: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Default for BodyBudget {
    /// Returns the unused budget.
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_BUFFERED_BYTES / PERMIT_BYTES)))
    }
}

// === impl BodyBudget ===

impl BodyBudget {
    /// Reads `body`. A body of unknown length counts as one of the maximum size.
    ///
    /// # Errors
    /// 413 for a body that is too large, 408 for one that is not complete in time, 400 for one that ends early.
    pub(crate) async fn read<B>(&self, body: B) -> Result<RequestBody, ApiError>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let size = body.size_hint();
        let expected = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        if expected(size.lower()) > MAX_BODY_BYTES {
            return Err(ApiError::body_too_large(MAX_BODY_BYTES));
        }
        let budget = expected(size.upper().unwrap_or(u64::MAX)).min(MAX_BODY_BYTES).div_ceil(PERMIT_BYTES);
        // The semaphore is never closed, so acquiring permits does not fail.
        let permit = Arc::clone(&self.0).acquire_many_owned(u32::try_from(budget).unwrap_or(u32::MAX)).await.ok();
        let collected = timeout(READ_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await;
        match collected.map_err(|_| ApiError::body_timeout())? {
            Ok(body) => Ok(RequestBody { bytes: body.to_bytes(), _permit: permit }),
            Err(error) if error.is::<LengthLimitError>() => Err(ApiError::body_too_large(MAX_BODY_BYTES)),
            Err(_) => Err(ApiError::incomplete_body()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{FutureExt, StreamExt, stream};
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    /// Returns a body of unknown length: `chunks` chunks of 1 MiB, then nothing until the client sends more.
    fn stalled_body(chunks: usize) -> impl HttpBody<Data = Bytes, Error = Infallible> + Unpin {
        let chunk = Bytes::from(vec![b' '; 1 << 20]);
        let frames = stream::iter((0..chunks).map(move |_| Ok(Frame::data(chunk.clone()))));
        StreamBody::new(frames.chain(stream::pending()))
    }

    #[tokio::test]
    async fn limits_the_size() {
        let budget = BodyBudget::default();
        let body = |length: usize| Full::new(Bytes::from(vec![b' '; length]));
        assert_eq!(budget.read(body(MAX_BODY_BYTES)).await.map(|body| body.bytes.len()).ok(), Some(MAX_BODY_BYTES));
        let declared = budget.read(body(MAX_BODY_BYTES + 1)).await.err().unwrap();
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
        let (mut first, mut second) = (Box::pin(budget.read(stalled_body(1))), Box::pin(budget.read(stalled_body(1))));
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
        let mut small = Box::pin(budget.read(Full::new(Bytes::from_static(b"{}"))));
        assert!(futures::poll!(&mut small).is_pending(), "the budget is exhausted");
        drop(first);
        let body = small.now_or_never().unwrap().ok().unwrap();
        assert_eq!(&body.bytes[..], b"{}");
    }
}
