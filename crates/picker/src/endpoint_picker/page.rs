//! The metrics page.

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
    let connection = |stream: TcpStream| {
        let picker = Arc::clone(&picker);
        let service = service_fn(move |request| {
            let answer = answer(&request, &picker);
            async { Ok::<_, Infallible>(answer) }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEAD);
        let connection = server.serve_connection(TokioIo::new(stream), service);
        async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
        }
    };
    // Those that are open end with it.
    drop(Connections::accept(&listener, &stop, connection).await);
    Ok(())
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
