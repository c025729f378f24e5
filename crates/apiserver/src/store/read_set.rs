//! The reads that a write depends on.

use std::sync::Arc;

use super::state::State;
use super::{ObjectKey, StoredObject};

/// Objects and collections that the checks of a write have read. The store rejects the write if one of them has changed
/// since, which makes the checks and the write atomic.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    /// The object of each key, or `None` if it did not exist.
    objects: Vec<(ObjectKey, Option<Arc<StoredObject>>)>,
    /// The last change of each resource.
    resources: Vec<(String, u64)>,
}

// === impl ReadSet ===

impl ReadSet {
    /// Adds an object that was read, or that was found not to exist.
    pub(crate) fn add_object(&mut self, key: ObjectKey, object: Option<Arc<StoredObject>>) {
        self.objects.push((key, object));
    }

    /// Adds all objects of a resource.
    pub(super) fn add_resource(&mut self, resource: &str, last_change: u64) {
        self.resources.push((resource.to_owned(), last_change));
    }

    /// Reports whether everything is still as it was read.
    pub(super) fn is_current(&self, state: &State) -> bool {
        let is_unchanged = |(key, read): &(ObjectKey, Option<Arc<StoredObject>>)| match (read, state.get(key)) {
            (Some(read), Some(current)) => Arc::ptr_eq(read, current),
            (None, None) => true,
            _ => false,
        };
        self.objects.iter().all(is_unchanged)
            && self.resources.iter().all(|(resource, last_change)| state.last_change(resource) == *last_change)
    }
}
