//! The webhook that a cluster asks before it stores an object of ours: HTTPS with a certificate of our own making.
//!
//! It cannot stop a cluster: the configuration says `failurePolicy: Ignore`, since what it refuses is also found, and
//! said in a condition, when the object is used.

mod certificate;
mod configuration;
mod exchange;

use std::net::{SocketAddr, TcpListener};
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

pub(crate) use certificate::{CONFIGURATION, SECRET};
pub use certificate::{Certificate, Keeper};
pub(crate) use configuration::NAME;
pub use configuration::configuration;
pub use exchange::answer;

use super::View;
use crate::run::chain;

/// Where the API server sends its reviews.
pub const PATH: &str = "/validate";
/// An API server takes 3 MiB, and an update carries the object twice.
const LONGEST_BODY: usize = 8 << 20;
/// How often the certificate is looked at.
const CARE: Duration = Duration::from_secs(3600);
/// How soon after a failure.
const AGAIN: Duration = Duration::from_secs(10);
/// Longest handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Where the webhook listens, and how the cluster finds it.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// Bound already, so that a busy port is said before anything starts.
    pub listener: Arc<TcpListener>,
    pub target: Target,
}

/// What the cluster calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The operator outside of the cluster, at one address; its certificate lives as long as the process.
    Url(SocketAddr),
    /// The operator behind a Service; its replicas share a certificate in a Secret of that namespace.
    Service { namespace: String, name: String },
}

/// Why the webhook is not served.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("the certificate could not be made")]
    Certificate(#[from] rcgen::Error),
    #[error("the certificate could not be used")]
    Tls(#[from] rustls::Error),
    #[error("the listener could not be used")]
    Listen(#[from] std::io::Error),
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    #[error("the Secret {0} holds no usable certificate; delete it, and another is made")]
    Secret(String),
}

/// Serves until `stop`, and keeps certificate and configuration in step. What the cluster refuses is tried again.
///
/// # Errors
/// When the listener is unusable.
pub async fn run(
    client: Client,
    stores: Stores,
    clock: Arc<dyn Clock>,
    webhook: Webhook,
    stop: CancellationToken,
) -> Result<(), WebhookError> {
    let keeper = Keeper::new(client, clock, webhook.target);
    let (publish, certificates) = watch::channel(None);
    let care = async {
        loop {
            let pause = match keeper.care().await.and_then(|certificate| certificate.server_config()) {
                Ok(config) => {
                    publish.send_replace(Some(Arc::new(config)));
                    CARE
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "the admission webhook is not configured, trying again");
                    AGAIN
                }
            };
            tokio::time::sleep(pause).await;
        }
    };
    tokio::select! {
        () = care => Ok(()),
        served = serve(webhook.listener.try_clone()?, certificates, Arc::new(stores), stop) => served,
    }
}

/// Answers reviews until `stop`; before there is a certificate, connections are closed.
///
/// # Errors
/// When the listener is unusable.
pub async fn serve(
    listener: TcpListener,
    certificates: watch::Receiver<Option<Arc<ServerConfig>>>,
    view: Arc<dyn View + Send + Sync>,
    stop: CancellationToken,
) -> Result<(), WebhookError> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    tracing::info!("the admission webhook listens at {}", listener.local_addr()?);
    let router = Router::new().route(PATH, post(review)).layer(DefaultBodyLimit::max(LONGEST_BODY)).with_state(view);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        let current = certificates.borrow().clone();
        match (accepted, current) {
            (Ok((stream, _)), Some(config)) => {
                tokio::spawn(connection(stream, TlsAcceptor::from(config), router.clone(), stop.clone()));
            }
            (Ok(_), None) => {}
            (Err(error), _) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: tokio::net::TcpStream, acceptor: TlsAcceptor, router: Router, stop: CancellationToken) {
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        () = stop.cancelled() => {}
        ended = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)) => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended badly");
            }
        }
    }
}

async fn review(State(view): State<Arc<dyn View + Send + Sync>>, body: axum::Json<Value>) -> axum::Json<Value> {
    axum::Json(answer(&body.0, view.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    struct Nothing;

    impl View for Nothing {
        fn list(&self, _: cluster::Kind) -> Vec<Arc<Value>> {
            Vec::new()
        }
    }

    /// A client that trusts what the configuration tells the cluster to trust, and nothing else.
    fn connector(trusted: &str) -> tokio_rustls::TlsConnector {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into()
    }

    async fn ask(address: SocketAddr, trusted: &str, body: &str) -> std::io::Result<String> {
        let stream = tokio::net::TcpStream::connect(address).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = connector(trusted).connect(name, stream).await?;
        let head =
            format!("POST {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n");
        stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn reviews_are_answered_over_tls_also_after_a_rotation() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let make = |previous| Certificate::new(vec!["127.0.0.1".to_owned()], jiff::Timestamp::now(), previous).unwrap();
        let (first, stop) = (make(None), CancellationToken::new());
        let config = |certificate: &Certificate| Some(Arc::new(certificate.server_config().unwrap()));
        let (publish, certificates) = watch::channel(config(&first));
        let served = tokio::spawn(serve(listener, certificates, Arc::new(Nothing), stop.clone()));

        let class = json!({"apiVersion": "ome.io/v1beta1", "kind": "ServingRuntime", "metadata": {"name": "a"},
            "spec": {"modelSizeRange": {"min": "9B", "max": "5B"}}});
        let review = json!({"request": {"uid": "u", "name": "a", "kind": {"kind": "ServingRuntime", "group": "ome.io"}, "object": class}});
        let answer = ask(address, &first.trusted(), &review.to_string()).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("min 9B is above max 5B"), "{answer}");
        assert!(ask(address, &first.trusted(), "{").await.unwrap().starts_with("HTTP/1.1 400"));

        let second = make(Some(first.certificate.clone()));
        publish.send_replace(config(&second));
        assert!(ask(address, &second.trusted(), &review.to_string()).await.is_ok());
        assert!(ask(address, &first.trusted(), &review.to_string()).await.is_err());
        stop.cancel();
        served.await.unwrap().unwrap();
    }
}
