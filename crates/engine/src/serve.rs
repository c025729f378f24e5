//! Accepts connections and serves HTTP.

use std::{io, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Response, StatusCode},
};
use http_server::{Connections, Overload, WriteTimeout};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{Config, http_api, memory::Allocation, request_body::RequestMemory, simulator::Simulator};

/// Time in which an engine that has failed completes responses before it exits, as recorded of vLLM.
const FAILURE_TIMEOUT: Duration = Duration::from_millis(100);

/// Maximum size in bytes of the head of a request.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Allocates [`Config::memory`], waits for [`Config::load_time`], then listens on [`Config::address`] and serves until `stop` is
/// cancelled. As with vLLM, connections are refused while loading.
///
/// # Errors
/// The address cannot be bound. [`io::ErrorKind::OutOfMemory`] with the message of vLLM: a device has too little free memory
/// to start or to wake up, or the host to fall asleep.
pub async fn run(config: Config, memory: RequestMemory, stop: CancellationToken) -> io::Result<()> {
    let allocation = allocate(&config)?;
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = sleep(config.load_time) => {}
    }
    let listener = TcpListener::bind((config.address, config.port)).await?;
    let config = Config { load_time: Duration::ZERO, ..config };
    serve_allocated(listener, config, memory, allocation, stop).await
}

/// Returns the routes of a loaded engine with unlimited memory, for use without a socket.
pub fn router(config: Config, memory: RequestMemory) -> Router {
    http_api::router(Simulator::new(config, memory, None))
}

/// Allocates the memory of an engine.
fn allocate(config: &Config) -> io::Result<Option<Allocation>> {
    let allocation = config.memory.as_ref().map(|memory| memory.allocate(config.gpu_memory_utilization));
    allocation.transpose().map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))
}

/// Serves HTTP/1.1 on `listener` until `stop` is cancelled. It then refuses connections, completes requests for
/// [`Config::shutdown_timeout`] (by default not at all, as vLLM), and closes open connections. While loading, responds 503 with
/// an empty body.
///
/// # Errors
/// [`io::ErrorKind::OutOfMemory`] as in [`run`]; failures to accept a connection are logged and retried.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    memory: RequestMemory,
    stop: CancellationToken,
) -> io::Result<()> {
    let allocation = allocate(&config)?;
    serve_allocated(listener, config, memory, allocation, stop).await
}

async fn serve_allocated(
    listener: TcpListener,
    config: Config,
    memory: RequestMemory,
    allocation: Option<Allocation>,
    stop: CancellationToken,
) -> io::Result<()> {
    let (max_connections, shutdown_timeout) = (config.max_connections.max(1), config.shutdown_timeout);
    let ready_at = Instant::now() + config.load_time;
    let (keep_alive, stall_timeout) = (config.keep_alive, config.stall_timeout);
    let engine = Simulator::new(config, memory, allocation);
    let _process = EngineProcess(Arc::clone(&engine));
    let handler = ConnectionHandler {
        ready_at,
        keep_alive,
        stall_timeout,
        loading: Router::new().fallback(service_unavailable),
        router: http_api::router(Arc::clone(&engine)),
    };
    let handler = Arc::new(handler);
    let closing = stop.child_token();
    let accept = Connections::accept(&listener, max_connections, Overload::Wait, &closing, |stream| {
        Arc::clone(&handler).handle(stream, closing.clone())
    });
    let close_on_failure = async {
        engine.failed().await;
        closing.cancel();
        std::future::pending().await
    };
    let connections = tokio::select! {
        connections = accept => connections,
        connections = close_on_failure => connections,
    };
    drop(listener);
    connections.drain(if engine.has_failed() { FAILURE_TIMEOUT } else { shutdown_timeout }).await;
    engine.failure().map_or(Ok(()), |error| Err(io::Error::new(io::ErrorKind::OutOfMemory, error)))
}

/// The process of an engine, whose end frees its memory.
struct EngineProcess(Arc<Simulator>);

impl Drop for EngineProcess {
    fn drop(&mut self) {
        self.0.free_memory();
    }
}

/// Serves the connections of one engine.
struct ConnectionHandler {
    ready_at: Instant,
    keep_alive: Duration,
    stall_timeout: Duration,
    loading: Router,
    router: Router,
}

impl ConnectionHandler {
    /// Serves a connection until it ends, or until its current response after `stop` is cancelled.
    async fn handle(self: Arc<Self>, stream: TcpStream, stop: CancellationToken) {
        // Send each token immediately, without waiting for the acknowledgment of the previous one.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "failed to set TCP_NODELAY");
        }
        let (keep_alive, stream) = (self.keep_alive, WriteTimeout::new(stream, self.stall_timeout));
        let service = tower::service_fn(move |request: axum::http::Request<hyper::body::Incoming>| {
            let router = if Instant::now() < self.ready_at { self.loading.clone() } else { self.router.clone() };
            tower::ServiceExt::oneshot(router, request)
        });
        let mut server = http1::Builder::new();
        // hyper counts idle time of a connection, also before its first byte, as time for reading the next request head.
        server.timer(TokioTimer::new()).header_read_timeout(keep_alive).max_buf_size(MAX_HEAD_BYTES);
        let service = TowerToHyperService::new(service);
        let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "connection failed");
        }
    }
}

async fn service_unavailable() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}
