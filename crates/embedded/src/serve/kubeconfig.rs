//! The file with which clients find and enter the server; only its owner can read it.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Credentials;

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
    super::private::write(path, text)
}
