//! Why a request cannot be sent to an endpoint.

use cluster::NamespacedName;

/// A request that cannot be routed. The message is returned to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RoutingError {
    /// No pool serves the model.
    #[error("The model `{0}` does not exist.")]
    ModelNotFound(String),
    /// No pool serves the model of this name, but models of other namespaces are called the same.
    #[error("The model `{model}` does not exist. Models with this name in other namespaces: {}.", .names.join(", "))]
    ModelInOtherNamespaces {
        /// Name in the request.
        model: String,
        /// Names of the others.
        names: Vec<String>,
    },
    /// The HTTPRoute of this name has drawn a backend whose reference cannot be resolved.
    #[error("The backend of HTTPRoute {0} does not exist, may not be used, or has no weight.")]
    UnresolvedBackend(NamespacedName),
    /// The pool in the request path does not exist.
    #[error("The pool {0} does not exist.")]
    PoolNotFound(NamespacedName),
    /// No endpoint of the pool is ready, or all attempts failed.
    #[error("No endpoint of pool {0} is available.")]
    NoEndpointAvailable(NamespacedName),
    /// All engines of the pool are busy, and the queue is full.
    #[error("All engines of pool {0} are busy, and its queue is full.")]
    QueueFull(NamespacedName),
    /// All engines of the pool were busy until the timeout of its queue.
    #[error("All engines of pool {0} remained busy until the timeout of its queue.")]
    QueueTimeout(NamespacedName),
    /// The request waited in the queue of the pool until one with a higher priority required its place.
    #[error("All engines of pool {0} are busy, and requests with a higher priority fill its queue.")]
    ReplacedByPriority(NamespacedName),
    /// The request waited in the queue of the pool until one of a use case with fewer requests required its place.
    #[error("All engines of pool {0} are busy, and too many requests for this model wait in its queue.")]
    ReplacedByFairness(NamespacedName),
}

// === impl RoutingError ===

impl RoutingError {
    /// Returns the name of the reason in reports.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::ModelNotFound(_) | Self::ModelInOtherNamespaces { .. } => "ModelNotFound",
            Self::UnresolvedBackend(_) => "UnresolvedBackend",
            Self::PoolNotFound(_) => "PoolNotFound",
            Self::NoEndpointAvailable(_) => "NoEndpointAvailable",
            Self::QueueFull(_) => "QueueFull",
            Self::QueueTimeout(_) => "QueueTimeout",
            Self::ReplacedByPriority(_) => "ReplacedByPriority",
            Self::ReplacedByFairness(_) => "ReplacedByFairness",
        }
    }
}
