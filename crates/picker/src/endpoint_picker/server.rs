//! The gRPC server: `ext_proc` and health over HTTP/2, with or without TLS.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming, body::Body, server::Grpc};
use tonic_prost::ProstCodec;

use super::{
    EndpointPicker,
    exchange::{self, Asked, Exchange, Step},
    messages::{HealthCheckRequest, HealthCheckResponse, ProcessingRequest, ProcessingResponse, Says, ServingStatus},
    metrics::Running,
    tls::Tls,
};
use crate::{connections::Connections, pool::InFlight, request::MAX_BODY};

const EXT_PROC: &str = "envoy.service.ext_proc.v3.ExternalProcessor";
const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// Requests that one proxy connection may have under way; each is a stream until its answer ends.
const STREAMS: u32 = 65_536;

/// Messages that may wait for the proxy to take them.
const WAITING: usize = 16;

/// How long requests under way may go on after `stop`.
const DRAIN: Duration = Duration::from_secs(10);

/// How long a client may take to begin TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What a port is for.
#[derive(Clone)]
pub enum Face {
    /// Proxies ask, and may ask for health: in TLS, or in clear text.
    Picks(Option<Arc<Tls>>),
    /// Probes ask, in clear text.
    Health,
}

/// Answers on `listener` until `stop`; requests under way may end for ten seconds.
///
/// # Errors
/// None at present; accepting goes on after a failed connection.
pub async fn serve(
    listener: TcpListener,
    face: Face,
    picker: Arc<EndpointPicker>,
    stop: CancellationToken,
) -> io::Result<()> {
    let connection = |stream| accept(stream, face.clone(), Arc::clone(&picker), stop.clone());
    let open = Connections::accept(&listener, &stop, connection).await;
    picker.drain();
    drop(listener);
    open.drain(DRAIN).await;
    Ok(())
}

async fn accept(stream: TcpStream, face: Face, picker: Arc<EndpointPicker>, stop: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let Face::Picks(Some(tls)) = &face else { return connection(stream, face, picker, stop).await };
    match timeout(HANDSHAKE, TlsAcceptor::from(tls.config()).accept(stream)).await {
        Ok(Ok(stream)) => connection(stream, face, picker, stop).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake"),
        Err(_) => tracing::debug!("no TLS handshake"),
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    face: Face,
    picker: Arc<EndpointPicker>,
    stop: CancellationToken,
) {
    let service = service_fn(move |request| {
        let (face, picker) = (face.clone(), Arc::clone(&picker));
        async move { Ok::<_, Infallible>(answer(request, &face, picker).await) }
    });
    let mut server = http2::Builder::new(TokioExecutor::new());
    server.max_concurrent_streams(STREAMS);
    let mut connection = std::pin::pin!(server.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

async fn answer(request: Request<Incoming>, face: &Face, picker: Arc<EndpointPicker>) -> Response<Body> {
    match request.uri().path() {
        PROCESS if matches!(face, Face::Picks(_)) => {
            let service = tower::service_fn(move |request: tonic::Request<Streaming<ProcessingRequest>>| {
                let answers = process(request.into_inner(), Arc::clone(&picker));
                async move { Ok::<_, Status>(tonic::Response::new(answers)) }
            });
            // Bodies come in parts, or in one message.
            let mut grpc = Grpc::new(ProstCodec::<ProcessingResponse, ProcessingRequest>::default())
                .max_decoding_message_size(MAX_BODY + 64 * 1024);
            grpc.streaming(service, request).await
        }
        CHECK => {
            let service = tower::service_fn(move |request: tonic::Request<HealthCheckRequest>| {
                let status = health(&request.get_ref().service, &picker);
                async move { status.map(tonic::Response::new) }
            });
            Grpc::new(ProstCodec::<HealthCheckResponse, HealthCheckRequest>::default()).unary(service, request).await
        }
        path => Status::unimplemented(format!("{path} is not known here")).into_http(),
    }
}

/// `liveness` is the process, everything else its use.
fn health(service: &str, picker: &EndpointPicker) -> Result<HealthCheckResponse, Status> {
    let well = match service {
        "liveness" => true,
        "" | "readiness" | "inference-extension" | EXT_PROC => picker.ready(),
        _ => return Err(Status::not_found(format!("no service {service:?} here"))),
    };
    let status = if well { ServingStatus::Serving } else { ServingStatus::NotServing };
    Ok(HealthCheckResponse { status: status.into() })
}

type Answers = ReceiverStream<Result<ProcessingResponse, Status>>;

/// One request from its first message to its last.
fn process(messages: Streaming<ProcessingRequest>, picker: Arc<EndpointPicker>) -> Answers {
    let (says, answers) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        if let Err(status) = converse(messages, &picker, &says).await {
            says.send(Err(status)).await.ok();
        }
    });
    ReceiverStream::new(answers)
}

/// A request on its way; its body is the proxy's again.
struct Sent {
    first: SocketAddr,
    chains: Vec<Vec<u64>>,
    /// Counts until the proxy ends the stream, with the answer.
    _in_flight: InFlight,
    _running: Running,
}

async fn converse(
    mut messages: Streaming<ProcessingRequest>,
    picker: &EndpointPicker,
    says: &mpsc::Sender<Result<ProcessingResponse, Status>>,
) -> Result<(), Status> {
    let mut exchange = Exchange::new(picker.policy.bodies);
    let mut sent: Option<Sent> = None;
    while let Some(message) = messages.message().await? {
        let (said, last) = match exchange.take(message)? {
            Step::Wait => (Vec::new(), false),
            Step::Say(said) => (said, false),
            Step::End(said) => {
                picker.metrics.refused("", "", status_of(&said));
                (vec![said], true)
            }
            Step::Choose(asked) => match choose(picker, &asked) {
                Ok((said, chosen)) => {
                    sent = chosen;
                    (said, false)
                }
                Err(refused) => (vec![*refused], true),
            },
        };
        if let (Some(served), Some(sent)) = (exchange.served.take(), &sent)
            && picker.another(sent.first, served)
        {
            picker.served(&sent.chains, served);
        }
        if let (true, Some(sent)) = (std::mem::take(&mut exchange.failed), &sent) {
            picker.doubt(sent.first);
        }
        for said in said {
            // Nobody listens any more: the client or the proxy is gone.
            if says.send(Ok(said)).await.is_err() {
                return Ok(());
            }
        }
        if last {
            return Ok(());
        }
    }
    Ok(())
}

/// The answer to a whole request, and what is to be known of it until it ends.
fn choose(
    picker: &EndpointPicker,
    asked: &Asked,
) -> Result<(Vec<ProcessingResponse>, Option<Sent>), Box<ProcessingResponse>> {
    let model = asked.facts.model.as_ref().map_or("", |model| model.name.as_str());
    let Some((choice, chains)) = picker.choose(asked) else {
        let refused = exchange::refused(&picker.pool);
        picker.metrics.refused(model, &asked.target, status_of(&refused));
        return Err(Box::new(refused));
    };
    let sent = choice.endpoints.first().map(|first| Sent {
        first: first.address,
        chains,
        _in_flight: first.load.begin(asked.facts.tokens()),
        _running: picker.metrics.sent(model, &asked.target, asked.body.len()),
    });
    Ok((asked.chosen(&choice, picker.policy.primary_port), sent))
}

fn status_of(said: &ProcessingResponse) -> i32 {
    match &said.response {
        Some(Says::Immediate(answer)) => answer.status.map_or(0, |status| status.code),
        _ => 0,
    }
}
