//! Admission webhook for ostler objects: HTTPS with a self-signed certificate. Its Secret and its configuration are watched
//! and repaired.
//!
//! The webhook cannot block a cluster: its configuration has `failurePolicy: Ignore`, since reconciles find the same
//! errors and report them in conditions.

mod certificate;
mod configuration;
mod error;
mod options;
mod review;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::catch_future_panic;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use cluster::{Change, Clock, Health, Part, Stores, Watches};
use http_server::{BodyError, BodyLimits, BodyMemory, ConnectionLimits, Connections, Overload};
use hyper_util::service::TowerToHyperService;
use kube::Client;
use rustls::ServerConfig;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::object_lister::ObjectLister;
use crate::FIELD_MANAGER;
use crate::metrics::{Metrics, Operation};
use certificate::CertificateManager;
pub(crate) use certificate::{CONFIGURATION, SECRET};
pub(crate) use configuration::CONFIGURATION_NAME;
use configuration::PATH;
use error::WebhookError;
pub use options::{WebhookOptions, WebhookTarget};
use review::review_response;

/// Limits of a review. The API server accepts objects of 3 MiB, and an update contains two of them. It waits for a review for less
/// than these times.
const BODY_LIMITS: BodyLimits = BodyLimits {
    max_bytes: 8 << 20,
    timeout: Duration::from_secs(10),
    pause_timeout: Duration::from_secs(10),
    memory_timeout: Duration::from_secs(10),
};
/// Maximum size in bytes of all reviews that are being received or handled; further ones wait.
const BODY_MEMORY: usize = 64 << 20;
/// Maximum number of connections. An API server reuses its connections.
const MAX_CONNECTIONS: usize = 256;
/// Interval at which the expiration of the certificate is checked.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(3600);
/// Retry interval after a failure.
const CERTIFICATE_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Time from a change of the Secret or the configuration until they are checked. It limits the requests if another
/// controller modifies them repeatedly.
const REPAIR_DELAY: Duration = Duration::from_secs(1);
/// Timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What reviews need.
#[derive(Clone)]
pub(crate) struct ReviewContext {
    /// Lists the objects that reviews depend on.
    pub(crate) lister: Arc<dyn ObjectLister + Send + Sync>,
    /// Counts panics.
    pub(crate) metrics: Arc<Metrics>,
}

/// Serves reviews until `stop` is cancelled, and keeps certificate and configuration up to date. Requests that the API
/// server rejects are retried.
///
/// # Errors
/// Returns an error if the listener fails.
pub(crate) async fn run(
    client: Client,
    context: ReviewContext,
    clock: Arc<dyn Clock>,
    webhook: WebhookOptions,
    health: &Health,
    stop: CancellationToken,
) -> Result<(), WebhookError> {
    let (mut watches, mut changes) =
        Watches::new(client.clone(), Stores::new(FIELD_MANAGER), health.supervisor.clone(), stop.clone());
    let certificate_manager = CertificateManager::new(client, clock, webhook.target);
    certificate_manager.start_watches(&mut watches);
    let (config_sender, certificates) = watch::channel(None);
    let update_loop = async {
        loop {
            let delay = match certificate_manager
                .update_certificate()
                .await
                .and_then(|certificate| certificate.server_config())
            {
                Ok(config) => {
                    config_sender.send_replace(Some(Arc::new(config)));
                    health.set_ready(Part::WebhookServer);
                    CERTIFICATE_CHECK_INTERVAL
                }
                Err(error) => {
                    tracing::warn!(error = %cluster::error_chain(&error), "failed to configure the admission webhook, retrying");
                    CERTIFICATE_RETRY_INTERVAL
                }
            };
            wait_for_change(&mut changes, delay).await;
        }
    };
    tokio::select! {
        () = update_loop => Ok(()),
        result = serve(webhook.listener.try_clone()?, certificates, context, stop) => result,
    }
}

/// Waits until the Secret or the configuration changes, at most for `max_delay`.
async fn wait_for_change(changes: &mut mpsc::Receiver<Change>, max_delay: Duration) {
    if let Ok(Some(_)) = timeout(max_delay, changes.recv()).await {
        sleep(REPAIR_DELAY).await;
        while changes.try_recv().is_ok() {}
    }
}

