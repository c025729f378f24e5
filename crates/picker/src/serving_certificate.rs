//! Serving certificate: self-signed, for proxies that accept any certificate, or from files that are reloaded on change; TLS
//! handshakes with it.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use crate::certificate_files::{CertificateFileError, CertificatePair, RELOAD_INTERVAL};

/// How long a client may take for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A serving certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The self-signed certificate cannot be generated.
    #[error("failed to generate a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// The certificate or the key is invalid, or they do not match.
    #[error("invalid certificate: {0}")]
    Tls(#[from] rustls::Error),
    /// A file cannot be read or is not valid PEM.
    #[error(transparent)]
    File(#[from] CertificateFileError),
}

/// Certificate and key for TLS connections.
#[derive(Debug)]
pub struct ServingCertificate {
    config: RwLock<Arc<ServerConfig>>,
    files: Option<CertificateFiles>,
}

/// Directory with certificate files, and their last loaded contents.
#[derive(Debug)]
struct CertificateFiles {
    directory: PathBuf,
    contents: RwLock<CertificatePair>,
}

// === impl ServingCertificate ===

impl ServingCertificate {
    /// Generates a self-signed certificate.
    ///
    /// # Errors
    /// The key or the certificate cannot be generated.
    pub fn self_signed() -> Result<Self, CertificateError> {
        let certified_key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified_key.signing_key.serialize_der()));
        let config = server_config(vec![certified_key.cert.der().clone()], key)?;
        Ok(Self { config: RwLock::new(config), files: None })
    }

    /// Loads `tls.crt` and `tls.key` from `directory`.
    ///
    /// # Errors
    /// A file cannot be read or is invalid, or the key does not match the certificate.
    pub fn from_directory(directory: &Path) -> Result<Self, CertificateError> {
        let contents = CertificatePair::read(directory)?;
        let config = RwLock::new(file_config(&contents)?);
        let files = CertificateFiles { directory: directory.to_owned(), contents: RwLock::new(contents) };
        Ok(Self { config, files: Some(files) })
    }

    /// Returns the connection after the TLS handshake, or `None` if it fails or takes too long.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Option<TlsStream<S>> {
        match timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(self.config()).accept(stream)).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake timed out"),
        }
        None
    }

    /// Returns the TLS configuration for a new connection.
    fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reloads changed files until `shutdown`. If they are invalid, the last valid certificate remains in use.
    pub async fn reload_on_change(&self, shutdown: CancellationToken) {
        while shutdown.run_until_cancelled(sleep(RELOAD_INTERVAL)).await.is_some() {
            match self.reload() {
                Ok(true) => tracing::info!("reloaded the serving certificate"),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "failed to reload the serving certificate, using the previous one");
                }
            }
        }
    }

    /// Reloads the files and returns whether they changed.
    fn reload(&self) -> Result<bool, CertificateError> {
        let Some(files) = &self.files else { return Ok(false) };
        let contents = CertificatePair::read(&files.directory)?;
        if *files.contents.read().unwrap_or_else(PoisonError::into_inner) == contents {
            return Ok(false);
        }
        let config = file_config(&contents)?;
        *files.contents.write().unwrap_or_else(PoisonError::into_inner) = contents;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(true)
    }
}

/// Returns the TLS configuration with the contents of the files.
fn file_config(contents: &CertificatePair) -> Result<Arc<ServerConfig>, CertificateError> {
    let (chain, key) = contents.parse()?;
    server_config(chain, key)
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, CertificateError> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        time::Instant,
    };

    use std::fs;

    use super::*;
    use crate::certificate_files::{CERTIFICATE_FILE, KEY_FILE};

    fn write(directory: &Path) {
        let generated = rcgen::generate_simple_self_signed(vec!["picker".to_owned()]).unwrap();
        fs::write(directory.join(CERTIFICATE_FILE), generated.cert.pem()).unwrap();
        fs::write(directory.join(KEY_FILE), generated.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn reloads_changed_files_and_retains_last_valid_certificate() {
        let temporary_directory = tempfile::tempdir().unwrap();
        let directory = temporary_directory.path();
        let missing = ServingCertificate::from_directory(directory).unwrap_err().to_string();
        assert!(missing.contains("tls.crt: No such file"), "{missing}");
        write(directory);
        let certificate = ServingCertificate::from_directory(directory).unwrap();
        let first = certificate.config();
        assert!(!certificate.reload().unwrap());
        write(directory);
        assert!(certificate.reload().unwrap());
        let second = certificate.config();
        assert!(!Arc::ptr_eq(&first, &second));
        fs::write(directory.join(KEY_FILE), "no key").unwrap();
        let invalid = certificate.reload().unwrap_err().to_string();
        assert!(invalid.contains("tls.key: "), "{invalid}");
        assert!(Arc::ptr_eq(&second, &certificate.config()));
    }

    /// Neither a client that sends nothing nor one that sends the first byte of a TLS record occupies a connection.
    #[rstest]
    #[case::no_byte(&[])]
    #[case::incomplete_record(&[22])]
    #[tokio::test(start_paused = true)]
    async fn silent_connection_times_out(#[case] sent: &[u8]) {
        let certificate = ServingCertificate::self_signed().unwrap();
        let (mut client, server) = tokio::io::duplex(64);
        client.write_all(sent).await.unwrap();
        let start = Instant::now();
        assert!(certificate.accept(server).await.is_none());
        assert_eq!(start.elapsed().as_secs(), 10);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "the connection is closed");
    }
}
