//! Results of writes and deletions.

use std::sync::Arc;

use serde_json::Value;

use super::subresource::Subresource;
use crate::resources::Resource;
use crate::store::ObjectKey;

/// Result of a write.
#[derive(Debug, Clone)]
pub(crate) struct WriteResult {
    /// Object after the write.
    pub(crate) object: Arc<Value>,
    /// Warnings for the client.
    pub(crate) warnings: Vec<String>,
    /// Whether the object was created.
    pub(crate) created: bool,
    /// What was stored; `None` for dry runs, reviews and writes that change nothing.
    pub(crate) committed: Option<Committed>,
}

/// A change that the store has committed. [`crate::cascade`] carries out what follows from it.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    /// Resource of the object.
    pub(crate) resource: Arc<Resource>,
    /// Key of the object.
    pub(crate) key: ObjectKey,
    /// How the object changed.
    pub(crate) transition: Transition,
}

/// How a committed write changed an object.
#[derive(Debug, Clone)]
pub(crate) enum Transition {
    /// The object was created.
    Created {
        /// The new object.
        new: Arc<Value>,
    },
    /// The object was updated.
    Updated {
        /// The part that the request wrote.
        subresource: Subresource,
        /// The object before the update.
        old: Arc<Value>,
        /// The object after the update.
        new: Arc<Value>,
    },
    /// A deletion was requested; finalizers, a grace period or contents delay it.
    Terminating {
        /// The object with its deletion timestamp.
        new: Arc<Value>,
    },
    /// The object was removed.
    Removed {
        /// The object before its removal.
        old: Arc<Value>,
    },
}