/// Serves reviews until `stop` is cancelled. Connections are closed as long as there is no certificate.
///
/// # Errors
/// Returns an error if the listener fails.
pub(crate) async fn serve(
    listener: TcpListener,
    certificates: watch::Receiver<Option<Arc<ServerConfig>>>,
    context: ReviewContext,
    stop: CancellationToken,
) -> Result<(), WebhookError> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    tracing::info!(address = %listener.local_addr()?, "serving the admission webhook");
    let router = router(context, BodyMemory::new(BODY_MEMORY));
    let connection = |stream| {
        let (acceptor, router, stop) =
            (certificates.borrow().clone().map(TlsAcceptor::from), router.clone(), stop.clone());
        async move {
            if let Some(acceptor) = acceptor {
                serve_connection(stream, acceptor, router, stop).await;
            }
        }
    };
    // Abort open connections.
    drop(Connections::accept(&listener, MAX_CONNECTIONS, Overload::Wait, &stop, connection).await);
    Ok(())
}

async fn serve_connection(stream: TcpStream, acceptor: TlsAcceptor, router: Router, stop: CancellationToken) {
    let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await else { return };
    let service = TowerToHyperService::new(router);
    http_server::serve_connection(stream, service, ConnectionLimits::default(), stop).await;
}

fn router(context: ReviewContext, memory: BodyMemory) -> Router {
    // `http_server` limits the bodies.
    Router::new().route(PATH, post(handle_review)).layer(DefaultBodyLimit::disable()).with_state((context, memory))
}

/// Returns the response to a review. With 500, the API server ignores the webhook and logs the error.
async fn handle_review(State((context, memory)): State<(ReviewContext, BodyMemory)>, request: Request) -> Response {
    catch_future_panic(review(context.lister.as_ref(), memory, request)).await.unwrap_or_else(|panic| {
        tracing::error!(%panic, "failed to review an object");
        context.metrics.count_panic(Operation::Review);
        (StatusCode::INTERNAL_SERVER_ERROR, format!("internal error: {panic}\n")).into_response()
    })
}

