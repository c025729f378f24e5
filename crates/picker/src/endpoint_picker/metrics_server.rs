//! HTTP server for the metrics endpoint.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::EndpointPicker;
use crate::connections::Connections;

/// Content type of the OpenMetrics text format.
const OPEN_METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Timeout for reading the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves `GET /metrics` on `listener` until `shutdown`.
///
/// # Errors
/// Currently none; failures to accept a connection are logged.
pub async fn serve_metrics(
    listener: TcpListener,
    picker: Arc<EndpointPicker>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let connection = |stream: TcpStream| {
        let picker = Arc::clone(&picker);
        let service = service_fn(move |request| {
            let response = handle_request(&request, &picker);
            async { Ok::<_, Infallible>(response) }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
        let connection = server.serve_connection(TokioIo::new(stream), service);
        async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection failed");
            }
        }
    };
    // Abort open connections.
    drop(Connections::accept(&listener, &shutdown, connection).await);
    Ok(())
}

fn handle_request(request: &Request<Incoming>, picker: &EndpointPicker) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        let mut not_found = Response::new(Full::from("not found: the only path is /metrics\n"));
        *not_found.status_mut() = StatusCode::NOT_FOUND;
        return not_found;
    }
    let mut response = Response::new(Full::from(picker.render_metrics()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS_CONTENT_TYPE));
    response
}
