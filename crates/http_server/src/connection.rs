//! Serves HTTP on one connection within its limits.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::activity::{ActiveRequest, ConnectionActivity};
use crate::client_stream::{ClientHalf, ClientStream, ErrorBody};
use crate::stream_timeout::{Piece, StreamBody, StreamExecutor};
use crate::write_timeout::WriteTimeout;

/// How long the client of an idle connection may take to close it, before the server does.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Limits of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum time until the first request; at most `idle_timeout`.
    pub first_request_timeout: Duration,
    /// Maximum time without a request in progress, and maximum time for the headers of a request.
    pub idle_timeout: Duration,
    /// Maximum time in which the client receives nothing although data is ready, on the connection or on one HTTP/2 stream,
    /// and maximum time for the reply to an HTTP/2 ping.
    pub stall_timeout: Duration,
    /// Maximum size of the headers of a request in bytes; larger ones are rejected with 431.
    pub max_header_bytes: u32,
    /// Maximum number of concurrent requests of an HTTP/2 connection.
    pub max_concurrent_requests: u32,
}

/// How a connection is served.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionOptions {
    /// Limits of the connection.
    pub limits: ConnectionLimits,
    /// Returns the body of responses to HTTP/1 requests that cannot be parsed: 400, 414 or 431. Without it, they have none.
    pub error_body: Option<ErrorBody>,
    /// Whether a client of HTTP/1.1 may end its half of the connection after a request and still receive the response. Otherwise, the
    /// end of its half counts as a disconnect.
    pub accepts_half_close: bool,
}

/// Body of a response. The request counts as active until the body is sent.
struct ActiveBody<B> {
    body: StreamBody<B>,
    active: ActiveRequest,
}

// === impl ConnectionLimits ===

impl Default for ConnectionLimits {
    /// Returns limits for clients that send few and small requests: one minute, 64 KiB of headers, 256 requests.
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            first_request_timeout: minute,
            idle_timeout: minute,
            stall_timeout: minute,
            max_header_bytes: 64 * 1024,
            max_concurrent_requests: 256,
        }
    }
}

impl From<ConnectionLimits> for ConnectionOptions {
    fn from(limits: ConnectionLimits) -> Self {
        Self { limits, ..Self::default() }
    }
}

/// Serves HTTP/1.1 or HTTP/2 on `stream` until the client closes it, it exceeds a limit, or `shutdown`. Requests in
/// progress are completed after a shutdown; the caller limits how long that may take.
///
/// A request whose client closes the connection is dropped. If clients may end their half of the connection, the service must have
/// recorded with [`RequestProgress`](crate::RequestProgress), an extension of the request, that it has received the request;
/// requests without a body are complete when they begin.
pub async fn serve_connection<S, B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: S,
    options: impl Into<ConnectionOptions>,
    shutdown: CancellationToken,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let options = options.into();
    let limits = options.limits;
    let activity = ConnectionActivity::new();
    let service = service_fn(|mut request: Request<Incoming>| {
        let active = activity.begin_request(request.version());
        match active.progress().filter(|_| options.accepts_half_close) {
            Some(progress) if request.body().is_end_stream() => progress.record_received(),
            Some(progress) => drop(request.extensions_mut().insert(progress)),
            None => {}
        }
        let response = service.call(request);
        async move {
            let response = response.await?;
            active.record_response();
            Ok::<_, S::Error>(response.map(|body| ActiveBody { body: StreamBody::new(body), active }))
        }
    });
    let stream = WriteTimeout::new(stream, limits.stall_timeout);
    let client_half = options.accepts_half_close.then(ClientHalf::default);
    let stream = TokioIo::new(ClientStream::new(stream, Arc::clone(&activity), options.error_body, client_half));
    let builder = builder(options);
    let mut connection = pin!(builder.serve_connection(stream, service));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = wait_until_too_idle(&activity, limits) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                result = connection => result,
                () = wait_until_closed(&activity) => Ok(()),
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection failed");
    }
}

fn builder(ConnectionOptions { limits, accepts_half_close, .. }: ConnectionOptions) -> Builder<StreamExecutor> {
    let mut builder = Builder::new(StreamExecutor { stall_timeout: limits.stall_timeout });
    let (timeout, max_header_bytes) = (limits.idle_timeout, limits.max_header_bytes);
    let buffer_size = usize::try_from(max_header_bytes).unwrap_or(usize::MAX);
    let mut http1 = builder.http1();
    http1
        .half_close(accepts_half_close)
        .timer(TokioTimer::new())
        .header_read_timeout(timeout)
        .max_buf_size(buffer_size);
    let mut http2 = builder.http2();
    let timeout = limits.stall_timeout;
    http2.timer(TokioTimer::new()).keep_alive_interval(timeout / 2).keep_alive_timeout(timeout);
    http2.max_header_list_size(max_header_bytes).max_concurrent_streams(limits.max_concurrent_requests);
    builder
}

