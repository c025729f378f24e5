//! Why a cluster cannot continue.

use apiserver::StorageFailure;
use supervisor::TaskFailure;

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
