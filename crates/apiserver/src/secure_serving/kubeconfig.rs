//! Kubeconfig for the server.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Credentials;

/// Returns a kubeconfig for the server at `url` with certificate authority, client certificate and token. `extensions` are those of the
/// cluster by name, in JSON.
#[must_use]
pub fn kubeconfig(credentials: &Credentials, url: &str, extensions: &[(&str, serde_json::Value)]) -> String {
    let ca = STANDARD.encode(&credentials.authority_pem);
    let (certificate, key) = (STANDARD.encode(&credentials.client_pem), STANDARD.encode(&credentials.client_key_pem));
    let token = &credentials.token;
    let entries: String = extensions
        .iter()
        .map(|(name, extension)| format!("    - name: {name}\n      extension: {extension}\n"))
        .collect();
    let extensions = if entries.is_empty() { entries } else { format!("    extensions:\n{entries}") };
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: ostler\nclusters:\n- name: ostler\n  cluster:\n    server: {url}\n    certificate-authority-data: {ca}\n{extensions}users:\n- name: ostler\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n    token: {token}\ncontexts:\n- name: ostler\n  context:\n    cluster: ostler\n    user: ostler\n    namespace: default\n"
    )
}

/// Atomically writes a kubeconfig file that only its owner can read.
///
/// # Errors
/// If the file cannot be written.
pub fn write_kubeconfig(path: &Path, text: &str) -> io::Result<()> {
    super::private_file::write_private_file(path, text)
}
