//! Errors of the admission webhook.

/// Error of the admission webhook.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookError {
    /// The certificate cannot be created.
    #[error("failed to create the certificate")]
    Certificate(#[from] rcgen::Error),
    /// The TLS library rejects the certificate.
    #[error("failed to configure TLS")]
    Tls(#[from] rustls::Error),
    /// The listener failed.
    #[error("failed to set up the listener")]
    Listen(#[from] std::io::Error),
    /// A request to the API server failed.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// The Secret of this name cannot be used.
    #[error("Secret {0} contains no usable certificate; delete the Secret to create a new certificate")]
    Secret(String),
}
