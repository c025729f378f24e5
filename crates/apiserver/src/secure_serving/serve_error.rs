//! Reasons why the server cannot start.

use std::io;
use std::net::SocketAddr;

/// Reason why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A certificate cannot be generated.
    #[error("failed to generate a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The TLS configuration is invalid.
    #[error("failed to set up TLS")]
    Tls(#[from] rustls::Error),
    /// The listener is unusable.
    #[error("failed to set up the listener")]
    Listen(#[from] io::Error),
    /// The listener is not bound to a loopback address.
    #[error("{0} is not a loopback address")]
    NotLoopback(SocketAddr),
    /// The verification of client certificates cannot be set up.
    #[error("failed to set up client certificate verification")]
    ClientVerifier(#[from] rustls::server::VerifierBuilderError),
}
