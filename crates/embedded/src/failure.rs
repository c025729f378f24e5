//! Why a cluster cannot continue.

use apiserver::StorageFailure;

/// Why a cluster cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterFailure {
    /// A background task failed repeatedly.
    #[error("the {task} failed repeatedly: it {cause}")]
    Task {
        /// What the task does, such as `scheduler`.
        task: &'static str,
        /// Why the task ended the last time.
        cause: String,
    },
    /// The store can no longer persist writes.
    #[error("the store failed: {0}")]
    Storage(StorageFailure),
}
