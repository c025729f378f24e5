//! Admission webhook for ostler objects: HTTPS with a self-signed certificate.
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

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::post;
use cluster::{Clock, Stores};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use kube::Client;
use rustls::ServerConfig;
use serde_json::Value;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::object_lister::ObjectLister;
use crate::error_chain::error_chain;
use certificate::CertificateManager;
pub(crate) use certificate::{CONFIGURATION, SECRET};
pub(crate) use configuration::CONFIGURATION_NAME;
use configuration::PATH;
use error::WebhookError;
pub use options::{WebhookOptions, WebhookTarget};
use review::review_response;

/// Maximum size of a review in bytes. The API server accepts objects of 3 MiB, and an update contains two of them.
const MAX_BODY_SIZE: usize = 8 << 20;
/// Interval at which the certificate is checked.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(3600);
/// Retry interval after a failure.
const CERTIFICATE_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves reviews until `stop` is cancelled, and keeps certificate and configuration up to date. Requests that the API
/// server rejects are retried.
///
/// # Errors
/// Returns an error if the listener fails.
pub(crate) async fn run(
    client: Client,
    stores: Stores,
    clock: Arc<dyn Clock>,
    webhook: WebhookOptions,
    stop: CancellationToken,
) -> Result<(), WebhookError> {
    let certificate_manager = CertificateManager::new(client, clock, webhook.target);
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
                    CERTIFICATE_CHECK_INTERVAL
                }
                Err(error) => {
                    tracing::warn!(error = %error_chain(&error), "failed to configure the admission webhook, retrying");
                    CERTIFICATE_RETRY_INTERVAL
                }
            };
            tokio::time::sleep(delay).await;
        }
    };
    tokio::select! {
        () = update_loop => Ok(()),
        result = serve(webhook.listener.try_clone()?, certificates, Arc::new(stores), stop) => result,
    }
}

/// Serves reviews until `stop` is cancelled. Connections are closed as long as there is no certificate.
///
/// # Errors
/// Returns an error if the listener fails.
pub(crate) async fn serve(
    listener: TcpListener,
    certificates: watch::Receiver<Option<Arc<ServerConfig>>>,
    lister: Arc<dyn ObjectLister + Send + Sync>,
    stop: CancellationToken,
) -> Result<(), WebhookError> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    tracing::info!(address = %listener.local_addr()?, "serving the admission webhook");
    let router =
        Router::new().route(PATH, post(handle_review)).layer(DefaultBodyLimit::max(MAX_BODY_SIZE)).with_state(lister);
    loop {
        let connection = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        let current = certificates.borrow().clone();
        match (connection, current) {
            (Ok((stream, _)), Some(config)) => {
                tokio::spawn(serve_connection(stream, TlsAcceptor::from(config), router.clone(), stop.clone()));
            }
            (Ok(_), None) => {}
            (Err(error), _) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(
    stream: tokio::net::TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    stop: CancellationToken,
) {
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await else { return };
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        () = stop.cancelled() => {}
        result = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)) => {
            if let Err(error) = result {
                tracing::debug!(%error, "connection failed");
            }
        }
    }
}

async fn handle_review(
    State(lister): State<Arc<dyn ObjectLister + Send + Sync>>,
    body: axum::Json<Value>,
) -> axum::Json<Value> {
    axum::Json(review_response(&body.0, lister.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::certificate::Certificate;
    use super::*;
    use std::net::SocketAddr;

    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    struct EmptyLister;

    impl ObjectLister for EmptyLister {
        fn list(&self, _: cluster::Kind) -> Vec<Arc<Value>> {
            Vec::new()
        }
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
        let server = tokio::spawn(serve(listener, certificates, Arc::new(EmptyLister), stop.clone()));

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
}