async fn review(lister: &(dyn ObjectLister + Send + Sync), memory: BodyMemory, request: Request) -> Response {
    let (head, body) = request.into_parts();
    // Held until the response is known.
    let _head_reservation = match memory.reserve_head(&head) {
        Ok(reservation) => reservation,
        Err(error) => return (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    };
    let bytes = match http_server::read_body(body, BODY_LIMITS, Some(memory)).await {
        Ok(body) => body.into_bytes(),
        Err(error) => return (error_status(&error), format!("{error}\n")).into_response(),
    };
    match Json::<Value>::from_request(Request::from_parts(head, Body::from(bytes.clone())), &()).await {
        Ok(Json(review)) => {
            let response = Json(review_response(&review, lister)).into_response();
            // Until here, the memory is reserved.
            drop(bytes);
            response
        }
        Err(rejection) => rejection.into_response(),
    }
}

fn error_status(error: &BodyError) -> StatusCode {
    match error {
        BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::Timeout(_) | BodyError::Paused(_) | BodyError::Stalled => StatusCode::REQUEST_TIMEOUT,
        BodyError::OutOfMemory(_) => StatusCode::SERVICE_UNAVAILABLE,
        BodyError::Read(_) => StatusCode::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use super::certificate::Certificate;
    use super::*;
    use std::convert::Infallible;
    use std::net::SocketAddr;

    use futures::{StreamExt as _, stream};
    use rstest::rstest;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::Instant;
    use tower::ServiceExt as _;

    struct EmptyLister;

    impl ObjectLister for EmptyLister {
        fn list(&self, _: cluster::Kind) -> Vec<Arc<Value>> {
            Vec::new()
        }
    }

    /// Panics when a review lists objects.
    struct BrokenLister;

    impl ObjectLister for BrokenLister {
        fn list(&self, _: cluster::Kind) -> Vec<Arc<Value>> {
            panic!("broken lister")
        }
    }

    fn context(lister: impl ObjectLister + Send + Sync + 'static) -> ReviewContext {
        ReviewContext { lister: Arc::new(lister), metrics: Arc::default() }
    }

    #[tokio::test]
    async fn review_that_panics_is_an_internal_error() {
        let (context, memory) = (context(BrokenLister), BodyMemory::new(BODY_MEMORY));
        let service =
            json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService", "metadata": {"name": "a"}});
        let review = json!({"request": {"uid": "u", "name": "a", "object": service}});
        let (status, text, _) = post_to(router(context.clone(), memory.clone()), Body::from(review.to_string())).await;
        assert_eq!((status, text.as_str()), (500, "internal error: panicked: broken lister\n"));
        let metrics = context.metrics.render();
        assert!(metrics.contains("ostler_panics_total{operation=\"review\"} 1\n"), "{metrics}");
        assert_eq!(memory.available_bytes(), BODY_MEMORY, "the memory of the review is released");
    }

    /// Returns a TLS client that trusts only the certificates of the webhook configuration.
    fn connector(trusted: &str) -> tokio_rustls::TlsConnector {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into()
    }

    async fn post_review(address: SocketAddr, trusted: &str, body: &str) -> std::io::Result<String> {
        let stream = tokio::net::TcpStream::connect(address).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = connector(trusted).connect(name, stream).await?;
        let request_head =
            format!("POST {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n");
        stream.write_all(format!("{request_head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        Ok(response)
    }

    #[tokio::test]
    async fn serves_reviews_over_tls_and_after_certificate_rotation() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let new_certificate =
            |previous| Certificate::new(vec!["127.0.0.1".to_owned()], jiff::Timestamp::now(), previous).unwrap();
        let (first_certificate, stop) = (new_certificate(None), CancellationToken::new());
        let config = |certificate: &Certificate| Some(Arc::new(certificate.server_config().unwrap()));
        let (config_sender, certificates) = watch::channel(config(&first_certificate));
        let server = tokio::spawn(serve(listener, certificates, context(EmptyLister), stop.clone()));

        let runtime = json!({"apiVersion": "ome.io/v1beta1", "kind": "ServingRuntime", "metadata": {"name": "a"},
            "spec": {"modelSizeRange": {"min": "9B", "max": "5B"}}});
        let review = json!({"request": {"uid": "u", "name": "a", "kind": {"kind": "ServingRuntime", "group": "ome.io"}, "object": runtime}});
        let response =
            post_review(address, &first_certificate.trusted_certificates(), &review.to_string()).await.unwrap();
        assert!(
            response.starts_with("HTTP/1.1 200") && response.contains("min 9B is greater than max 5B"),
            "{response}"
        );
        assert!(
            post_review(address, &first_certificate.trusted_certificates(), "{")
                .await
                .unwrap()
                .starts_with("HTTP/1.1 400")
        );

        let second_certificate = new_certificate(Some(first_certificate.certificate.clone()));
        config_sender.send_replace(config(&second_certificate));
        assert!(post_review(address, &second_certificate.trusted_certificates(), &review.to_string()).await.is_ok());
        assert!(post_review(address, &first_certificate.trusted_certificates(), &review.to_string()).await.is_err());
        stop.cancel();
        server.await.unwrap().unwrap();
    }

    /// Neither a client that sends nothing nor one that sends the first byte of a TLS record occupies a connection.
    #[rstest]
    #[case::no_byte(&[])]
    #[case::incomplete_record(&[22])]
    #[tokio::test(start_paused = true)]
    async fn silent_connection_times_out(#[case] sent: &[u8]) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        std::io::Write::write_all(&mut socket, sent).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut client = TcpStream::from_std(socket).unwrap();
        let certificate = Certificate::new(vec!["127.0.0.1".to_owned()], jiff::Timestamp::now(), None).unwrap();
        let (_sender, certificates) = watch::channel(Some(Arc::new(certificate.server_config().unwrap())));
        let (start, stop) = (Instant::now(), CancellationToken::new());
        let server = tokio::spawn(serve(listener, certificates, context(EmptyLister), stop.clone()));
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert_eq!((start.elapsed().as_secs(), received), (10, Vec::new()));
        stop.cancel();
        server.await.unwrap().unwrap();
    }

    /// Waits until `is_true`. Every I/O event of the runtime may change it.
    async fn wait_until(is_true: impl Fn() -> bool) {
        while !is_true() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn silent_clients_do_not_block_reviews() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let certificate = Certificate::new(vec!["127.0.0.1".to_owned()], jiff::Timestamp::now(), None).unwrap();
        let (config, stop) = (Arc::new(certificate.server_config().unwrap()), CancellationToken::new());
        let (_config_sender, certificates) = watch::channel(Some(config));
        let server = tokio::spawn(serve(listener, certificates, context(EmptyLister), stop.clone()));
        // The server is a task, and so is each connection.
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let check = async {
            let mut silent_clients = Vec::new();
            for _ in 0..MAX_CONNECTIONS {
                silent_clients.push(tokio::net::TcpStream::connect(address).await.unwrap());
            }
            wait_until(|| tasks() == 1 + MAX_CONNECTIONS).await;
            let trusted = certificate.trusted_certificates();
            let review = tokio::spawn(async move { post_review(address, &trusted, r#"{"request": {}}"#).await });
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
            assert_eq!((tasks(), review.is_finished()), (2 + MAX_CONNECTIONS, false), "the review waits");

            tokio::time::pause();
            tokio::time::advance(HANDSHAKE_TIMEOUT).await;
            tokio::time::resume();
            let response = review.await.unwrap().unwrap();
            assert!(response.starts_with("HTTP/1.1 200"), "{response}");
            for client in &mut silent_clients {
                assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "the connection is closed");
            }
        };
        timeout(Duration::from_secs(60), check).await.expect("silent clients block the review");
        stop.cancel();
        server.await.unwrap().unwrap();
    }

    /// Posts a review and returns the status, the body and the seconds that the response took.
    async fn post_to_router(memory: &BodyMemory, body: Body) -> (u16, String, u64) {
        post_to(router(context(EmptyLister), memory.clone()), body).await
    }

    /// Posts a review like [`post_to_router`].
    async fn post_to(router: Router, body: Body) -> (u16, String, u64) {
        let start = Instant::now();
        let request = Request::post(PATH).header("content-type", "application/json").body(body).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let (status, seconds) = (response.status().as_u16(), start.elapsed().as_secs());
        let text = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(text.to_vec()).unwrap(), seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn memory_of_reviews_is_limited() {
        let memory = BodyMemory::new(BODY_MEMORY);
        let full = |length: usize| Body::from(vec![b' '; length]);
        let read =
            async || http_server::read_body(full(BODY_LIMITS.max_bytes), BODY_LIMITS, Some(memory.clone())).await;
        let mut reviews = Vec::new();
        for _ in 0..BODY_MEMORY / BODY_LIMITS.max_bytes {
            reviews.push(read().await.unwrap());
        }
        let (status, text, seconds) = post_to_router(&memory, Body::from("{}")).await;
        let expect = "other request bodies occupied the memory for 10 seconds; try again\n";
        assert_eq!((status, text.as_str(), seconds), (503, expect, 10));
        reviews.pop();
        assert_eq!(post_to_router(&memory, Body::from("{}")).await.0, 200);
        assert_eq!(memory.available_bytes(), BODY_LIMITS.max_bytes, "a review that was handled holds no memory");
        assert_eq!(post_to_router(&memory, full(BODY_LIMITS.max_bytes + 1)).await.0, 413);
    }

    #[tokio::test]
    async fn headers_without_memory_are_rejected_at_once() {
        let (status, text, _) = post_to_router(&BodyMemory::new(1024), Body::from("{}")).await;
        assert_eq!((status, text.as_str()), (503, "the headers of other requests occupy the memory; try again\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn review_that_never_completes_ends() {
        let memory = BodyMemory::new(BODY_MEMORY);
        let body = Body::from_stream(stream::iter([Ok::<_, Infallible>("{")]).chain(stream::pending()));
        let (status, text, seconds) = post_to_router(&memory, body).await;
        let expect = "the request body did not arrive within 10 seconds\n";
        assert_eq!((status, text.as_str(), seconds), (408, expect, 10));
        assert_eq!(memory.available_bytes(), BODY_MEMORY);
    }
}
