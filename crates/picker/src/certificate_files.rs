//! Certificate files in a directory, as of a mounted Secret of type `kubernetes.io/tls`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject as _},
};

/// Names of the files.
pub(crate) const CERTIFICATE_FILE: &str = "tls.crt";
pub(crate) const KEY_FILE: &str = "tls.key";
pub(crate) const AUTHORITY_FILE: &str = "ca.crt";

/// Interval between checks of the files. The kubelet takes about a minute to update a mounted Secret.
pub(crate) const RELOAD_INTERVAL: Duration = Duration::from_secs(15);

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFileError {
    /// It cannot be read.
    #[error("{}: {cause}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// I/O error.
        cause: io::Error,
    },
    /// It is not valid PEM.
    #[error("{}: {cause}", path.display())]
    Pem {
        /// Path of the file.
        path: PathBuf,
        /// Error of the PEM parser.
        cause: pem::Error,
    },
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateFile {
    path: PathBuf,
    content: Vec<u8>,
}

/// Certificate and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificatePair {
    certificate: CertificateFile,
    key: CertificateFile,
}

// === impl CertificateFile ===

impl CertificateFile {
    /// Reads the file `name` of `directory`.
    ///
    /// # Errors
    /// [`CertificateFileError::File`].
    pub(crate) fn read(directory: &Path, name: &str) -> Result<Self, CertificateFileError> {
        let path = directory.join(name);
        match fs::read(&path) {
            Ok(content) => Ok(Self { path, content }),
            Err(cause) => Err(CertificateFileError::File { path, cause }),
        }
    }

    /// Returns its certificates.
    ///
    /// # Errors
    /// [`CertificateFileError::Pem`].
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, CertificateFileError> {
        CertificateDer::pem_slice_iter(&self.content).collect::<Result<_, _>>().map_err(|cause| self.invalid(cause))
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, CertificateFileError> {
        PrivateKeyDer::from_pem_slice(&self.content).map_err(|cause| self.invalid(cause))
    }

    fn invalid(&self, cause: pem::Error) -> CertificateFileError {
        CertificateFileError::Pem { path: self.path.clone(), cause }
    }
}

// === impl CertificatePair ===

impl CertificatePair {
    /// Reads `tls.crt` and `tls.key` of `directory`.
    ///
    /// # Errors
    /// [`CertificateFileError::File`].
    pub(crate) fn read(directory: &Path) -> Result<Self, CertificateFileError> {
        Ok(Self {
            certificate: CertificateFile::read(directory, CERTIFICATE_FILE)?,
            key: CertificateFile::read(directory, KEY_FILE)?,
        })
    }

    /// Returns the chain of certificates and the key.
    ///
    /// # Errors
    /// [`CertificateFileError::Pem`].
    pub(crate) fn parse(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), CertificateFileError> {
        Ok((self.certificate.certificates()?, self.key.key()?))
    }
}
