//! Body of an engine's response, which fails if the engine stops sending.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

/// Maximum time between two chunks of a body.
const STALL_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// A body with a limited time between chunks.
#[derive(Debug)]
pub(super) struct EngineBody<B> {
    body: B,
    last_frame: Instant,
    /// Elapses [`STALL_TIMEOUT`] after the last frame or an earlier one. It is reset only when it elapses, since that is
    /// cheaper than for each token.
    stall_timer: Pin<Box<Sleep>>,
}

/// Why a response ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineBodyError {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    /// The engine sent nothing for too long.
    #[error("the engine sent nothing for {} min", STALL_TIMEOUT.as_secs() / 60)]
    Stalled,
}

// === impl EngineBody ===

impl<B> EngineBody<B> {
    /// Returns `body` with the limit.
    pub(super) fn new(body: B) -> Self {
        Self { body, last_frame: Instant::now(), stall_timer: Box::pin(sleep(STALL_TIMEOUT)) }
    }

    /// Waits until nothing has arrived for [`STALL_TIMEOUT`].
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.stall_timer.as_mut().poll(context).is_ready() {
            let deadline = self.last_frame + STALL_TIMEOUT;
            if deadline <= Instant::now() {
                return Poll::Ready(());
            }
            self.stall_timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for EngineBody<B>
where
    EngineBodyError: From<B::Error>,
{
    type Data = Bytes;
    type Error = EngineBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, EngineBodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.last_frame = Instant::now();
            return Poll::Ready(frame.map(|frame| Ok(frame?)));
        }
        self.poll_stalled(context).map(|()| Some(Err(EngineBodyError::Stalled)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt as _, stream};
    use http_body_util::{BodyExt as _, StreamBody};

    #[tokio::test(start_paused = true)]
    async fn fails_after_ten_minutes_of_silence_only() {
        let tokens = stream::repeat(Bytes::from_static(b"token")).take(4).then(|token| async {
            sleep(Duration::from_secs(9 * 60)).await;
            Ok::<_, hyper::Error>(Frame::data(token))
        });
        let mut body = EngineBody::new(StreamBody::new(tokens.chain(stream::pending()).boxed()));
        let start = Instant::now();
        for _ in 0..4 {
            body.frame().await.unwrap().unwrap();
        }
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the engine sent nothing for 10 min");
        assert_eq!(start.elapsed(), Duration::from_secs((4 * 9 + 10) * 60));
    }
}
