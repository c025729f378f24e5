//! Events of the history.

use std::sync::Arc;

use super::key::ObjectKey;
use super::stored_object::StoredObject;

/// One write: the object before and after a revision.
#[derive(Debug)]
pub(crate) struct StoreEvent {
    /// Revision of the write.
    pub(crate) revision: u64,
    /// The written object.
    pub(crate) key: ObjectKey,
    /// `None` when the object was created.
    pub(crate) old: Option<Arc<StoredObject>>,
    /// `None` when the object was deleted.
    pub(crate) new: Option<Arc<StoredObject>>,
    /// For a deletion: the last state of the object, with the revision of the deletion as `resourceVersion`, from which
    /// clients resume watches.
    pub(crate) deleted: Option<Arc<StoredObject>>,
}

/// The requested revision is older than the history (`ErrCompacted` of etcd).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompactedError {
    /// The oldest revision that can be requested.
    pub(crate) oldest: u64,
}
