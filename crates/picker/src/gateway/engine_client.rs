//! HTTP client for engines, with reused connections. Requests have generous deadlines, since a completion may take minutes;
//! keep-alive probes detect dead hosts much earlier.

use std::{error::Error, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use http::{HeaderValue, Request, Response, Uri};
use http_server::WriteTimeout;
use hyper_util::client::legacy::connect::HttpConnector;
use supervisor::Supervisor;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use super::{
    engine_connection::{ConnectionError, EngineConnection},
    engine_request_body::EngineRequestBody,
    engine_response_body::{BorrowedConnection, EngineResponseBody},
    idle_connections::IdleConnections,
};

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

/// Sends requests to engines.
pub(super) struct EngineClient {
    connector: HttpConnector,
    idle_connections: Arc<IdleConnections>,
}

/// An engine, and which connection to use.
#[derive(Debug, Clone)]
pub(super) struct EngineTarget {
    pub(super) address: SocketAddr,
    /// Cancelled when the Pod of the engine is deleted.
    pub(super) pod_deleted: CancellationToken,
    /// Whether the request may be sent on a connection that has carried another one. A new connection cannot be stale.
    pub(super) reuses_connection: bool,
}

/// Why a request to an engine failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineError {
    /// The engine cannot be reached.
    #[error("failed to connect: {0}")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// The engine does not read the request, or closed the connection before it responded.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The engine closed a reused connection at the same time, and has not received the request.
    #[error("a reused connection failed: {0}")]
    StaleConnection(#[source] ConnectionError),
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
        matches!(self, Self::Connect(_))
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
        Self { connector, idle_connections: Arc::default() }
    }

    /// Closes connections that are not used any more, until the future is dropped. Failures of the task are outages of
    /// `supervisor`.
    pub(super) fn close_idle_connections(&self, supervisor: &Supervisor) -> impl Future<Output = ()> + Send + 'static {
        let idle_connections = Arc::clone(&self.idle_connections);
        supervisor.supervise_indefinitely("closing of idle connections", CancellationToken::new(), move || {
            let idle_connections = Arc::clone(&idle_connections);
            async move { idle_connections.close_unusable().await }
        })
    }

    /// Sends a request and returns the response, of which the head has arrived.
    ///
    /// # Errors
    /// The engine cannot be reached, closes the connection before it responds, or does not read the request or respond in time;
    /// its Pod is deleted.
    pub(super) async fn send(
        &self,
        request: Request<EngineRequestBody>,
        target: EngineTarget,
    ) -> Result<Response<EngineResponseBody>, EngineError> {
        let pod_deleted = target.pod_deleted.clone();
        // By reference: each future that contains another one has room for it twice.
        let attempt = pin!(self.send_without_deadline(request, target));
        let attempt = pod_deleted.run_until_cancelled(attempt);
        timeout(RESPONSE_TIMEOUT, attempt).await.map_err(|_| EngineError::Timeout)?.ok_or(EngineError::PodDeleted)?
    }

    async fn send_without_deadline(
        &self,
        request: Request<EngineRequestBody>,
        target: EngineTarget,
    ) -> Result<Response<EngineResponseBody>, EngineError> {
        let EngineTarget { address, pod_deleted, reuses_connection } = target;
        let start = Instant::now();
        let idle_connection = reuses_connection.then(|| self.idle_connections.take(address)).flatten();
        let mut connection = match idle_connection {
            Some(connection) => connection,
            // Most requests reuse a connection; boxed, the rest of their futures is small.
            None => Box::pin(self.connect(address)).await?,
        };
        match connection.send(request).await {
            Ok(response) => {
                let idle_connections = Arc::clone(&self.idle_connections);
                let connection = BorrowedConnection { connection, idle_connections, address, pod_deleted };
                Ok(response.map(|incoming| EngineResponseBody::new(incoming, connection)))
            }
            Err(error) if connection.is_reused && start.elapsed() < STALE_CONNECTION_WINDOW => {
                Err(EngineError::StaleConnection(error))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn connect(&self, address: SocketAddr) -> Result<EngineConnection, EngineError> {
        let authority = address.to_string();
        let host = HeaderValue::from_str(&authority).map_err(|error| EngineError::Connect(error.into()))?;
        let uri = Uri::builder().scheme("http").authority(authority).path_and_query("/").build();
        let uri = uri.map_err(|error| EngineError::Connect(error.into()))?;
        let stream = self.connector.clone().call(uri).await.map_err(|error| EngineError::Connect(error.into()))?;
        let stream = WriteTimeout::new(stream.into_inner(), WRITE_TIMEOUT);
        Ok(EngineConnection::new(stream, host).await?)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::BodyExt as _;
    use rstest::rstest;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        sync::mpsc,
        time::sleep,
    };
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    fn target(address: SocketAddr) -> EngineTarget {
        EngineTarget { address, pod_deleted: CancellationToken::new(), reuses_connection: true }
    }

    /// The kernel accepts the connection and the beginning of the body.
    #[rstest]
    #[case::waiting_request(Duration::MAX)]
    #[case::dropped_request(Duration::from_secs(1))]
    #[tokio::test(start_paused = true)]
    async fn body_that_the_engine_does_not_read_is_released(#[case] patience: Duration) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = target(listener.local_addr().unwrap());
        let (body, start) = (Bytes::from(vec![b' '; 64 << 20]), Instant::now());
        let request = Request::post("/v1/completions").body(EngineRequestBody::from(body.clone())).unwrap();
        if let Ok(result) = timeout(patience, EngineClient::new().send(request, target)).await {
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
        let target = target(listener.local_addr().unwrap());
        let start = Instant::now();
        let request =
            Request::post("/v1/completions").body(EngineRequestBody::from(Bytes::from_static(b"{}"))).unwrap();
        let error = EngineClient::new().send(request, target).await.unwrap_err();
        assert_eq!((error.to_string().as_str(), start.elapsed()), ("no response within 30 min", RESPONSE_TIMEOUT));
    }

    /// Accepts connections and responds on each of them to requests with an empty body. Returns a receiver of the number of
    /// requests of each closed connection.
    async fn start_engine() -> (SocketAddr, mpsc::UnboundedReceiver<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (closed, receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let closed = closed.clone();
                tokio::spawn(async move {
                    let (mut requests, mut received) = (0, Vec::new());
                    while stream.read_buf(&mut received).await.is_ok_and(|length| length > 0) {
                        if received.ends_with(b"\r\n\r\n") {
                            requests += 1;
                            received.clear();
                            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
                        }
                    }
                    closed.send(requests).unwrap();
                });
            }
        });
        (address, receiver)
    }

    async fn send(client: &EngineClient, target: &EngineTarget) {
        let request = Request::post("/v1/completions").body(EngineRequestBody::from(Bytes::new())).unwrap();
        let response = client.send(request, target.clone()).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "{}");
    }

    #[tokio::test(start_paused = true)]
    async fn connection_is_reused_until_it_is_idle_for_too_long() {
        let (address, mut closed) = start_engine().await;
        let (client, target) = (EngineClient::new(), target(address));
        let closing = client.close_idle_connections(&Supervisor::default());
        let _closing = AbortOnDropHandle::new(tokio::spawn(closing));
        for _ in 0..3 {
            send(&client, &target).await;
        }
        assert_eq!(closed.recv().await, Some(3));
        send(&client, &target).await;
        drop(client);
        assert_eq!(closed.recv().await, Some(1));
    }

    #[tokio::test]
    async fn connection_of_a_deleted_pod_is_not_reused() {
        let (address, mut closed) = start_engine().await;
        let (client, old) = (EngineClient::new(), target(address));
        send(&client, &old).await;
        old.pod_deleted.cancel();
        send(&client, &target(address)).await;
        assert_eq!(closed.recv().await, Some(1), "the connection is closed");
    }

    #[tokio::test]
    async fn new_connection_is_used_if_it_is_required() {
        let (address, mut closed) = start_engine().await;
        let (client, target) = (EngineClient::new(), target(address));
        send(&client, &target).await;
        send(&client, &EngineTarget { reuses_connection: false, ..target }).await;
        drop(client);
        assert_eq!([closed.recv().await, closed.recv().await], [Some(1), Some(1)]);
    }

    #[tokio::test]
    async fn engine_that_switches_the_protocol_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (client, target) = (EngineClient::new(), target(listener.local_addr().unwrap()));
        let engine = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_u8().await.unwrap();
            stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n").await.unwrap();
            stream
        };
        let request = Request::post("/v1/completions").body(EngineRequestBody::from(Bytes::new())).unwrap();
        let (_stream, result) = tokio::join!(engine, client.send(request, target));
        assert_eq!(result.unwrap_err().to_string(), "the engine responded with status 101 Switching Protocols");
    }

    /// The rest of the request would be read as the next one.
    #[tokio::test]
    async fn connection_whose_request_was_not_read_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (client, target) = (EngineClient::new(), target(listener.local_addr().unwrap()));
        let engine = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_u8().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            // The end of the connection, before the end of the body.
            tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap_or_default()
        };
        let body = Bytes::from(vec![b' '; 64 << 20]);
        let request = Request::post("/v1/completions").body(EngineRequestBody::from(body.clone())).unwrap();
        let request = async { client.send(request, target).await.unwrap().into_body().collect().await.unwrap() };
        let (received, _) = tokio::join!(engine, request);
        assert!(received < body.len() as u64, "{received} bytes");
    }
}
