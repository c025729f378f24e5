//! Ends HTTP/2 streams whose client does not read the response. The other streams of the connection continue: clients such
//! as Envoy and client-go send all their requests over one connection.
//!
//! hyper takes a piece of a body, waits until the client's windows have capacity for a part of it, passes it to the connection,
//! and then asks for the next piece. While it waits, it does not poll the body, so the task of the stream measures the time
//! since the connection sent anything.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::{Instant, Sleep, sleep_until};

/// Maximum size of a piece in bytes: the default maximum size of an HTTP/2 frame. The buffers of the connection contain a part
/// of one piece per stream that the client does not read, instead of a complete response.
const PIECE_BYTES: usize = 16 * 1024;

tokio::task_local! {
    /// Progress of the stream that this task serves; not set for HTTP/1.
    static PROGRESS: Arc<StreamProgress>;
}

/// Runs each stream of an HTTP/2 connection as a task, which ends when the client has not read for `stall_timeout`. The end
/// drops the response and resets the stream with `CANCEL`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamExecutor {
    /// How long a client may not read.
    pub(crate) stall_timeout: Duration,
}

/// A body whose pieces report the progress of their stream. Bodies of HTTP/1 are not divided.
#[derive(Debug)]
pub(crate) struct StreamBody<B> {
    body: B,
    /// Data of `body` that was not taken yet.
    rest: Bytes,
}

/// Data of a body.
#[derive(Debug)]
pub(crate) struct Piece {
    bytes: Bytes,
    progress: Option<Arc<StreamProgress>>,
}

/// How far the client has read a stream.
#[derive(Debug, Default)]
struct StreamProgress {
    /// When the client read last, or else when hyper received the piece that waits; `None` if none waits.
    unread_since: Mutex<Option<Instant>>,
}

/// Waits until a piece has waited for `limit` without progress.
async fn wait_until_stalled(progress: &StreamProgress, limit: Duration) {
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|context| {
        loop {
            let unread_since = *progress.unread_since();
            let Some(end) = unread_since.and_then(|since| since.checked_add(limit)) else { return Poll::Pending };
            // The timer of an earlier piece is extended only when it elapses: there are many pieces.
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
            ready!(timer.as_mut().poll(context));
            if timer.deadline() >= end {
                return Poll::Ready(());
            }
            timer.as_mut().reset(end);
        }
    })
    .await;
}

// === impl StreamExecutor ===

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        let (limit, progress) = (self.stall_timeout, Arc::<StreamProgress>::default());
        tokio::spawn(PROGRESS.scope(Arc::clone(&progress), async move {
            tokio::select! {
                biased;
                () = stream => {}
                () = wait_until_stalled(&progress, limit) => {
                    tracing::debug!(?limit, "reset a stream that the client does not read");
                }
            }
        }));
    }
}

// === impl StreamBody ===

impl<B> StreamBody<B> {
    /// Returns `body`, of which nothing has been taken.
    pub(crate) fn new(body: B) -> Self {
        Self { body, rest: Bytes::new() }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for StreamBody<B> {
    type Data = Piece;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, B::Error>>> {
        let progress = PROGRESS.try_with(Arc::clone).ok();
        if let Some(progress) = &progress {
            *progress.unread_since() = None;
        }
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            let Some(frame) = frame.transpose()? else { return Poll::Ready(None) };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                // Trailers, which need no capacity.
                Err(frame) => {
                    return Poll::Ready(frame.into_trailers().ok().map(|trailers| Ok(Frame::trailers(trailers))));
                }
            }
        }
        let mut length = self.rest.len();
        if let Some(progress) = &progress {
            *progress.unread_since() = Some(Instant::now());
            length = length.min(PIECE_BYTES);
        }
        Poll::Ready(Some(Ok(Frame::data(Piece { bytes: self.rest.split_to(length), progress }))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(rest));
        if let Some(upper) = body.upper().and_then(|upper| upper.checked_add(rest)) {
            hint.set_upper(upper);
        }
        hint
    }
}

// === impl Piece ===

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    /// The connection sends `count` bytes.
    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(progress) = &self.progress
            && let Some(unread_since) = progress.unread_since().as_mut()
        {
            *unread_since = Instant::now();
        }
    }
}

// === impl StreamProgress ===

impl StreamProgress {
    fn unread_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.unread_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
