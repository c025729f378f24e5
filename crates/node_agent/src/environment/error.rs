//! Errors of the environment of a container.

/// An error that prevents a container from being configured for now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvironmentError {
    /// An object does not exist: `CreateContainerConfigError`.
    #[error("{0}")]
    NotFound(String),
    /// The Pod with this host name has no IP yet. On a cluster with DNS, the container itself would wait for the name
    /// to resolve.
    #[error("waiting for the address of {0}")]
    Unresolved(String),
}
