//! The API for kubectl: TLS on loopback, a client certificate and a token, kept in a kubeconfig that only its owner can
//! read. Either of them is enough.

pub mod kept;

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use apimachinery::status::Status;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::{Extension, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::reviews;
use crate::server::Server;

/// Names that the certificate is for and the `Host` header may have.
const HOSTS: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "kubernetes.default.svc"];

/// 256 bits, as much as the certificate's key has.
const TOKEN_BYTES: usize = 32;

/// An authority, what it signed for the server and for one client, and a bearer token; of one server, or of one
/// [data directory](crate::data_directory::DataDirectory).
pub struct Credentials {
    authority: CertificateDer<'static>,
    authority_pem: String,
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    client_pem: String,
    client_key_pem: String,
    token: String,
}

/// The client showed a certificate of the authority.
#[derive(Debug, Clone, Copy)]
struct Certified;

/// What may go wrong before the first request.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the certificate could not be made")]
    Certificate(#[from] rcgen::Error),
    #[error("TLS could not be set up")]
    Tls(#[from] rustls::Error),
    #[error("the listener could not be used")]
    Listen(#[from] io::Error),
    #[error("client certificates could not be set up")]
    Clients(#[from] rustls::server::VerifierBuilderError),
}

// === impl Credentials ===

impl Credentials {
    /// Makes a new authority, a certificate for the names of this machine itself only, one for its user, and a token.
    /// The authority's key is forgotten: nobody else gets a certificate.
    ///
    /// # Errors
    /// When the machine has no randomness to give.
    pub fn generate() -> Result<Self, ServeError> {
        let names = ["localhost", "127.0.0.1", "::1", "kubernetes.default.svc"].map(str::to_owned);
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name = named("ostler", None);
        let authority_key = KeyPair::generate()?;
        let made = authority.self_signed(&authority_key)?;
        let issuer = Issuer::new(authority, authority_key);
        let (key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
        let server = leaf(names.to_vec(), named("kube-apiserver", None), ExtendedKeyUsagePurpose::ServerAuth)?;
        let client = leaf(Vec::new(), named(reviews::USER, Some(reviews::GROUP)), ExtendedKeyUsagePurpose::ClientAuth)?;
        let (server, client) = (server.signed_by(&key, &issuer)?, client.signed_by(&client_key, &issuer)?);
        let mut secret = [0; TOKEN_BYTES];
        let random = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut secret).map_err(rustls::Error::from)?;
        let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(secret);
        Ok(Self {
            authority: made.der().clone(),
            authority_pem: made.pem(),
            certificate: server.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()),
            client_pem: client.pem(),
            client_key_pem: client_key.serialize_pem(),
            token,
        })
    }
}

fn leaf(
    names: Vec<String>,
    subject: DistinguishedName,
    usage: ExtendedKeyUsagePurpose,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = subject;
    params.extended_key_usages = vec![usage];
    Ok(params)
}

fn named(name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    if let Some(organization) = organization {
        subject.push(DnType::OrganizationName, organization);
    }
    subject
}

/// A kubeconfig for `url`, with the authority to trust, the client's certificate and the token.
#[must_use]
pub fn kubeconfig(credentials: &Credentials, url: &str) -> String {
    let ca = STANDARD.encode(&credentials.authority_pem);
    let (certificate, key) = (STANDARD.encode(&credentials.client_pem), STANDARD.encode(&credentials.client_key_pem));
    let token = &credentials.token;
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: ostler\nclusters:\n- name: ostler\n  cluster:\n    server: {url}\n    certificate-authority-data: {ca}\nusers:\n- name: ostler\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n    token: {token}\ncontexts:\n- name: ostler\n  context:\n    cluster: ostler\n    user: ostler\n    namespace: default\n"
    )
}

/// Writes a kubeconfig that only its owner can read, replacing what was there.
///
/// # Errors
/// When the file cannot be written.
pub fn write_kubeconfig(path: &Path, text: &str) -> io::Result<()> {
    write_private(path, text)
}

/// Writes a file that only its owner can read; there is the old one or the new one, never a part.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    let partial = path.with_extension("partial");
    if partial.exists() {
        std::fs::remove_file(&partial)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&partial)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&partial, path)
}

/// Serves until `stop`. The listener should be bound to a loopback address.
///
/// # Errors
/// When TLS cannot be set up or the listener is unusable.
pub async fn serve(
    server: Server,
    listener: TcpListener,
    credentials: &Credentials,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let acceptor = TlsAcceptor::from(Arc::new(tls(credentials)?));
    let token: Arc<str> = format!("Bearer {}", credentials.token).into();
    let router = server.router().layer(middleware::from_fn_with_state(token, guard));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (acceptor, router, stop) = (acceptor.clone(), router.clone(), stop.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = connection(stream, acceptor, router) => {}
                    }
                });
            }
            // Out of descriptors, say: wait for some connection to end.
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

fn tls(credentials: &Credentials) -> Result<rustls::ServerConfig, ServeError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(credentials.authority.clone())?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![credentials.certificate.clone()], PrivateKeyDer::Pkcs8(credentials.key.clone_key()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

async fn connection(stream: tokio::net::TcpStream, acceptor: TlsAcceptor, router: Router) {
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "no TLS"),
    };
    let router = match stream.get_ref().1.peer_certificates() {
        Some(_) => router.layer(Extension(Certified)),
        None => router,
    };
    let service = TowerToHyperService::new(router);
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection ended badly");
    }
}

/// Lets in who has the certificate or knows the token, and no web page: a browser sends `Origin`, and a rebound name is in `Host`.
async fn guard(State(token): State<Arc<str>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let known = headers.get(header::AUTHORIZATION).is_some_and(|sent| same(sent.as_bytes(), token.as_bytes()));
    let certified = request.extensions().get::<Certified>().is_some();
    if !known && !certified {
        return crate::http::refuse(&Status::unauthorized());
    }
    let host = request.uri().host().map(str::to_owned).or_else(|| {
        let host = headers.get(header::HOST)?.to_str().ok()?;
        Some(host.rsplit_once(':').map_or(host, |(name, _)| name).to_owned())
    });
    let ours = host.is_some_and(|host| HOSTS.contains(&host.as_str()));
    if !ours || headers.contains_key(header::ORIGIN) {
        let mut status = Status::unauthorized();
        (status.code, status.reason) = (403, "Forbidden");
        status.message = "requests from web pages or for other hosts are not served".to_owned();
        return crate::http::refuse(&status);
    }
    next.run(request).await
}

/// Takes the same time wherever the difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
