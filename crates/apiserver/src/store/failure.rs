//! Storage failures.

use std::io;

use apimachinery::Status;

/// A failure to persist writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {cause}")]
pub struct StorageFailure {
    file: String,
    cause: String,
    /// Whether the cause is a full disk or an exceeded quota.
    is_full: bool,
}

// === impl StorageFailure ===

impl StorageFailure {
    pub(super) fn new(file: String, error: &io::Error) -> Self {
        let is_full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        Self { file, cause: error.to_string(), is_full }
    }

    /// Returns the API status: 507 when the storage is full, 500 otherwise.
    #[must_use]
    pub(crate) fn status(&self) -> Status {
        const RECOVERY_HINT: &str = "stored objects can be read, and writes are accepted again";
        if self.is_full {
            let message = format!("failed to store the object: {self}; {RECOVERY_HINT} once space is available");
            return Status::insufficient_storage(message);
        }
        Status::internal_error(format!(
            "failed to store the object: {self}; {RECOVERY_HINT} once the file can be rewritten"
        ))
    }
}
