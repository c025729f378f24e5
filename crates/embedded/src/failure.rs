//! Why a cluster cannot start or continue.

use apimachinery::Status;
use apiserver::StorageFailure;
use supervisor::TaskFailure;

/// The API server rejected a Node at the start.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("failed to register node {name}: {status}")]
pub struct NodeRegistrationError {
    /// Name of the Node; empty if it has none.
    pub name: String,
    /// Response of the API server.
    pub status: Box<Status>,
}

/// Why a cluster cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterFailure {
    /// A background task failed repeatedly.
    #[error(transparent)]
    Task(TaskFailure),
    /// The store can no longer persist writes.
    #[error("the store failed: {0}")]
    Storage(StorageFailure),
}
