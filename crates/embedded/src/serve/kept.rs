//! Credentials in a file of their owner's alone.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};

use super::{Credentials, ServeError, private, tls};

/// Version of the file; another one is refused.
const FORMAT: u32 = 1;

/// The kept credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    #[error("{file}: {error}")]
    Io { file: String, error: io::Error },
    #[error("{file}: others can read it, its mode is {mode:o}")]
    Exposed { file: String, mode: u32 },
    #[error("{file}: not the credentials of an API: {cause}")]
    Damaged { file: String, cause: String },
    #[error(transparent)]
    Generate(#[from] ServeError),
}

/// The file; DER in base64, and PEM for what a kubeconfig holds.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Kept {
    format: u32,
    authority: String,
    authority_pem: String,
    certificate: String,
    key: String,
    client_pem: String,
    client_key_pem: String,
    token: String,
}

/// The credentials in the file, or new ones that are there from now on.
///
/// # Errors
/// When the file is damaged or others can read it.
pub(crate) fn load_or_make(path: &Path) -> Result<Credentials, KeptError> {
    let file = || path.display().to_string();
    let failed = |error| KeptError::Io { file: file(), error };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return make(path),
        Err(error) => return Err(failed(error)),
    };
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeptError::Exposed { file: file(), mode });
    }
    read(&text).map_err(|cause| KeptError::Damaged { file: file(), cause })
}

fn make(path: &Path) -> Result<Credentials, KeptError> {
    let credentials = Credentials::generate()?;
    let failed = |error| KeptError::Io { file: path.display().to_string(), error };
    let text = serde_json::to_string_pretty(&Kept::from(&credentials)).map_err(|error| failed(error.into()))?;
    private::write(path, &text).map_err(failed)?;
    Ok(credentials)
}

fn read(text: &str) -> Result<Credentials, String> {
    let kept: Kept = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if kept.format != FORMAT {
        return Err(format!("format {}, and this version reads {FORMAT}", kept.format));
    }
    let bytes = |field: &str, text: &str| STANDARD.decode(text).map_err(|error| format!("{field}: {error}"));
    let credentials = Credentials {
        authority: CertificateDer::from(bytes("authority", &kept.authority)?),
        authority_pem: kept.authority_pem,
        certificate: CertificateDer::from(bytes("certificate", &kept.certificate)?),
        key: PrivatePkcs8KeyDer::from(bytes("key", &kept.key)?),
        client_pem: kept.client_pem,
        client_key_pem: kept.client_key_pem,
        token: kept.token,
    };
    // What does not serve now is found now.
    tls::config(&credentials).map_err(|error| error.to_string())?;
    Ok(credentials)
}

// === impl Kept ===

impl From<&Credentials> for Kept {
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
