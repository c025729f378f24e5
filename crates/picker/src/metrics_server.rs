//! HTTP server for the metrics and debug pages.

use std::{convert::Infallible, io, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use http_server::{ConnectionLimits, Connections, Overload};
use hyper::{body::Incoming, service::service_fn};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::{
    debug::{ConnectionAddresses, DEBUG_PATH, DebugPages},
    scheduler::Scheduler,
};

/// Content type of the OpenMetrics text format.
const OPEN_METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Maximum number of connections. A further client replaces the oldest connection.
const MAX_CONNECTIONS: usize = 64;

/// Serves the metrics of `scheduler` at `GET /metrics`, and the [debug pages](DebugPages) on `listener` until `shutdown`.
///
/// # Errors
/// Currently none; failures to accept a connection are logged.
pub async fn serve_metrics(
    listener: TcpListener,
    scheduler: Arc<Scheduler>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let debug = Arc::new(DebugPages::new(Arc::clone(&scheduler)));
    let connection = |stream: TcpStream| {
        let (scheduler, debug) = (Arc::clone(&scheduler), Arc::clone(&debug));
        let addresses = ConnectionAddresses::of(&stream).ok();
        let service = service_fn(move |request: Request<Incoming>| {
            let (scheduler, debug) = (Arc::clone(&scheduler), Arc::clone(&debug));
            async move {
                Ok::<_, Infallible>(match addresses {
                    Some(addresses) if request.uri().path().starts_with(DEBUG_PATH) => {
                        debug.respond(request, addresses).await
                    }
                    _ => metrics_response(&request, &scheduler),
                })
            }
        });
        http_server::serve_connection(stream, service, ConnectionLimits::default(), shutdown.clone())
    };
    // Abort open connections.
    drop(Connections::accept(&listener, MAX_CONNECTIONS, Overload::CloseOldest, &shutdown, connection).await);
    Ok(())
}

fn metrics_response(request: &Request<Incoming>, scheduler: &Scheduler) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        let mut not_found = Response::new(Full::from("not found: the metrics are at /metrics\n"));
        *not_found.status_mut() = StatusCode::NOT_FOUND;
        return not_found;
    }
    let mut response = Response::new(Full::from(scheduler.render_metrics()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS_CONTENT_TYPE));
    response
}
