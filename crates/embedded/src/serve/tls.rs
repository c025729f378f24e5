//! The server's side of TLS: its certificate, and the authority that clients' certificates are from.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;

use super::{Credentials, ServeError};

/// What is said to a client that speaks plain HTTP, in the words of Go's server.
pub(super) const PLAIN: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Whether a connection that begins with this byte speaks TLS: its first record is a handshake.
pub(super) fn is_tls(first: u8) -> bool {
    first == 0x16
}

pub(super) fn config(credentials: &Credentials) -> Result<rustls::ServerConfig, ServeError> {
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
