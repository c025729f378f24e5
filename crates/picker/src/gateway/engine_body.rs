//! Body of an engine's response, which fails if the engine stops sending.

use std::{
    future::Future as _,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    net::TcpStream,
    time::{Instant, Sleep, sleep_until, timeout},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Maximum time between two chunks of a body.
const STALL_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Time without a chunk of an event stream after which the gateway checks whether the engine accepts connections. vLLM closes
/// its listener on SIGTERM and sends nothing more on open streams, until it is killed. Engines that complete their streams
/// before they end send tokens in this time.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Timeout of this check.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// A body with a limited time between chunks.
pub(super) struct EngineBody<B> {
    body: B,
    /// Address of an engine that sends an event stream.
    event_source: Option<SocketAddr>,
    last_frame: Instant,
    /// When the body must be complete.
    deadline: Option<Instant>,
    /// Cancelled when the Pod of the engine is deleted.
    pod_deleted: CancellationToken,
    /// What ends the body early; `None` before the first wait. Most documents arrive with the head of their response.
    limits: Option<Limits>,
    /// Checks whether the engine refuses connections.
    probe: Option<Pin<Box<dyn Future<Output = bool> + Send>>>,
}

/// What ends a body early.
struct Limits {
    /// Elapses when the time since the last frame, or since an earlier one, has to be checked. It is reset only when it elapses,
    /// since that is cheaper than for each token.
    timer: Pin<Box<Sleep>>,
    /// Completes when the Pod of the engine is deleted.
    pod_deleted: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Elapses at the deadline.
    deadline: Option<Pin<Box<Sleep>>>,
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
    /// The engine sends nothing and accepts no connections.
    #[error("the engine stopped")]
    Stopped,
    /// The Pod of the engine was deleted.
    #[error("the Pod was deleted")]
    PodDeleted,
    /// The request took longer than its HTTPRoute permits.
    #[error("the timeout of the HTTPRoute elapsed")]
    DeadlineExceeded,
}

// === impl EngineBody ===

impl<B> EngineBody<B> {
    /// Returns `body` with the limit. `event_source` is the address of the engine if it sends an event stream. The body fails
    /// when `pod_deleted` is cancelled, and at `deadline`.
    pub(super) fn new(
        body: B,
        event_source: Option<SocketAddr>,
        pod_deleted: CancellationToken,
        deadline: Option<Instant>,
    ) -> Self {
        Self { body, event_source, last_frame: Instant::now(), deadline, pod_deleted, limits: None, probe: None }
    }

    /// Waits until nothing has arrived for [`STALL_TIMEOUT`], or until the engine has stopped.
    fn poll_failed(&mut self, context: &mut Context<'_>) -> Poll<EngineBodyError> {
        let interval = self.event_source.map_or(STALL_TIMEOUT, |_| PROBE_INTERVAL);
        let limits = self.limits.get_or_insert_with(|| Limits {
            timer: Box::pin(sleep_until(self.last_frame + interval)),
            pod_deleted: Box::pin(self.pod_deleted.clone().cancelled_owned()),
            deadline: self.deadline.map(|deadline| Box::pin(sleep_until(deadline))),
        });
        if limits.pod_deleted.as_mut().poll(context).is_ready() {
            return Poll::Ready(EngineBodyError::PodDeleted);
        }
        if limits.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(context).is_ready()) {
            return Poll::Ready(EngineBodyError::DeadlineExceeded);
        }
        loop {
            if let Some(probe) = &mut self.probe {
                let is_refused = ready!(probe.as_mut().poll(context));
                self.probe = None;
                if is_refused {
                    return Poll::Ready(EngineBodyError::Stopped);
                }
            }
            ready!(limits.timer.as_mut().poll(context));
            let now = Instant::now();
            if self.last_frame + STALL_TIMEOUT <= now {
                return Poll::Ready(EngineBodyError::Stalled);
            }
            let is_silent = self.last_frame + interval <= now;
            limits.timer.as_mut().reset(if is_silent { now } else { self.last_frame } + interval);
            self.probe = self.event_source.filter(|_| is_silent).map(|address| Box::pin(is_refused(address)) as _);
        }
    }
}

