//! gRPC server for `ext_proc` and health checks over HTTP/2, with or without TLS.

use std::{convert::Infallible, error::Error, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use http_server::{ConnectionLimits, Connections, Overload};
use hyper::{body::Incoming, service::service_fn};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming, body::Body, server::Grpc};
use tonic_prost::ProstCodec;

use super::{EndpointPicker, ext_proc_service::process};
use crate::{
    ext_proc::{HealthCheckRequest, HealthCheckResponse, ProcessingRequest, ProcessingResponse, ServingStatus},
    serving_certificate::ServingCertificate,
};

const EXT_PROC_SERVICE: &str = "envoy.service.ext_proc.v3.ExternalProcessor";
const PROCESS_PATH: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
const HEALTH_CHECK_PATH: &str = "/grpc.health.v1.Health/Check";

/// Maximum number of connections of proxies and probes.
const MAX_CONNECTIONS: usize = 1024;

/// Maximum number of concurrent requests per connection of a proxy. The stream of a request is open until its response
/// ends.
const MAX_CONCURRENT_REQUESTS: u32 = 65_536;

/// How long requests in flight may continue after shutdown begins. Only requests that still arrive, and responses whose model
/// name is restored, need the picker.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(300);

/// Maximum time for the message of a health check.
const HEALTH_CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of the message of a health check in bytes: it contains the name of a service.
const MAX_HEALTH_CHECK_BYTES: usize = 4 * 1024;

/// Role of a listener, which determines its gRPC services.
#[derive(Clone)]
pub enum ListenerRole {
    /// `ext_proc` and health checks for proxies, over TLS if a certificate is given.
    ExtProc(Option<Arc<ServingCertificate>>),
    /// Health checks for probes, without TLS.
    Health,
}

/// Serves gRPC on `listener` until `shutdown`. Exchanges that need nothing more of the picker then end, and the proxy continues
/// without it; others may continue for five minutes.
///
/// # Errors
/// Currently none; failures to accept a connection are logged.
pub async fn serve_grpc(
    listener: TcpListener,
    role: ListenerRole,
    picker: Arc<EndpointPicker>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let connection = |stream| accept_connection(stream, role.clone(), Arc::clone(&picker), shutdown.clone());
    let connections = Connections::accept(&listener, MAX_CONNECTIONS, Overload::Wait, &shutdown, connection).await;
    picker.shut_down();
    drop(listener);
    connections.drain(DRAIN_TIMEOUT).await;
    Ok(())
}

async fn accept_connection(
    stream: TcpStream,
    role: ListenerRole,
    picker: Arc<EndpointPicker>,
    shutdown: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    let ListenerRole::ExtProc(Some(certificate)) = &role else {
        return serve_connection(stream, role, picker, shutdown).await;
    };
    if let Some(stream) = certificate.accept(stream).await {
        serve_connection(stream, role, picker, shutdown).await;
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    role: ListenerRole,
    picker: Arc<EndpointPicker>,
    shutdown: CancellationToken,
) {
    let service = service_fn(move |request| {
        let (role, picker) = (role.clone(), Arc::clone(&picker));
        async move { Ok::<_, Infallible>(handle_request(request, &role, picker).await) }
    });
    let limits = ConnectionLimits { max_concurrent_requests: MAX_CONCURRENT_REQUESTS, ..ConnectionLimits::default() };
    http_server::serve_connection(stream, service, limits, shutdown).await;
}

async fn handle_request(
    request: Request<Incoming>,
    role: &ListenerRole,
    picker: Arc<EndpointPicker>,
) -> Response<Body> {
    match request.uri().path() {
        PROCESS_PATH if matches!(role, ListenerRole::ExtProc(_)) => {
            let (head, body) = request.into_parts();
            let mut responses = Some(process(&head, body, picker));
            // The messages are received by `process`.
            let service = tower::service_fn(move |_: tonic::Request<Streaming<ProcessingRequest>>| {
                let responses = responses.take().map(tonic::Response::new);
                async move { responses.ok_or_else(|| Status::internal("the stream is in use")) }
            });
            let mut grpc = Grpc::new(ProstCodec::<ProcessingResponse, ProcessingRequest>::default());
            grpc.streaming(service, Request::from_parts(head, Empty::<Bytes>::new())).await
        }
        HEALTH_CHECK_PATH => respond_to_health_check(request, &picker).await,
        path => Status::unimplemented(format!("unknown method {path}")).into_http(),
    }
}

/// Reads the message of a health check and responds to it. Its memory is not reserved, so that probes succeed while requests
/// occupy all of the memory.
async fn respond_to_health_check<B>(request: Request<B>, picker: &EndpointPicker) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>> + Send> + Send + 'static,
{
    let service = tower::service_fn(|request: tonic::Request<HealthCheckRequest>| {
        let response = check_health(&request.get_ref().service, picker);
        async move { response.map(tonic::Response::new) }
    });
    let grpc = Grpc::new(ProstCodec::<HealthCheckResponse, HealthCheckRequest>::default());
    let mut grpc = grpc.max_decoding_message_size(MAX_HEALTH_CHECK_BYTES);
    timeout(HEALTH_CHECK_TIMEOUT, grpc.unary(service, request)).await.unwrap_or_else(|_| {
        let seconds = HEALTH_CHECK_TIMEOUT.as_secs();
        Status::deadline_exceeded(format!("the health check did not arrive within {seconds} seconds")).into_http()
    })
}

/// Returns the health of a service: `liveness` is always serving, other services only while the picker is ready.
fn check_health(service: &str, picker: &EndpointPicker) -> Result<HealthCheckResponse, Status> {
    let is_serving = match service {
        "liveness" => true,
        "" | "readiness" | "inference-extension" | EXT_PROC_SERVICE => picker.is_ready(),
        _ => return Err(Status::not_found(format!("unknown service {service:?}"))),
    };
    let status = if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    Ok(HealthCheckResponse { status: status.into() })
}

#[cfg(test)]
mod tests {
    use cluster::NamespacedName;
    use futures::{StreamExt as _, stream};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use rstest::rstest;
    use tokio::time::Instant;
    use tonic::Code;

    use super::*;
    use crate::{config::parse_config, request::DEFAULT_REQUEST_MEMORY};

    /// Columns: what arrives of a message that never ends, code and seconds of the response.
    #[rstest]
    #[case::incomplete(&[0, 0, 0, 0, 9], Code::DeadlineExceeded, 10)]
    #[case::too_long(&[0, 0, 0, 0x10, 1], Code::OutOfRange, 0)]
    #[tokio::test(start_paused = true)]
    async fn health_check_that_never_completes_ends(
        #[case] bytes: &'static [u8],
        #[case] expected: Code,
        #[case] seconds: u64,
    ) {
        let policy = parse_config("").unwrap().policy;
        let picker = EndpointPicker::new(NamespacedName::new("ns", "pool"), policy, DEFAULT_REQUEST_MEMORY, 1);
        let frames =
            stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(bytes)))]).chain(stream::pending());
        let start = Instant::now();
        let response = respond_to_health_check(Request::new(StreamBody::new(frames)), &picker).await;
        let code = Status::from_header_map(response.headers()).unwrap().code();
        assert_eq!((code, start.elapsed().as_secs()), (expected, seconds));
    }
}