/// Waits until the connection has been without a request for too long.
async fn wait_until_too_idle(activity: &Arc<ConnectionActivity>, limits: ConnectionLimits) {
    activity.wait_until_idle(limits.first_request_timeout).await;
    if activity.has_received_request() {
        activity.wait_until_idle(limits.idle_timeout).await;
    }
}

/// Waits until the client has had time to close an idle connection. It may ignore the GOAWAY frame, or may have sent a
/// request before it received the frame.
async fn wait_until_closed(activity: &Arc<ConnectionActivity>) {
    sleep(CLOSE_TIMEOUT).await;
    activity.wait_until_idle(CLOSE_TIMEOUT).await;
}

// === impl ActiveBody ===

impl<B: Body<Data = Bytes> + Unpin> Body for ActiveBody<B> {
    type Data = Piece;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, B::Error>>> {
        self.active.record_output();
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
    use super::*;
    use std::convert::Infallible;

    use futures::stream;
    use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::sync::{mpsc, oneshot};
    use tokio::time::Instant;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        first_request_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(60),
        stall_timeout: Duration::from_secs(60),
        max_header_bytes: 64 * 1024,
        max_concurrent_requests: 8,
    };

    /// Starts a server whose responses contain `length` bytes and returns the client's end of a connection.
    fn connect(length: usize) -> DuplexStream {
        let (client, server) = duplex(64);
        let service = service_fn(move |_| async move {
            sleep(Duration::from_secs(300)).await;
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![b'a'; length]))))
        });
        tokio::spawn(serve_connection(server, service, LIMITS, CancellationToken::new()));
        client
    }

    /// Reads until the server closes the connection; returns the text and the elapsed seconds.
    async fn read_to_end(client: &mut DuplexStream) -> (String, u64) {
        let (start, mut bytes) = (Instant::now(), Vec::new());
        client.read_to_end(&mut bytes).await.ok();
        (String::from_utf8_lossy(&bytes).into_owned(), start.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn closes_connection_without_a_byte() {
        let (text, seconds) = read_to_end(&mut connect(1)).await;
        assert!(text.is_empty() && (60..=70).contains(&seconds), "{seconds} s: {text}");
    }

    #[tokio::test(start_paused = true)]
    async fn closes_connection_with_slow_headers() {
        let mut client = connect(1);
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        let (_, seconds) = read_to_end(&mut client).await;
        assert!((60..=70).contains(&seconds), "{seconds} s");
    }

    #[tokio::test(start_paused = true)]
    async fn closes_http2_connection_without_request() {
        let mut client = connect(1);
        // Preface and empty SETTINGS frame; the client does not reply to pings.
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let (_, seconds) = read_to_end(&mut client).await;
        assert!((60..=100).contains(&seconds), "{seconds} s");
    }

    /// The request takes five minutes, longer than a connection may be idle.
    #[tokio::test(start_paused = true)]
    async fn completes_slow_requests() {
        let mut client = connect(3);
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let (text, seconds) = read_to_end(&mut client).await;
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("aaa"), "{text}");
        assert!((360..=370).contains(&seconds), "{seconds} s");
    }

    #[tokio::test(start_paused = true)]
    async fn closes_connection_of_client_that_does_not_read() {
        let mut client = connect(1 << 20);
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        sleep(Duration::from_secs(300 + 120)).await;
        let (text, _) = read_to_end(&mut client).await;
        assert!(text.len() < 1000, "{}", text.len());
    }

    /// Responds to `/watch` with an event after ten minutes. Responds to other paths with data without end, and returns a
    /// receiver through `bodies` that ends when such a body is dropped.
    async fn respond(
        request: Request<Incoming>,
        bodies: mpsc::UnboundedSender<oneshot::Receiver<()>>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
        let frame = |length| Ok(Frame::data(Bytes::from(vec![b'a'; length])));
        let body = if request.uri().path() == "/watch" {
            StreamBody::new(stream::once(async move {
                sleep(Duration::from_secs(600)).await;
                frame(1)
            }))
            .boxed_unsync()
        } else {
            let (alive, dropped) = oneshot::channel::<()>();
            bodies.send(dropped).unwrap();
            let chunks = stream::repeat_with(move || {
                assert!(!alive.is_closed());
                frame(100_000)
            });
            StreamBody::new(chunks).boxed_unsync()
        };
        Ok(Response::new(body))
    }

    /// The client replies to pings. Its windows are no multiple of a piece, so parts of pieces remain in the server.
    #[tokio::test(start_paused = true)]
    async fn http2_stream_that_is_not_read_is_reset() {
        let (client, server) = duplex(1 << 20);
        let (bodies, mut dropped_bodies) = mpsc::unbounded_channel();
        let service = service_fn(move |request| respond(request, bodies.clone()));
        tokio::spawn(serve_connection(server, service, LIMITS, CancellationToken::new()));
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(40_000).initial_connection_window_size(1 << 20);
        let (client, connection) = builder.handshake::<_, Bytes>(client).await.unwrap();
        tokio::spawn(connection);
        let start = Instant::now();
        let get = async |path: &str| {
            let request = Request::get(format!("http://localhost{path}")).body(()).unwrap();
            let response = client.clone().ready().await.unwrap().send_request(request, true).unwrap().0;
            response.await.unwrap().into_body()
        };
        let (mut unread, mut slow, mut watch) = (get("/unread").await, get("/slow").await, get("/watch").await);
        let (dropped, mut slow_dropped) = (dropped_bodies.recv().await.unwrap(), dropped_bodies.recv().await.unwrap());

        // The server receives window updates for half of a window at a time, at least every 45 seconds.
        let read_slowly = async {
            for _ in 0..50 {
                sleep(Duration::from_secs(15)).await;
                let data = slow.data().await.unwrap().unwrap();
                slow.flow_control().release_capacity(data.len()).unwrap();
            }
            assert_eq!(slow_dropped.try_recv(), Err(oneshot::error::TryRecvError::Empty), "the client reads");
        };
        let wait_until_dropped = async {
            assert!(dropped.await.is_err());
            start.elapsed().as_secs()
        };
        let ((), seconds) = tokio::join!(read_slowly, wait_until_dropped);
        assert!((60..=61).contains(&seconds), "{seconds} s");
        let mut received = 0;
        let error = loop {
            match unread.data().await.unwrap() {
                Ok(data) => received += data.len(),
                Err(error) => break error,
            }
        };
        assert_eq!((received, error.reason(), error.is_remote()), (40_000, Some(h2::Reason::CANCEL), true));
        assert_eq!(watch.data().await.unwrap().unwrap().len(), 1);
    }

    /// Returns an HTTP/2 connection to a server that never responds, and the number of requests in progress.
    async fn connect_http2() -> (h2::client::SendRequest<Bytes>, Arc<()>) {
        let (client, server) = duplex(1 << 20);
        let requests = Arc::new(());
        let request = Arc::clone(&requests);
        let service = service_fn(move |_| {
            let request = Arc::clone(&request);
            async move {
                let _request = request;
                std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>().await
            }
        });
        tokio::spawn(serve_connection(server, service, LIMITS, CancellationToken::new()));
        let (client, connection) = h2::client::handshake(client).await.unwrap();
        tokio::spawn(connection);
        (client, requests)
    }

    /// The client resets each request after it was sent (CVE-2023-44487).
    #[tokio::test(start_paused = true)]
    async fn http2_client_that_resets_its_requests_occupies_no_more_than_others() {
        let (client, requests) = connect_http2().await;
        for _ in 0..10_000 {
            // The server may close the connection.
            let Ok(mut client) = client.clone().ready().await else { break };
            let request = Request::get("http://localhost/").body(()).unwrap();
            let Ok((response, _)) = client.send_request(request, true) else { break };
            tokio::task::yield_now().await;
            drop(response);
            // One reference is the test's, one the service's.
            assert!(Arc::strong_count(&requests) <= 2 + LIMITS.max_concurrent_requests as usize);
        }
        sleep(Duration::from_secs(1)).await;
        assert!(Arc::strong_count(&requests) <= 2, "nothing remains of the requests");
    }

    #[tokio::test(start_paused = true)]
    async fn http2_headers_are_limited() {
        let (client, requests) = connect_http2().await;
        let mut request = Request::get("http://localhost/").body(()).unwrap();
        for index in 0..20 {
            let name = http::HeaderName::try_from(format!("x-{index}")).unwrap();
            request.headers_mut().insert(name, http::HeaderValue::try_from("v".repeat(4096)).unwrap());
        }
        let response = client.ready().await.unwrap().send_request(request, true).unwrap().0.await;
        assert_eq!(response.map(|response| response.status().as_u16()).map_err(|error| error.is_remote()), Ok(431));
        assert_eq!(Arc::strong_count(&requests), 2, "the service does not receive the request");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_of_shutdown_closes_at_once() {
        let (mut client, server) = duplex(64);
        let shutdown = CancellationToken::new();
        let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) });
        tokio::spawn(serve_connection(server, service, LIMITS, shutdown.clone()));
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut start = [0; 12];
        client.read_exact(&mut start).await.unwrap();
        shutdown.cancel();
        assert_eq!(read_to_end(&mut client).await.1, 0);
    }
}
