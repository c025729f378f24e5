//! HTTP server for the metrics endpoint.

use std::{convert::Infallible, io, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use http_server::{ConnectionLimits, Connections, Overload};
use hyper::{body::Incoming, service::service_fn};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::scheduler::Scheduler;

/// Content type of the OpenMetrics text format.
const OPEN_METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Maximum number of connections. A further client replaces the oldest connection.
const MAX_CONNECTIONS: usize = 64;

/// Serves the metrics of `scheduler` at `GET /metrics` on `listener` until `shutdown`.
///
/// # Errors
/// Currently none; failures to accept a connection are logged.
pub async fn serve_metrics(
    listener: TcpListener,
    scheduler: Arc<Scheduler>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let connection = |stream: TcpStream| {
        let scheduler = Arc::clone(&scheduler);
        let service = service_fn(move |request| {
            let response = handle_request(&request, &scheduler);
            async { Ok::<_, Infallible>(response) }
        });
        http_server::serve_connection(stream, service, ConnectionLimits::default(), shutdown.clone())
    };
    // Abort open connections.
    drop(Connections::accept(&listener, MAX_CONNECTIONS, Overload::CloseOldest, &shutdown, connection).await);
    Ok(())
}

fn handle_request(request: &Request<Incoming>, scheduler: &Scheduler) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        let mut not_found = Response::new(Full::from("not found: the only path is /metrics\n"));
        *not_found.status_mut() = StatusCode::NOT_FOUND;
        return not_found;
    }
    let mut response = Response::new(Full::from(scheduler.render_metrics()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS_CONTENT_TYPE));
    response
}
