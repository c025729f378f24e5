//! Persists credentials in a file that only its owner can read.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};

use super::{Credentials, ServeError, private_file, tls};

/// Version of the file format; files of other versions are rejected.
const FORMAT: u32 = 1;

/// Reason why the credentials file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file cannot be read or written.
    #[error("{file}: {error}")]
    Io {
        /// Path of the file.
        file: String,
        /// Cause.
        error: io::Error,
    },
    /// Other users can read the file.
    #[error("{file}: file mode {mode:o} grants access to other users; expected 600")]
    InsecurePermissions {
        /// Path of the file.
        file: String,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The file is not a valid credentials file.
    #[error("{file}: invalid credentials file: {cause}")]
    Corrupt {
        /// Path of the file.
        file: String,
        /// Cause.
        cause: String,
    },
    /// New credentials cannot be generated.
    #[error(transparent)]
    Generate(#[from] ServeError),
}

/// File format: DER in base64, and PEM for the fields that a kubeconfig contains.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CredentialsFile {
    format: u32,
    authority: String,
    authority_pem: String,
    certificate: String,
    key: String,
    client_pem: String,
    client_key_pem: String,
    token: String,
}

/// Loads the credentials from the file, or generates and saves new ones if the file does not exist.
///
/// # Errors
/// If the file is invalid or readable by other users.
pub fn load_or_generate_credentials(path: &Path) -> Result<Credentials, CredentialsError> {
    let file = || path.display().to_string();
    let io_error = |error| CredentialsError::Io { file: file(), error };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return generate(path),
        Err(error) => return Err(io_error(error)),
    };
    let mode = fs::metadata(path).map_err(io_error)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(CredentialsError::InsecurePermissions { file: file(), mode });
    }
    parse(&text).map_err(|cause| CredentialsError::Corrupt { file: file(), cause })
}

fn generate(path: &Path) -> Result<Credentials, CredentialsError> {
    let credentials = Credentials::generate()?;
    let io_error = |error| CredentialsError::Io { file: path.display().to_string(), error };
    let text =
        serde_json::to_string_pretty(&CredentialsFile::from(&credentials)).map_err(|error| io_error(error.into()))?;
    private_file::write_private_file(path, &text).map_err(io_error)?;
    Ok(credentials)
}

fn parse(text: &str) -> Result<Credentials, String> {
    let file: CredentialsFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if file.format != FORMAT {
        return Err(format!("unsupported format version {}; this version reads {FORMAT}", file.format));
    }
    let decode = |field: &str, text: &str| STANDARD.decode(text).map_err(|error| format!("{field}: {error}"));
    let credentials = Credentials {
        authority: CertificateDer::from(decode("authority", &file.authority)?),
        authority_pem: file.authority_pem,
        certificate: CertificateDer::from(decode("certificate", &file.certificate)?),
        key: PrivatePkcs8KeyDer::from(decode("key", &file.key)?),
        client_pem: file.client_pem,
        client_key_pem: file.client_key_pem,
        token: file.token,
    };
    // Reject unusable certificates and keys when the file is loaded.
    tls::server_config(&credentials).map_err(|error| error.to_string())?;
    Ok(credentials)
}

// === impl CredentialsFile ===

impl From<&Credentials> for CredentialsFile {
    fn from(credentials: &Credentials) -> Self {
        Self {
            format: FORMAT,
            authority: STANDARD.encode(&credentials.authority),
            authority_pem: credentials.authority_pem.clone(),
            certificate: STANDARD.encode(&credentials.certificate),
            key: STANDARD.encode(credentials.key.secret_pkcs8_der()),
            client_pem: credentials.client_pem.clone(),
            client_key_pem: credentials.client_key_pem.clone(),
            token: credentials.token.clone(),
        }
    }
}
