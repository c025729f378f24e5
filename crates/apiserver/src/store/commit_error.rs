//! Rejected writes.

use std::sync::Arc;

use super::failure::StorageFailure;

/// The reason for rejecting a write.
#[derive(Debug, Clone)]
pub(crate) enum CommitError {
    /// Conflict: the object was changed concurrently. Read it again and retry.
    Conflict,
    /// The store currently rejects writes.
    Unavailable(Arc<StorageFailure>),
    /// The object is nested too deeply to be read back.
    TooDeep,
    /// The object is too large.
    TooLarge,
}
