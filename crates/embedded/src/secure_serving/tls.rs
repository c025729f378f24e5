//! TLS configuration of the server: its certificate and the verification of client certificates.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, SupportedCipherSuite};

use super::{Credentials, ServeError};

/// Response to plain HTTP, as Go's server sends it.
pub(super) const PLAIN_HTTP_RESPONSE: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Reports whether `first` starts a TLS connection: the content type of a handshake record.
pub(super) fn is_tls(first: u8) -> bool {
    first == 0x16
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
