//! The certificate of the replicas, with which they authenticate each other.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::verify_server_name,
    pki_types::ServerName,
    server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier},
};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::protocol::{CONNECT_TIMEOUT, PROTOCOL};
use crate::certificate_files::{
    AUTHORITY_FILE, CertificateFile, CertificateFileError, CertificatePair, RELOAD_INTERVAL,
};

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PeerCertificateError {
    /// A file cannot be read or is not valid PEM.
    #[error(transparent)]
    File(#[from] CertificateFileError),
    /// A certificate or the key is invalid, or they do not match.
    #[error("invalid certificate: {0}")]
    Tls(#[from] rustls::Error),
    /// The certificates of the authority are invalid.
    #[error("invalid certificate authority: {0}")]
    Authority(#[from] VerifierBuilderError),
}

/// Certificate, key and certificate authority of the replicas, from the files of a directory. Connections that are opened after the
/// files have changed use their new contents.
#[derive(Debug)]
pub struct PeerCertificate {
    directory: PathBuf,
    /// DNS name of the Service, for which the certificates of all peers are valid.
    service: ServerName<'static>,
    configs: RwLock<Option<TlsConfigs>>,
}

/// Contents of the files, and the TLS configurations with them.
#[derive(Debug, Clone)]
pub(super) struct TlsConfigs {
    files: Files,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Files {
    pair: CertificatePair,
    authority: CertificateFile,
}

// === impl PeerCertificate ===

impl PeerCertificate {
    /// Returns the certificate with the files `tls.crt`, `tls.key` and `ca.crt` of `directory`, which may not exist yet. All peers
    /// have a certificate for `service`.
    ///
    /// # Errors
    /// `service` is not a DNS name.
    pub fn from_directory(directory: &Path, service: &str) -> Result<Self, rustls::pki_types::InvalidDnsNameError> {
        let service = ServerName::try_from(service.to_owned())?;
        Ok(Self { directory: directory.to_owned(), service, configs: RwLock::default() })
    }

    /// Waits until the files exist and are valid.
    pub(super) async fn wait_until_loaded(&self, service: &str) {
        let mut last_error = String::new();
        while let Err(error) = self.reload() {
            let error = error.to_string();
            if error != last_error {
                tracing::info!(
                    %error, %service,
                    "replicas do not exchange their state: create a Secret with tls.crt, tls.key and ca.crt for the Service"
                );
                last_error = error;
            }
            sleep(RELOAD_INTERVAL).await;
        }
    }

    /// Reloads changed files. If they are invalid, the last valid certificate remains in use.
    pub(super) async fn reload_on_change(self: Arc<Self>) {
        let mut last_error = String::new();
        loop {
            sleep(RELOAD_INTERVAL).await;
            match self.reload() {
                Ok(true) => tracing::info!("reloaded the certificate of peers"),
                Ok(false) => last_error.clear(),
                Err(error) if error.to_string() == last_error => {}
                Err(error) => {
                    tracing::warn!(%error, "failed to reload the certificate of peers, using the previous one");
                    last_error = error.to_string();
                }
            }
        }
    }

    /// Reloads the files and returns whether they changed.
    pub(super) fn reload(&self) -> Result<bool, PeerCertificateError> {
        let files = Files::read(&self.directory)?;
        if self.configs().is_some_and(|configs| configs.files == files) {
            return Ok(false);
        }
        let configs = TlsConfigs::new(files)?;
        *self.configs.write().unwrap_or_else(PoisonError::into_inner) = Some(configs);
        Ok(true)
    }

    pub(super) fn configs(&self) -> Option<TlsConfigs> {
        self.configs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the connection of a peer after the TLS handshake.
    ///
    /// # Errors
    /// The client has no certificate for the Service, speaks another protocol, or takes too long.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
        let config = self.configs().ok_or(io::ErrorKind::NotFound)?.server;
        let stream = timeout(CONNECT_TIMEOUT, TlsAcceptor::from(config).accept(stream)).await??;
        let (_, connection) = stream.get_ref();
        require_protocol(connection.alpn_protocol())?;
        let certificate =
            connection.peer_certificates().and_then(<[_]>::first).ok_or(io::ErrorKind::PermissionDenied)?;
        let certificate = ParsedCertificate::try_from(certificate).map_err(io::Error::other)?;
        verify_server_name(&certificate, &self.service).map_err(io::Error::other)?;
        Ok(stream)
    }

    /// Returns the connection to a peer after the TLS handshake.
    ///
    /// # Errors
    /// The server has no certificate for the Service, speaks another protocol, or takes too long.
    pub(super) async fn connect(&self, stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        let config = self.configs().ok_or(io::ErrorKind::NotFound)?.client;
        let connect = TlsConnector::from(config).connect(self.service.clone(), stream);
        let stream = timeout(CONNECT_TIMEOUT, connect).await??;
        require_protocol(stream.get_ref().1.alpn_protocol())?;
        Ok(stream)
    }
}

fn require_protocol(negotiated: Option<&[u8]>) -> io::Result<()> {
    match negotiated {
        Some(PROTOCOL) => Ok(()),
        _ => Err(io::Error::other("the peer supports no version of the protocol of this release")),
    }
}

// === impl Files ===

impl Files {
    fn read(directory: &Path) -> Result<Self, CertificateFileError> {
        let pair = CertificatePair::read(directory)?;
        Ok(Self { pair, authority: CertificateFile::read(directory, AUTHORITY_FILE)? })
    }
}

// === impl TlsConfigs ===

impl TlsConfigs {
    fn new(files: Files) -> Result<Self, PeerCertificateError> {
        let (chain, key) = files.pair.parse()?;
        let mut roots = RootCertStore::empty();
        for certificate in files.authority.certificates()? {
            roots.add(certificate)?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build()?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())?;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self { files, server: Arc::new(server), client: Arc::new(client) })
    }
}
