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
    /// The pool in the request path does not exist.
    #[error("The pool {0} does not exist.")]
    PoolNotFound(NamespacedName),
    /// No endpoint of the pool is ready, or all attempts failed.
    #[error("No endpoint of pool {0} is available.")]
    NoEndpointAvailable(NamespacedName),
}
