//! The server's side of TLS: its certificate, and the authority that clients' certificates are from.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, SupportedCipherSuite};

use super::{Credentials, ServeError};

/// What is said to a client that speaks plain HTTP, in the words of Go's server.
pub(super) const PLAIN: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Whether a connection that begins with this byte speaks TLS: its first record is a handshake.
pub(super) fn is_tls(first: u8) -> bool {
    first == 0x16
}

/// The cipher suites, AES-128-GCM before AES-256-GCM as in Go's server, whatever the client prefers: clients are on this
/// machine, where the longer key protects nothing more and costs both sides four rounds in ten more.
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let is_short = |suite: &SupportedCipherSuite| {
        let suite = suite.suite();
        suite.as_str().is_some_and(|name| name.contains("AES_128_GCM"))
    };
    provider.cipher_suites.sort_by_key(|suite| !is_short(suite));
    provider
}

pub(super) fn config(credentials: &Credentials) -> Result<rustls::ServerConfig, ServeError> {
    let provider = Arc::new(provider());
    let mut roots = RootCertStore::empty();
    roots.add(credentials.authority.clone())?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![credentials.certificate.clone()], PrivateKeyDer::Pkcs8(credentials.key.clone_key()))?;
    config.ignore_client_order = true;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
