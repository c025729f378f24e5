//! HTTP client for engines, with pooled connections. A request on a stale connection is retried on a new one. Requests have
//! generous deadlines, since a completion may take minutes; keep-alive probes detect dead hosts much earlier.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Extensions, Request, Response};
use http_server::WriteTimeout;
use hyper::{
    body::Incoming,
    rt::{Read, ReadBufCursor, Write},
};
use hyper_util::{
    client::legacy::{
        Client, Error,
        connect::{Connected, Connection, HttpConnector},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_util::sync::CancellationToken;
use tower::util::MapResponse;

use super::{engine_request_body::EngineRequestBody, retry_copy::hold_copy};

/// Idle timeout of pooled connections. vLLM closes idle connections after five seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Timeout for connecting to an endpoint.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time until an engine starts to respond. Without streaming, it starts once the completion is complete.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Maximum time in which an engine takes nothing of a request. The rest of its body is in memory until then.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time without traffic after which a connection is probed, interval between the probes, and number of unanswered probes
/// after which the connection fails: the host of an engine may have crashed.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 4);

/// A request that fails within this time may have been sent on a connection that the engine was closing. Later failures
/// are attributed to the request itself.
const STALE_CONNECTION_WINDOW: Duration = Duration::from_secs(1);

type Connector = MapResponse<HttpConnector, fn(TokioIo<TcpStream>) -> TrackedConnection>;

/// Sends requests to engines.
pub(super) struct EngineClient {
    pooled_client: Client<Connector, EngineRequestBody>,
    /// Opens a new connection per request, which cannot be stale.
    unpooled_client: Client<Connector, EngineRequestBody>,
}

/// Whether a connection has carried a response. Shared by the connection, its responses and its errors.
#[derive(Debug, Clone, Default)]
struct ReusedFlag(Arc<AtomicBool>);

/// A connection that tracks whether it is reused.
#[derive(Debug)]
struct TrackedConnection {
    io: TokioIo<WriteTimeout<TcpStream>>,
    reused: ReusedFlag,
}

/// Why a request to an engine failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineError {
    /// The engine cannot be reached, does not read the request, or closed the connection before it responded.
    #[error(transparent)]
    Connection(#[from] Error),
    /// The engine did not start to respond within its deadline.
    #[error("no response within {} min", RESPONSE_TIMEOUT.as_secs() / 60)]
    Timeout,
    /// The Pod of the engine was deleted.
    #[error("the Pod was deleted")]
    PodDeleted,
}

// === impl EngineError ===

impl EngineError {
    /// Returns whether no connection was established.
    pub(super) fn is_connect(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_connect())
    }
}

// === impl EngineClient ===

impl EngineClient {
    /// Returns a client without connections.
    pub(super) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let (idle_time, interval, probes) = KEEP_ALIVE;
        connector.set_keepalive(Some(idle_time));
        connector.set_keepalive_interval(Some(interval));
        connector.set_keepalive_retries(Some(probes));
        let connector: Connector = MapResponse::new(connector, |io| TrackedConnection::new(io.into_inner()));
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT);
        let pooled_client = builder.build(connector.clone());
        Self { pooled_client, unpooled_client: builder.pool_max_idle_per_host(0).build(connector) }
    }

    /// Sends a request and returns the head of the response. If the engine closed the pooled connection at the same time,
    /// the engine has not received the request, and it is retried on a new connection.
    ///
    /// # Errors
    /// The engine cannot be reached, closes the connection before it responds, or does not read the request or respond in time;
    /// `pod_deleted` is cancelled.
    pub(super) async fn send(
        &self,
        request: Request<EngineRequestBody>,
        pod_deleted: CancellationToken,
    ) -> Result<Response<Incoming>, EngineError> {
        let attempt = pod_deleted.run_until_cancelled(self.send_without_deadline(request));
        timeout(RESPONSE_TIMEOUT, attempt).await.map_err(|_| EngineError::Timeout)?.ok_or(EngineError::PodDeleted)?
    }

    async fn send_without_deadline(
        &self,
        request: Request<EngineRequestBody>,
    ) -> Result<Response<Incoming>, EngineError> {
        let (copy, attempt) = (request.clone(), self.pooled_client.request(request));
        match hold_copy(copy, STALE_CONNECTION_WINDOW, attempt).await {
            (Err(error), Some(copy)) if is_on_reused_connection(&error) => {
                tracing::debug!(%error, "pooled connection was closed, retrying on a new connection");
                Ok(self.unpooled_client.request(copy).await?)
            }
            (Err(error), _) => Err(error.into()),
            (Ok(response), _) => {
                if let Some(ReusedFlag(reused)) = response.extensions().get() {
                    reused.store(true, Relaxed);
                }
                Ok(response)
            }
        }
    }
}

fn is_on_reused_connection(error: &Error) -> bool {
    let mut extras = Extensions::new();
    if let Some(connected) = error.connect_info() {
        connected.get_extras(&mut extras);
    }
    extras.get().is_some_and(|ReusedFlag(reused)| reused.load(Relaxed))
}

// === impl TrackedConnection ===

impl TrackedConnection {
    fn new(stream: TcpStream) -> Self {
        Self { io: TokioIo::new(WriteTimeout::new(stream, WRITE_TIMEOUT)), reused: ReusedFlag::default() }
    }
}

impl Connection for TrackedConnection {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.reused.clone())
    }
}

impl Read for TrackedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for TrackedConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rstest::rstest;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// The kernel accepts the connection and the beginning of the body. Dropping the request does not close the connection
    /// at once, because hyper sends what it has begun.
    #[rstest]
    #[case::waiting_request(Duration::MAX)]
    #[case::dropped_request(Duration::from_secs(1))]
    #[tokio::test(start_paused = true)]
    async fn body_that_the_engine_does_not_read_is_released(#[case] patience: Duration) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}/v1/completions", listener.local_addr().unwrap());
        let (body, start) = (Bytes::from(vec![b' '; 64 << 20]), Instant::now());
        let request = Request::post(uri).body(EngineRequestBody::from(body.clone())).unwrap();
        if let Ok(result) = timeout(patience, EngineClient::new().send(request, CancellationToken::new())).await {
            assert!(matches!(result, Err(EngineError::Connection(_))), "{result:?}");
            assert!((60..65).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
        }
        sleep(Duration::from_secs(65).saturating_sub(start.elapsed())).await;
        assert!(body.is_unique(), "the connection is closed");
    }

    /// The kernel accepts the connection.
    #[tokio::test(start_paused = true)]
    async fn engine_that_does_not_respond_times_out() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}/v1/completions", listener.local_addr().unwrap());
        let start = Instant::now();
        let request = Request::post(uri).body(EngineRequestBody::from(Bytes::from_static(b"{}"))).unwrap();
        let error = EngineClient::new().send(request, CancellationToken::new()).await.unwrap_err();
        assert_eq!((error.to_string().as_str(), start.elapsed()), ("no response within 30 min", RESPONSE_TIMEOUT));
    }
}
