//! One connection after the TLS handshake: serves its requests, and closes it when it is idle.
//!
//! A connection is idle while no request is in progress; a request is in progress until its response is complete, so a
//! watch is never idle. A request is in progress only once its header is complete: a client that sends nothing, or only a
//! part of a header, is idle as well.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tower::Service;

/// Time limit for the first request after the TLS handshake.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which an idle connection is closed. kube-apiserver and the connection pools of its clients use the same
/// limit: a shorter one would close connections that clients are about to reuse.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Time for closing an idle connection in an orderly manner: an HTTP/2 client first learns which of its requests were
/// accepted.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Requests in progress on a connection.
struct Requests {
    in_progress: usize,
    /// Time since which no request has been in progress.
    idle_since: Instant,
    idle_timeout: Duration,
}

/// The requests of a connection, shared by the connection and its responses.
#[derive(Clone)]
struct SharedRequests(Arc<Mutex<Requests>>);

/// A request in progress, until this value is dropped.
struct RequestInProgress(SharedRequests);

/// The service of one connection.
#[derive(Clone)]
struct ConnectionService {
    router: Router,
    requests: SharedRequests,
}

/// The body of a response; the request is in progress until the body is dropped.
struct ResponseBody {
    body: Body,
    _request: RequestInProgress,
}

/// Serves the requests of a connection until the client closes it or it has been idle for too long.
pub(super) async fn serve(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, router: Router) {
    let requests = SharedRequests::new();
    let service = TowerToHyperService::new(ConnectionService { router, requests: requests.clone() });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // The idle timeout includes the header of a request; hyper's own timeout for headers would also apply between requests.
    builder.http1().header_read_timeout(None);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = requests.idle() => {
            tracing::debug!("closing an idle connection");
            connection.as_mut().graceful_shutdown();
            requests.set_idle_timeout(CLOSE_TIMEOUT);
            tokio::select! {
                result = connection => result,
                () = requests.idle() => return,
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection closed with an error");
    }
}

// === impl Requests ===

impl Requests {
    /// Returns the earliest time at which the connection can have been idle for too long.
    fn idle_deadline(&self, now: Instant) -> Instant {
        let idle_since = if self.in_progress == 0 { self.idle_since } else { now };
        idle_since + self.idle_timeout
    }
}

// === impl SharedRequests ===

impl SharedRequests {
    fn new() -> Self {
        let (idle_since, idle_timeout) = (Instant::now(), FIRST_REQUEST_TIMEOUT);
        Self(Arc::new(Mutex::new(Requests { in_progress: 0, idle_since, idle_timeout })))
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> RequestInProgress {
        let mut requests = self.lock();
        requests.in_progress += 1;
        requests.idle_timeout = IDLE_TIMEOUT;
        RequestInProgress(self.clone())
    }

    fn set_idle_timeout(&self, timeout: Duration) {
        let mut requests = self.lock();
        (requests.idle_since, requests.idle_timeout) = (Instant::now(), timeout);
    }

    /// Waits until the connection has been idle for too long. Requests do not wake this task, so that it costs them
    /// nothing: it looks again when the connection could have been idle for too long.
    async fn idle(&self) {
        loop {
            let now = Instant::now();
            let deadline = self.lock().idle_deadline(now);
            if deadline <= now {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }
}

// === impl RequestInProgress ===

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        let mut requests = self.0.lock();
        requests.in_progress -= 1;
        requests.idle_since = Instant::now();
    }
}

// === impl ConnectionService ===

impl<B> Service<Request<B>> for ConnectionService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<B>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let in_progress = self.requests.start();
        let response = self.router.call(request);
        response.map(|response| Ok(response?.map(|body| ResponseBody { body, _request: in_progress }))).boxed()
    }
}

// === impl ResponseBody ===

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
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
    use axum::routing::get;
    use futures::stream;
    use rstest::rstest;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    const REQUEST: &[u8] = b"GET /once HTTP/1.1\r\nHost: localhost\r\n\r\n";

    /// Serves `/once`, and `/watch`, whose response does not end.
    fn connect() -> DuplexStream {
        let watch = || async { Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()) };
        let router = Router::new().route("/once", get(|| async { "ok" })).route("/watch", get(watch));
        let (client, server) = tokio::io::duplex(1024);
        tokio::spawn(serve(server, router));
        client
    }

    /// Reads until the server closes the connection, and returns the seconds until then.
    async fn seconds_until_closed(client: &mut DuplexStream) -> u64 {
        let start = Instant::now();
        let mut received = Vec::new();
        // A reset counts as closed.
        let _ = client.read_to_end(&mut received).await;
        start.elapsed().as_secs()
    }

    #[rstest]
    #[case::nothing(b"", 10)]
    #[case::half_header(b"GET /once HTTP/1.1\r\nHost: local", 10)]
    #[case::half_preface(b"PRI * HTTP/2.0\r\n", 10)]
    #[case::preface(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 10)]
    #[case::one_request(REQUEST, 90)]
    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_closed(#[case] sent: &[u8], #[case] limit: u64) {
        let mut client = connect();
        client.write_all(sent).await.unwrap();
        let seconds = seconds_until_closed(&mut client).await;
        // Closing takes up to five seconds if the client has sent a part of a request.
        assert!((limit..=limit + 5).contains(&seconds), "{seconds}");
    }

    #[tokio::test(start_paused = true)]
    async fn every_request_extends_the_idle_time() {
        let mut client = connect();
        for _ in 0..5 {
            client.write_all(REQUEST).await.unwrap();
            let mut received = [0; 1024];
            assert!(client.read(&mut received).await.unwrap() > 0);
            tokio::time::sleep(IDLE_TIMEOUT - Duration::from_secs(1)).await;
        }
        assert_eq!(seconds_until_closed(&mut client).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn watch_is_not_idle() {
        let mut client = connect();
        client.write_all(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let hours = Duration::from_secs(4 * 3600);
        assert!(tokio::time::timeout(hours, seconds_until_closed(&mut client)).await.is_err());
    }
}
