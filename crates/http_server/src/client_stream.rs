//! Stream of a client's connection. It gives the error responses of the HTTP library a body, and detects clients that close the
//! connection while they wait for a response. The library does not: a client may end its half of the connection after a request.

use std::future::Future as _;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::activity::{ConnectionActivity, RequestPhase};

/// Times between interim responses to a client that has ended its half of the connection. If it has closed the connection, its
/// host answers the first of them with a reset, which fails the next one. Some clients accept at most five.
const PROBE_DELAYS: [Duration; 3] = [Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(5)];

/// Interim response, which every client of HTTP/1.1 accepts (RFC 9110 §15.2).
const INTERIM_RESPONSE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Maximum number of bytes that are read while the client waits for a response.
const READ_AHEAD: usize = 256;

/// How long after the beginning of a response the end of the client's half of the connection may arrive. A client that ends it with
/// its request does so before, unless packets are delayed; a later end is that of a client that does not wait for the response.
const HALF_CLOSE_DELAY: Duration = Duration::from_secs(1);

/// How long and how much is read after an error response. Closing a connection with unread bytes resets it, and the client may
/// lose the response.
const LINGER: (Duration, usize) = (Duration::from_secs(2), 1 << 20);

/// Returns the body of an error response that the HTTP library sends instead of the service, for a request that it cannot parse.
pub type ErrorBody = fn(StatusCode) -> ErrorContent;

/// Body of an error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorContent {
    /// Value of `content-type`.
    pub content_type: &'static str,
    /// The bytes.
    pub bytes: Bytes,
}

/// A stream between the connection to a client and the HTTP library.
#[derive(Debug)]
pub(crate) struct ClientStream<S> {
    stream: S,
    activity: Arc<ConnectionActivity>,
    error_body: Option<ErrorBody>,
    /// The client's half of the connection; `None` if the library detects its end.
    client_half: Option<ClientHalf>,
    /// Bytes that are sent before those of the library.
    queued: Bytes,
    /// Whether the library has written since its last flush.
    is_unflushed: bool,
    /// Output of the service at the last flush.
    flushed_output: usize,
    /// Discards what the client sends after an error response.
    linger: Option<Linger>,
}

/// What is known of a client's half of the connection while a request is in progress.
#[derive(Debug, Default)]
pub(crate) struct ClientHalf {
    /// What the client has sent while it waits for a response: the beginning of its next request.
    received: BytesMut,
    /// Whether the client has ended it.
    has_ended: bool,
    /// When the first flush during the response was.
    responding_since: Option<Instant>,
    /// Checks whether the client has closed the connection after it has ended its half.
    probe: Probe,
}

/// Interim responses to a client that has ended its half of the connection.
#[derive(Debug, Default)]
struct Probe {
    /// Number of responses.
    sent: usize,
    /// Elapses when the next one is due; `None` before the first.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Limits of what is read after an error response.
#[derive(Debug)]
struct Linger {
    timer: Pin<Box<Sleep>>,
    remaining: usize,
}

// === impl ClientStream ===

impl<S> ClientStream<S> {
    /// Returns `stream`, on which a connection with this activity is served. Without `client_half`, the library detects clients that
    /// close the connection.
    pub(crate) fn new(
        stream: S,
        activity: Arc<ConnectionActivity>,
        error_body: Option<ErrorBody>,
        client_half: Option<ClientHalf>,
    ) -> Self {
        Self {
            stream,
            activity,
            error_body,
            client_half,
            queued: Bytes::new(),
            is_unflushed: false,
            flushed_output: 0,
            linger: None,
        }
    }

