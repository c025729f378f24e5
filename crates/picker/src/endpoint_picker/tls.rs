//! TLS: a certificate made here, for proxies that trust any, or one from files that are renewed while we run.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    ServerConfig,
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer,
        pem::{self, PemObject as _},
    },
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Names of the files, as in a Secret of type `kubernetes.io/tls`.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Between two looks at the files. A renewed Secret takes about a minute to be seen anyway.
const LOOK: Duration = Duration::from_secs(15);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("{}: {cause}", path.display())]
    Pem { path: PathBuf, cause: pem::Error },
}

/// The certificate that connections are answered with.
#[derive(Debug)]
pub struct Tls {
    config: RwLock<Arc<ServerConfig>>,
    files: Option<Files>,
}

/// A folder, and what was last read from it.
#[derive(Debug)]
struct Files {
    folder: PathBuf,
    read: RwLock<Contents>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Tls {
    /// A certificate of our own, made anew by every process.
    ///
    /// # Errors
    /// When the key cannot be made.
    pub fn self_signed() -> Result<Self, TlsError> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let config = config(vec![made.cert.der().clone()], key)?;
        Ok(Self { config: RwLock::new(config), files: None })
    }

    /// The certificate and the key in `folder`: `tls.crt` and `tls.key`.
    ///
    /// # Errors
    /// When one of them is missing, unreadable, or does not fit the other.
    pub fn from_folder(folder: &Path) -> Result<Self, TlsError> {
        let contents = Contents::read(folder)?;
        let config = RwLock::new(contents.config(folder)?);
        Ok(Self { config, files: Some(Files { folder: folder.to_owned(), read: RwLock::new(contents) }) })
    }

    /// For the next connection.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes renewed files into use until `stop`; what cannot be used is told of, and the last good one stays.
    pub async fn keep_fresh(&self, stop: CancellationToken) {
        while stop.run_until_cancelled(sleep(LOOK)).await.is_some() {
            match self.renew() {
                Ok(true) => tracing::info!("the certificate was renewed"),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the certificate was not renewed; the one before stays in use"),
            }
        }
    }

    /// Whether there was something new.
    fn renew(&self) -> Result<bool, TlsError> {
        let Some(files) = &self.files else { return Ok(false) };
        let contents = Contents::read(&files.folder)?;
        if *files.read.read().unwrap_or_else(PoisonError::into_inner) == contents {
            return Ok(false);
        }
        let config = contents.config(&files.folder)?;
        *files.read.write().unwrap_or_else(PoisonError::into_inner) = contents;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(true)
    }
}

impl Contents {
    fn read(folder: &Path) -> Result<Self, TlsError> {
        let file = |name| {
            let path = folder.join(name);
            fs::read(&path).map_err(|cause| TlsError::File { path, cause })
        };
        Ok(Self { certificate: file(CERTIFICATE)?, key: file(KEY)? })
    }

    fn config(&self, folder: &Path) -> Result<Arc<ServerConfig>, TlsError> {
        let wrong = |name| move |cause| TlsError::Pem { path: folder.join(name), cause };
        let chain = CertificateDer::pem_slice_iter(&self.certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(wrong(CERTIFICATE))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(wrong(KEY))?;
        config(chain, key)
    }
}

fn config(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path) {
        let made = rcgen::generate_simple_self_signed(vec!["picker".to_owned()]).unwrap();
        fs::write(folder.join(CERTIFICATE), made.cert.pem()).unwrap();
        fs::write(folder.join(KEY), made.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn files_are_read_renewed_and_kept_while_they_are_wrong() {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path();
        let missing = Tls::from_folder(folder).unwrap_err().to_string();
        assert!(missing.contains("tls.crt: No such file"), "{missing}");
        write(folder);
        let tls = Tls::from_folder(folder).unwrap();
        let first = tls.config();
        assert!(!tls.renew().unwrap());
        write(folder);
        assert!(tls.renew().unwrap());
        let second = tls.config();
        assert!(!Arc::ptr_eq(&first, &second));
        fs::write(folder.join(KEY), "no key").unwrap();
        let wrong = tls.renew().unwrap_err().to_string();
        assert!(wrong.contains("tls.key: "), "{wrong}");
        assert!(Arc::ptr_eq(&second, &tls.config()));
    }
}
