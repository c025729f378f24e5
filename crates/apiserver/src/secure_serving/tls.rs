//! TLS configuration of the server: its certificate and the verification of client certificates.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, SupportedCipherSuite};

use super::{Credentials, ServeError};

/// Response to a plain HTTP request, identical to that of Go's server.
pub(super) const PLAIN_HTTP_RESPONSE: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Reports whether a connection that starts with `first_byte` is a TLS connection: 0x16 is the content type of
/// handshake records.
pub(super) fn is_tls(first_byte: u8) -> bool {
    first_byte == 0x16
}

/// Returns a provider that prefers AES-128-GCM to AES-256-GCM, as Go's server does: clients are on this host, where the
/// longer key adds no protection but costs 14 instead of 10 rounds per block.
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let is_aes_128 = |suite: &SupportedCipherSuite| {
        let suite = suite.suite();
        suite.as_str().is_some_and(|name| name.contains("AES_128_GCM"))
    };
    provider.cipher_suites.sort_by_key(|suite| !is_aes_128(suite));
    provider
}

pub(super) fn server_config(credentials: &Credentials) -> Result<rustls::ServerConfig, ServeError> {
    let provider = Arc::new(provider());
    let mut roots = RootCertStore::empty();
    roots.add(credentials.authority.clone())?;
    let client_verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(client_verifier)
        .with_single_cert(vec![credentials.certificate.clone()], PrivateKeyDer::Pkcs8(credentials.key.clone_key()))?;
    config.ignore_client_order = true;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
