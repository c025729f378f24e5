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

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use apimachinery::catch_future_panic;
use http::{Request, Response};
use http_server::{ConnectionOptions, Connections, Overload};
use hyper::{body::Incoming, service::service_fn};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

pub use options::GatewayOptions;

use crate::{openai_error::OpenAiError, scheduler::Scheduler, serving_certificate::ServingCertificate};
use proxy::Proxy;
use response_body::ResponseBody;
pub(crate) use route::{Route, match_path};

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
    let handle = move |request| {
        let proxy = Arc::clone(&proxy);
        async move { proxy.handle(request).await }
    };
    serve_requests(stream, handle, shutdown).await;
}

/// Serves the requests of a connection with the responses of `handle`, or 500 if it panics: other requests of the connection
/// continue.
async fn serve_requests<F>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    handle: impl Fn(Request<Incoming>) -> F + 'static,
    shutdown: CancellationToken,
) where
    F: Future<Output = Response<ResponseBody>> + Send + 'static,
{
    let service = service_fn(move |request| {
        // Boxed: the future is large, and the server moves it several times.
        let response = catch_future_panic(handle(request));
        async move {
            Ok::<_, Infallible>(response.await.unwrap_or_else(|panic| {
                tracing::error!(%panic, "failed to handle a request");
                response::error(&OpenAiError::internal_error())
            }))
        }
    });
    let options = ConnectionOptions {
        error_body: Some(response::invalid_http),
        accepts_half_close: true,
        ..ConnectionOptions::default()
    };
    http_server::serve_connection(stream, service, options, shutdown).await;
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
    if let route::Route::Inference { path, destination } = route::match_path(path, |_| None) {
        let unaddressed = route::Route::Inference { path: path.clone(), destination: route::Destination::AnyPool };
        assert_eq!(route::match_path(&path, |_| None), unaddressed);
        let is_known = path.starts_with("/v1/") || crate::request_path::TOKENIZER_PATHS.contains(&path.as_str());
        assert!(is_known && path.bytes().all(|byte| byte.is_ascii_lowercase() || b"/1".contains(&byte)));
        if let route::Destination::Pool(pool) = destination {
            assert!(!pool.namespace.contains('/') && !pool.name.contains('/'));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn request_that_panics_is_an_internal_error_and_the_connection_continues() {
        let (mut client, server) = duplex(4096);
        let handle = async |request: Request<Incoming>| {
            assert_eq!(request.uri().path(), "/ok", "broken request");
            Response::new(ResponseBody::full(Bytes::from_static(b"fine")))
        };
        tokio::spawn(serve_requests(server, handle, CancellationToken::new()));
        client.write_all(b"GET /panic HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        client.write_all(b"GET /ok HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut responses = String::new();
        client.read_to_string(&mut responses).await.unwrap();
        let (error, ok) = responses.rsplit_once("HTTP/1.1 ").unwrap();
        assert!(error.starts_with("HTTP/1.1 500 ") && error.contains(r#""code":"internal_error""#), "{responses}");
        assert!(ok.starts_with("200 ") && ok.ends_with("fine"), "{responses}");
    }
}