    /// Returns what is sent instead of `bytes`, if they are an error response of the library: it has no body, and the service
    /// has returned nothing since the last flush.
    fn error_response(&self, bytes: &[u8]) -> Option<Bytes> {
        let error_body = self.error_body?;
        if self.is_unflushed || self.activity.output() != self.flushed_output {
            return None;
        }
        let head = std::str::from_utf8(bytes).ok()?;
        let status =
            head.strip_prefix("HTTP/1.1 ").or_else(|| head.strip_prefix("HTTP/1.0 "))?.get(..3)?.parse().ok()?;
        let (start, end) = head.split_once("content-length: 0\r\n")?;
        let ErrorContent { content_type, bytes } = error_body(status);
        let head = format!("{start}content-type: {content_type}\r\ncontent-length: {}\r\n{end}", bytes.len());
        Some([head.as_bytes(), &bytes].concat().into())
    }
}

impl<S: AsyncWrite + Unpin> ClientStream<S> {
    /// Sends the bytes that precede those of the library.
    fn poll_queued(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.queued.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(context, &self.queued))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.queued.advance(count);
        }
        Poll::Ready(Ok(()))
    }

    /// Fails if a client that has ended its half of the connection does not accept interim responses.
    fn poll_probe(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if !self.activity.accepts_interim_responses() {
            return Poll::Ready(io::ErrorKind::UnexpectedEof.into());
        }
        loop {
            let Some(ClientHalf { probe, .. }) = &mut self.client_half else { return Poll::Pending };
            if let Some(timer) = &mut probe.timer {
                ready!(timer.as_mut().poll(context));
            }
            if probe.sent > PROBE_DELAYS.len() {
                return Poll::Pending;
            }
            probe.timer = PROBE_DELAYS.get(probe.sent).map(|delay| Box::pin(sleep(*delay)));
            probe.sent += 1;
            self.queued = Bytes::from_static(INTERIM_RESPONSE);
            if let Err(error) = ready!(self.poll_queued(context)) {
                return Poll::Ready(error);
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientStream<S> {
    /// Fails if the client closes the connection while it waits for a response or receives one.
    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let phase = self.activity.phase();
        let Some(half) = &mut self.client_half else { return Poll::Pending };
        if phase == RequestPhase::Receiving {
            // What was received belongs to the next request.
            (half.has_ended, half.responding_since, half.probe) = (false, None, Probe::default());
            return Poll::Pending;
        }
        if phase == RequestPhase::Responding {
            half.responding_since.get_or_insert_with(Instant::now);
        }
        if !half.has_ended && half.received.is_empty() {
            let mut received = [MaybeUninit::uninit(); READ_AHEAD];
            let mut buffer = ReadBuf::uninit(&mut received);
            if let Err(error) = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer)) {
                return Poll::Ready(error);
            }
            half.received.extend_from_slice(buffer.filled());
            half.has_ended = half.received.is_empty();
            if half.has_ended && half.responding_since.is_some_and(|since| since.elapsed() > HALF_CLOSE_DELAY) {
                return Poll::Ready(io::ErrorKind::UnexpectedEof.into());
            }
        }
        match phase {
            RequestPhase::Received if half.has_ended => self.poll_probe(context),
            _ => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.client_half {
            Some(ClientHalf { received, .. }) if !received.is_empty() => {
                let length = received.len().min(buffer.remaining());
                buffer.put_slice(&received.split_to(length));
                Poll::Ready(Ok(()))
            }
            _ => Pin::new(&mut self.stream).poll_read(context, buffer),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_queued(context))?;
        if let Some(response) = self.error_response(bytes) {
            let (timeout, remaining) = LINGER;
            self.linger = Some(Linger { timer: Box::pin(sleep(timeout)), remaining });
            self.queued = response;
            return Poll::Ready(Ok(bytes.len()));
        }
        self.is_unflushed = true;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [bytes] = slices {
            return self.poll_write(context, bytes);
        }
        ready!(self.poll_queued(context))?;
        self.is_unflushed = true;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_queued(context))?;
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        (self.is_unflushed, self.flushed_output) = (false, self.activity.output());
        // The library flushes whenever it waits.
        match self.poll_closed(context) {
            Poll::Ready(error) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_queued(context))?;
        ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        let Self { stream, linger, .. } = &mut *self;
        match linger {
            Some(linger) => linger.poll_end(stream, context).map(Ok),
            None => Poll::Ready(Ok(())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

// === impl Linger ===

impl Linger {
    /// Discards what the client sends until it closes the connection or a limit is reached.
    fn poll_end(&mut self, stream: &mut (impl AsyncRead + Unpin), context: &mut Context<'_>) -> Poll<()> {
        let mut discarded = [0; 4096];
        while self.remaining > 0 && self.timer.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut discarded);
            let result = ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer));
            if result.is_err() || buffer.filled().is_empty() {
                break;
            }
            self.remaining = self.remaining.saturating_sub(buffer.filled().len());
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::StreamExt as _;
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Full};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use rstest::rstest;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::sync::mpsc;
    use tokio::time::{Instant, timeout};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::activity::RequestProgress;
    use crate::{ConnectionOptions, serve_connection};

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Byte of response bodies that no head contains.
    const BODY_BYTE: u8 = b'#';

    /// Receives the end of each request: a message when it was responded to, `None` when it was dropped.
    type Requests = mpsc::UnboundedReceiver<mpsc::UnboundedReceiver<()>>;

    fn error_body(status: StatusCode) -> ErrorContent {
        ErrorContent { content_type: "text/plain", bytes: Bytes::from(format!("status {}", status.as_u16())) }
    }

    /// Returns the client's end of a connection of `capacity` bytes. The server reads each body and responds after `delay` with
    /// `length` bytes; to `/reject`, with an empty error.
    fn connect(capacity: usize, delay: Duration, length: usize) -> (DuplexStream, Requests) {
        let (client, server) = duplex(capacity);
        let (sender, requests) = mpsc::unbounded_channel();
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (responded, end) = mpsc::unbounded_channel();
            sender.send(end).unwrap();
            async move {
                let progress = request.extensions_mut().remove::<RequestProgress>();
                let status = if request.uri().path() == "/reject" { 400 } else { 200 };
                if request.into_body().collect().await.is_ok() {
                    progress.inspect(RequestProgress::record_received);
                }
                sleep(delay).await;
                responded.send(()).unwrap();
                let body = Bytes::from(vec![BODY_BYTE; if status == 400 { 0 } else { length }]);
                Ok::<_, Infallible>(Response::builder().status(status).body(Full::new(body)).unwrap())
            }
        });
        let options = ConnectionOptions {
            error_body: Some(error_body),
            accepts_half_close: true,
            ..ConnectionOptions::default()
        };
        tokio::spawn(serve_connection(server, service, options, CancellationToken::new()));
        (client, requests)
    }

    async fn read_to_end(client: &mut DuplexStream) -> String {
        let mut bytes = Vec::new();
        timeout(TIMEOUT, client.read_to_end(&mut bytes)).await.expect("the connection is not closed").ok();
        String::from_utf8(bytes).unwrap()
    }

    #[rstest]
    #[case::request_line("GET / HTTP\r\n\r\n".to_owned(), 400)]
    #[case::method("G@T / HTTP/1.1\r\n\r\n".to_owned(), 400)]
    #[case::version("GET / HTTP/9.9\r\n\r\n".to_owned(), 400)]
    #[case::header("GET / HTTP/1.1\r\nx y: z\r\n\r\n".to_owned(), 400)]
    #[case::content_length("POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n".to_owned(), 400)]
    #[case::large_header(format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 17)), 431)]
    #[case::many_headers(format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(200)), 431)]
    #[tokio::test(start_paused = true)]
    async fn error_response_of_the_library_has_a_body(
        #[case] request: String,
        #[case] status: u16,
        #[values("", "GET / HTTP/1.1\r\n\r\n", "GET /reject HTTP/1.1\r\n\r\n")] first: &str,
    ) {
        let (mut client, _requests) = connect(1 << 20, Duration::from_millis(1), 3);
        client.write_all(format!("{first}{request}").as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let text = read_to_end(&mut client).await;
        let (responses, error) = text.rsplit_once("HTTP/1.1 ").unwrap();
        let (head, body) = error.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&status.to_string()), "{text}");
        assert!(head.contains("\r\ncontent-type: text/plain\r\ncontent-length: 10\r\n"), "{head}");
        assert!(head.contains("\r\nconnection: close"), "{head}");
        assert_eq!(body, format!("status {status}"));
        assert_eq!(responses.is_empty(), first.is_empty());
        assert!(!responses.contains("status"), "the service has responded: {responses}");
    }

    /// The library responds with the version of the previous request.
    #[tokio::test(start_paused = true)]
    async fn error_response_to_an_old_client_has_a_body() {
        let (mut client, _requests) = connect(1 << 20, Duration::ZERO, 3);
        client.write_all(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\nGET / HTTP\r\n\r\n").await.unwrap();
        let text = read_to_end(&mut client).await;
        let (_, error) = text.rsplit_once("HTTP/1.0 400").unwrap();
        assert!(error.ends_with("\r\n\r\nstatus 400"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn error_response_of_the_service_is_unchanged() {
        let (mut client, _requests) = connect(1 << 20, Duration::ZERO, 3);
        client.write_all(b"GET /reject HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
        let text = read_to_end(&mut client).await;
        assert!(text.starts_with("HTTP/1.1 400 ") && text.ends_with("\r\n\r\n"), "{text}");
    }

    /// Closing the connection earlier would reset it, and the client could lose the response.
    #[tokio::test(start_paused = true)]
    async fn client_that_sends_after_an_error_response_is_read() {
        let (mut client, _requests) = connect(4096, Duration::ZERO, 3);
        client.write_all(b"GET / HTTP\r\n\r\n").await.unwrap();
        client.write_all(&[b'x'; 100_000]).await.unwrap();
        assert!(read_to_end(&mut client).await.ends_with("status 400"));
    }

    /// The connection has room for a part of the response only.
    #[rstest]
    #[case::without_body("GET / HTTP/1.1\r\n\r\n")]
    #[case::with_body("POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nbody")]
    #[case::chunked("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n")]
    #[tokio::test(start_paused = true)]
    async fn client_that_ends_its_half_receives_the_response(
        #[case] request: &str,
        #[values(0, 50, 30_000)] delay: u64,
        #[values(1, 2)] count: usize,
    ) {
        let (mut client, mut requests) = connect(1024, Duration::from_millis(delay), 100_000);
        client.write_all(request.repeat(count).as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let text = timeout(3 * TIMEOUT, async {
            let mut bytes = Vec::new();
            client.read_to_end(&mut bytes).await.unwrap();
            String::from_utf8(bytes).unwrap()
        });
        let text = text.await.expect("the connection is not closed");
        let (interim, responses) = text.split_at(text.find("HTTP/1.1 200 OK").unwrap());
        assert_eq!(interim.replace("HTTP/1.1 100 Continue\r\n\r\n", ""), "");
        assert!(interim.len() <= 5 * INTERIM_RESPONSE.len(), "{interim}");
        assert_eq!(responses.bytes().filter(|byte| *byte == BODY_BYTE).count(), count * 100_000);
        for _ in 0..count {
            assert_eq!(requests.recv().await.unwrap().recv().await, Some(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn request_of_a_client_that_closes_the_connection_is_dropped() {
        let (mut client, mut requests) = connect(1024, 10 * TIMEOUT, 1);
        client.write_all(b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nbody").await.unwrap();
        let mut request = requests.recv().await.unwrap();
        let start = Instant::now();
        drop(client);
        assert_eq!(request.recv().await, None);
        assert!(start.elapsed() <= PROBE_DELAYS[0], "{:?}", start.elapsed());
    }

    /// A client that closes the connection during a response whose body is pending. With half-closes, an end within a second of the
    /// response may be that of a client that waits for it.
    #[rstest]
    #[tokio::test(start_paused = true)]
    async fn response_of_a_client_that_closes_the_connection_is_dropped(
        #[values(true, false)] accepts_half_close: bool,
    ) {
        let (mut client, server) = duplex(1024);
        let (body_dropped, mut dropped) = mpsc::channel::<()>(1);
        let service = service_fn(move |_: Request<Incoming>| {
            let body = futures::stream::pending::<Result<hyper::body::Frame<Bytes>, Infallible>>();
            let body_dropped = body_dropped.clone();
            let body = body.inspect(move |_| drop(body_dropped.clone()));
            std::future::ready(Ok::<_, Infallible>(Response::new(http_body_util::StreamBody::new(body))))
        });
        let options = ConnectionOptions { accepts_half_close, ..ConnectionOptions::default() };
        let connection = tokio::spawn(serve_connection(server, service, options, CancellationToken::new()));
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut head = [0; 1024];
        assert!(client.read(&mut head).await.unwrap() > 0);
        sleep(HALF_CLOSE_DELAY * 2).await;
        drop(client);
        timeout(TIMEOUT, dropped.recv()).await.expect("the body is not dropped");
        connection.await.unwrap();
    }

    /// HTTP/1.0 has no interim responses.
    #[tokio::test(start_paused = true)]
    async fn request_of_an_old_client_that_ends_its_half_is_dropped() {
        let (mut client, mut requests) = connect(1024, 10 * TIMEOUT, 1);
        client.write_all(b"POST / HTTP/1.0\r\ncontent-length: 4\r\n\r\nbody").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut client).await, "");
        assert_eq!(requests.recv().await.unwrap().recv().await, None);
    }
}
