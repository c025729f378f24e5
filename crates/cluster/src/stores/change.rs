//! Changes to the caches, in key order.

use std::sync::Arc;

use serde_json::Value;

use crate::Kind;
use crate::cached_object::CachedObject;
use crate::namespaced_name::NamespacedName;

/// A change to a cache.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The first list of this kind is complete.
    Synced(Kind),
    /// An object was created, updated or deleted; at least one of `old` and `new` is set.
    Object {
        /// Kind of the object.
        kind: Kind,
        /// Namespace and name.
        key: NamespacedName,
        /// Previous version.
        old: Option<Arc<Value>>,
        /// New version.
        new: Option<Arc<Value>>,
    },
}

/// Changes that one event caused, in key order. The objects of a change are parsed when the iterator returns it, so that
/// the objects of a long list are not all parsed at the same time.
#[derive(Debug)]
pub struct Changes(std::vec::IntoIter<CachedChange>);

/// A change with objects in their cached representation.
#[derive(Debug)]
pub(super) enum CachedChange {
    /// See [`Change::Synced`].
    Synced(Kind),
    /// See [`Change::Object`].
    Object {
        kind: Kind,
        key: NamespacedName,
        old: Option<CachedObject>,
        new: Option<CachedObject>,
        /// Parsed objects that are kept alive, so that the iterator does not parse them again.
        parsed: Vec<Arc<Value>>,
    },
}

// === impl Changes ===

impl From<Vec<CachedChange>> for Changes {
    fn from(changes: Vec<CachedChange>) -> Self {
        Changes(changes.into_iter())
    }
}

impl Iterator for Changes {
    type Item = Change;

    fn next(&mut self) -> Option<Change> {
        let change = match self.0.next()? {
            CachedChange::Synced(kind) => Change::Synced(kind),
            CachedChange::Object { kind, key, old, new, parsed: _parsed } => {
                let value = |cached: Option<CachedObject>| cached.map(|cached| cached.value());
                Change::Object { kind, key, old: value(old), new: value(new) }
            }
        };
        Some(change)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Changes {}

// === impl CachedChange ===

impl CachedChange {
    pub(super) fn without_parsed_objects(mut self) -> CachedChange {
        if let CachedChange::Object { parsed, .. } = &mut self {
            parsed.clear();
        }
        self
    }
}