/// Returns whether `address` refuses connections.
async fn is_refused(address: SocketAddr) -> bool {
    let result = timeout(PROBE_TIMEOUT, TcpStream::connect(address)).await;
    matches!(result, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused)
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
            (self.last_frame, self.probe) = (Instant::now(), None);
            if frame.is_some() && self.deadline.is_some_and(|deadline| deadline <= self.last_frame) {
                return Poll::Ready(Some(Err(EngineBodyError::DeadlineExceeded)));
            }
            return Poll::Ready(frame.map(|frame| Ok(frame?)));
        }
        self.poll_failed(context).map(|error| Some(Err(error)))
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
    use futures::{StreamExt as _, stream};
    use http_body_util::{BodyExt as _, StreamBody};
    use rstest::rstest;
    use tokio::{net::TcpSocket, time::sleep};

    use super::*;

    /// The kernel accepts connections to the engine, if it has an address.
    #[rstest]
    #[case::document(false)]
    #[case::event_stream(true)]
    #[tokio::test(start_paused = true)]
    async fn fails_after_ten_minutes_of_silence_only(#[case] is_event_stream: bool) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let event_source = is_event_stream.then(|| listener.local_addr().unwrap());
        let tokens = stream::repeat(Bytes::from_static(b"token")).take(4).then(|token| async {
            sleep(Duration::from_secs(9 * 60)).await;
            Ok::<_, hyper::Error>(Frame::data(token))
        });
        let frames = StreamBody::new(tokens.chain(stream::pending()).boxed());
        let mut body = EngineBody::new(frames, event_source, CancellationToken::new(), None);
        let start = Instant::now();
        for _ in 0..4 {
            body.frame().await.unwrap().unwrap();
        }
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the engine sent nothing for 10 min");
        assert_eq!(start.elapsed(), Duration::from_secs((4 * 9 + 10) * 60));
    }

    #[rstest]
    #[case::silent(1000)]
    #[case::sending(1)]
    #[tokio::test(start_paused = true)]
    async fn fails_at_the_deadline(#[case] interval: u64) {
        let tokens = stream::repeat(Bytes::from_static(b"token")).then(move |token| async move {
            sleep(Duration::from_secs(interval)).await;
            Ok::<_, hyper::Error>(Frame::data(token))
        });
        let deadline = Instant::now() + Duration::from_secs(30);
        let body = StreamBody::new(tokens.boxed());
        let body = EngineBody::new(body, None, CancellationToken::new(), Some(deadline));
        let error = body.collect().await.unwrap_err();
        assert_eq!(error.to_string(), "the timeout of the HTTPRoute elapsed");
        assert_eq!(Instant::now(), deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn fails_when_the_pod_is_deleted() {
        let (frames, pod_deleted) = (stream::pending::<Result<Frame<Bytes>, hyper::Error>>(), CancellationToken::new());
        let mut body = EngineBody::new(StreamBody::new(frames), None, pod_deleted.clone(), None);
        let start = Instant::now();
        let (frame, ()) = tokio::join!(body.frame(), async {
            sleep(Duration::from_secs(20)).await;
            pod_deleted.cancel();
        });
        let error = frame.unwrap().unwrap_err();
        assert_eq!((error.to_string().as_str(), start.elapsed().as_secs()), ("the Pod was deleted", 20));
    }

    #[tokio::test(start_paused = true)]
    async fn fails_soon_after_the_engine_stopped() {
        let engine = TcpSocket::new_v4().unwrap();
        engine.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let frames = stream::iter([Ok::<_, hyper::Error>(Frame::data(Bytes::from_static(b"token")))]);
        let event_source = Some(engine.local_addr().unwrap());
        let frames = StreamBody::new(frames.chain(stream::pending()).boxed());
        let mut body = EngineBody::new(frames, event_source, CancellationToken::new(), None);
        let start = Instant::now();
        body.frame().await.unwrap().unwrap();
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!((error.to_string().as_str(), start.elapsed().as_secs()), ("the engine stopped", 5));
    }
}
