//! The metrics page.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use super::EndpointPicker;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long a client may take to ask.
const HEAD: Duration = Duration::from_secs(10);

/// Answers `GET /metrics` on `listener` until `stop`.
///
/// # Errors
/// None at present; accepting goes on after a failed connection.
pub async fn serve_metrics(
    listener: TcpListener,
    picker: Arc<EndpointPicker>,
    stop: CancellationToken,
) -> io::Result<()> {
    // Connections end with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let picker = Arc::clone(&picker);
                    let service = service_fn(move |request| {
                        let answer = answer(&request, &picker);
                        async { Ok::<_, Infallible>(answer) }
                    });
                    let mut server = http1::Builder::new();
                    server.timer(TokioTimer::new()).header_read_timeout(HEAD);
                    connections.spawn(server.serve_connection(TokioIo::new(stream), service));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Out of file descriptors: give others time to close.
                    sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }
}

fn answer(request: &Request<Incoming>, picker: &EndpointPicker) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        let mut missing = Response::new(Full::from("only /metrics is here\n"));
        *missing.status_mut() = StatusCode::NOT_FOUND;
        return missing;
    }
    let mut page = Response::new(Full::from(picker.metrics_page()));
    page.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
    page
}
