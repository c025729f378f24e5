//! Native gateway: an HTTP/1.1 and HTTP/2 reverse proxy for OpenAI requests, with HTTP/1.1 connections to the engines.

mod engine_body;
mod engine_client;
mod engine_connection;
mod engine_request_body;
mod engine_response_body;
mod event_stream;
mod forwarded_headers;
mod idle_connections;
mod models;
mod options;
mod proxied_request;
mod proxy;
mod response;
mod response_body;
mod retry_copy;
mod route;

use std::{io, sync::Arc, time::Duration};

use http_server::{ConnectionLimits, Connections, Overload};
use hyper::service::service_fn;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

pub use options::GatewayOptions;

use crate::{scheduler::Scheduler, serving_certificate::ServingCertificate};
use proxy::Proxy;

/// Maximum number of client connections.
const MAX_CONNECTIONS: usize = 16_384;

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
    let _closing_idle_connections = AbortOnDropHandle::new(tokio::spawn(proxy.close_idle_connections()));
    let connections = Connections::accept(&listener, MAX_CONNECTIONS, Overload::Wait, &shutdown, |stream| {
        accept_connection(stream, options.certificate.clone(), Arc::clone(&proxy), shutdown.clone())
    })
    .await;
    drop(listener);
    let drain_timeout = options.drain_timeout;
    tracing::info!(connections = connections.len(), ?drain_timeout, "closed the listener, completing requests");
    connections.drain(drain_timeout.unwrap_or(Duration::MAX)).await;
    Ok(())
}

async fn accept_connection(
    stream: TcpStream,
    certificate: Option<Arc<ServingCertificate>>,
    proxy: Arc<Proxy>,
    shutdown: CancellationToken,
) {
    // Send headers and the first token without waiting for acknowledgments (Nagle's algorithm).
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    match certificate {
        None => serve_connection(stream, proxy, shutdown).await,
        Some(certificate) => {
            if let Some(stream) = certificate.accept(stream).await {
                serve_connection(stream, proxy, shutdown).await;
            }
        }
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    proxy: Arc<Proxy>,
    shutdown: CancellationToken,
) {
    let service = service_fn(move |request| {
        let proxy = Arc::clone(&proxy);
        // The future is large, and the server moves it several times.
        Box::pin(async move { Ok::<_, std::convert::Infallible>(proxy.handle(request).await) })
    });
    http_server::serve_connection(stream, service, ConnectionLimits::default(), shutdown).await;
}

/// Panics unless an event stream is forwarded completely and in order, in chunks of any size.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_event_stream(stream: &[u8]) {
    for size in [1, 2, 7, stream.len().max(1)] {
        let (mut events, mut forwarded) = (event_stream::EventStream::new(event_stream::Api::OpenAi), Vec::new());
        for chunk in stream.chunks(size) {
            forwarded.extend(events.push(bytes::Bytes::copy_from_slice(chunk)));
            assert!(stream.starts_with(&forwarded));
        }
        forwarded.extend(events.finish());
        assert_eq!(forwarded, stream);
    }
}

/// Panics unless a request to `path` reaches an engine only on a known path.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_path(path: &str) {
    if let route::Route::Inference { path, pool } = route::match_path(path) {
        assert_eq!(route::match_path(&path), route::Route::Inference { path: path.clone(), pool: None });
        assert!(
            path.starts_with("/v1/") && path.bytes().all(|byte| byte.is_ascii_lowercase() || b"/1".contains(&byte))
        );
        assert!(pool.is_none_or(|pool| !pool.namespace.contains('/') && !pool.name.contains('/')));
    }
}
