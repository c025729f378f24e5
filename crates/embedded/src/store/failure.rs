//! Why a write was not stored, as a client is told.

use std::io;

use apimachinery::status::Status;

/// Why writes do not become durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {cause}")]
pub struct Failure {
    file: String,
    cause: String,
    /// There is no room, rather than something broken.
    full: bool,
}

// === impl Failure ===

impl Failure {
    pub(super) fn new(file: String, error: &io::Error) -> Self {
        let full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        Self { file, cause: error.to_string(), full }
    }

    /// As a client is told: 507 where there is no room, 500 otherwise.
    #[must_use]
    pub fn status(&self) -> Status {
        const AFTER: &str = "what is stored can be read, and writes are accepted again by themselves";
        if self.full {
            let message = format!("not stored: {self}; {AFTER} when there is room");
            return Status::insufficient_storage(message);
        }
        Status::internal(format!("not stored: {self}; {AFTER} when the file can be written anew"))
    }
}
