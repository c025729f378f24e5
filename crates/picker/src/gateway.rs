//! Native gateway: an HTTP/1.1 and HTTP/2 reverse proxy for OpenAI requests, with HTTP/1.1 connections to the engines.

mod activity;
mod engine_client;
mod forwarded_headers;
mod models;
mod proxied_request;
mod proxy;
mod response;
mod response_body;
mod route;

use std::{io, sync::Arc, time::Duration};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{connections::Connections, datastore::Datastore};
use activity::ConnectionActivity;
use proxy::Proxy;

/// Timeout for idle client connections and for reading request headers.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of request headers in bytes; larger ones are rejected with 431.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// Maximum number of concurrent requests per HTTP/2 connection.
const MAX_CONCURRENT_STREAMS: u32 = 256;

/// How long responses may continue after shutdown begins.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves the gateway on `listener` until `shutdown`. Responses may continue for two seconds.
///
/// # Errors
/// Currently none; failures to accept a connection are logged.
pub async fn serve_gateway(
    listener: TcpListener,
    datastore: Arc<Datastore>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let proxy = Arc::new(Proxy::new(datastore));
    let connections = Connections::accept(&listener, &shutdown, |stream| {
        serve_connection(stream, Arc::clone(&proxy), shutdown.clone())
    })
    .await;
    drop(listener);
    connections.drain(DRAIN_TIMEOUT).await;
    Ok(())
}

async fn serve_connection(stream: TcpStream, proxy: Arc<Proxy>, shutdown: CancellationToken) {
    // Send headers and the first token without waiting for acknowledgments (Nagle's algorithm).
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    let activity = ConnectionActivity::new();
    let connection_activity = Arc::clone(&activity);
    let service = service_fn(move |request| {
        let (proxy, active) = (Arc::clone(&proxy), connection_activity.begin_request());
        async move {
            Ok::<_, std::convert::Infallible>(proxy.handle(request).await.map(|body| body.with_active_request(active)))
        }
    });
    let mut server = Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT).max_buf_size(MAX_HEADER_BYTES);
    server.http2().max_header_list_size(MAX_HEADER_BYTES as u32).max_concurrent_streams(MAX_CONCURRENT_STREAMS);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = activity.wait_until_idle(IDLE_TIMEOUT) => {
            connection.as_mut().graceful_shutdown();
            // The client may ignore the GOAWAY frame.
            timeout(DRAIN_TIMEOUT, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection failed");
    }
}
