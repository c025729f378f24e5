//! Native gateway: an HTTP/1.1 and HTTP/2 reverse proxy for OpenAI requests, with HTTP/1.1 connections to the engines.

mod engine_body;
mod engine_client;
mod engine_request_body;
mod event_stream;
mod forwarded_headers;
mod models;
mod proxied_request;
mod proxy;
mod response;
mod response_body;
mod retry_copy;
mod route;

use std::{io, sync::Arc, time::Duration};

use http_server::{ConnectionLimits, Connections, Overload};
use hyper::service::service_fn;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::{request::DEFAULT_REQUEST_MEMORY, scheduler::Scheduler};
use proxy::Proxy;

/// Maximum number of client connections.
const MAX_CONNECTIONS: usize = 16_384;

/// Settings of a gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Bytes for the bodies of requests. Headers have a quarter as much.
    pub request_memory: usize,
    /// How long requests in progress may continue after the shutdown; `None` means no limit.
    pub drain_timeout: Option<Duration>,
    /// Whether responses have the headers `x-ostler-*`, which name the endpoint and explain its selection.
    pub debug_headers: bool,
}

/// Serves the gateway on `listener` until `shutdown`. It then closes the listener and completes requests in progress.
///
/// # Errors
/// Currently none; failures to accept a connection are logged.
pub async fn serve_gateway(
    listener: TcpListener,
    scheduler: Arc<Scheduler>,
    options: GatewayOptions,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let proxy = Arc::new(Proxy::new(scheduler, &options));
    let connections = Connections::accept(&listener, MAX_CONNECTIONS, Overload::Wait, &shutdown, |stream| {
        serve_connection(stream, Arc::clone(&proxy), shutdown.clone())
    })
    .await;
    drop(listener);
    let drain_timeout = options.drain_timeout;
    tracing::info!(connections = connections.len(), ?drain_timeout, "closed the listener, completing requests");
    connections.drain(drain_timeout.unwrap_or(Duration::MAX)).await;
    Ok(())
}

// === impl GatewayOptions ===

impl Default for GatewayOptions {
    fn default() -> Self {
        Self { request_memory: DEFAULT_REQUEST_MEMORY, drain_timeout: None, debug_headers: false }
    }
}

async fn serve_connection(stream: TcpStream, proxy: Arc<Proxy>, shutdown: CancellationToken) {
    // Send headers and the first token without waiting for acknowledgments (Nagle's algorithm).
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    let service = service_fn(move |request| {
        let proxy = Arc::clone(&proxy);
        async move { Ok::<_, std::convert::Infallible>(proxy.handle(request).await) }
    });
    http_server::serve_connection(stream, service, ConnectionLimits::default(), shutdown).await;
}
