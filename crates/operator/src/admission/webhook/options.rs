//! Options of the admission webhook.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// Options of the admission webhook.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Listener, which the caller binds so that a port conflict is reported at start.
    pub listener: Arc<TcpListener>,
    /// Address that the API server calls.
    pub target: WebhookTarget,
}

/// Address that the API server calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookTarget {
    /// The operator runs outside of the cluster at this address; the certificate exists only in memory.
    Url(SocketAddr),
    /// The operator runs behind a Service; its replicas share a certificate in a Secret of this namespace.
    Service {
        /// Namespace of the Service and of the Secret.
        namespace: String,
        /// Name of the Service.
        name: String,
    },
}
