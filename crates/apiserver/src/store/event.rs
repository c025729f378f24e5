//! Events of the history.

use std::sync::Arc;

use super::key::ObjectKey;
use super::stored_object::StoredObject;

/// Estimated memory of an event without the text of its objects, in bytes: key, allocations and list entries.
const EVENT_OVERHEAD: usize = 512;

/// Size of the objects in bytes from which a batch takes no further events: a slow reader keeps a batch in memory.
const MAX_BATCH_BYTES: usize = 256 * 1024;

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

/// Events read from the history.
#[derive(Debug, Default)]
pub(crate) struct EventBatch {
    /// The events, oldest first.
    pub(crate) events: Vec<Arc<StoreEvent>>,
    /// Whether more events follow.
    pub(crate) has_more: bool,
}

/// The requested revision is older than the history (`ErrCompacted` of etcd).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompactedError {
    /// The oldest revision that can be requested.
    pub(crate) oldest: u64,
}

// === impl StoreEvent ===

impl StoreEvent {
    /// Returns the memory that the event needs in addition to the current objects, in bytes. The new object is not
    /// counted: it is a current object, or the old object of a later event.
    pub(super) fn retained_bytes(&self) -> usize {
        let text_length = |object: &Option<Arc<StoredObject>>| object.as_ref().map_or(0, |object| object.json().len());
        EVENT_OVERHEAD + text_length(&self.old) + text_length(&self.deleted)
    }

    /// Returns the memory in bytes that cannot be released before the event is durable.
    pub(super) fn queued_bytes(&self) -> usize {
        self.retained_bytes() + self.written_bytes()
    }

    /// Returns the size of the object in the journal, in bytes.
    pub(super) fn written_bytes(&self) -> usize {
        self.new.as_ref().map_or(0, |object| object.json().len())
    }

    /// Returns the size of the objects that a watch with a selector reads, in bytes.
    pub(crate) fn read_bytes(&self) -> usize {
        [&self.old, &self.new].into_iter().flatten().map(|object| object.json().len()).sum()
    }

    /// Returns the size of the object in a watch event, in bytes.
    fn object_bytes(&self) -> usize {
        self.new.as_ref().or(self.deleted.as_ref()).map_or(0, |object| object.json().len())
    }
}

// === impl EventBatch ===

impl EventBatch {
    /// Takes the first `limit` events, and fewer if their objects are large.
    pub(super) fn take<'a>(events: impl IntoIterator<Item = &'a Arc<StoreEvent>>, limit: usize) -> Self {
        let mut batch = Self::default();
        let mut bytes = 0;
        for event in events {
            if batch.events.len() >= limit || bytes >= MAX_BATCH_BYTES {
                batch.has_more = true;
                break;
            }
            bytes += event.object_bytes();
            batch.events.push(Arc::clone(event));
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn event(revision: u64, length: usize) -> Arc<StoreEvent> {
        let key = ObjectKey { resource: "pods".to_owned(), namespace: String::new(), name: revision.to_string() };
        let object = Arc::new(StoredObject::new(&Arc::new(json!("x".repeat(length)))));
        Arc::new(StoreEvent { revision, key, old: None, new: Some(object), deleted: None })
    }

    #[rstest]
    #[case::all(3, 10, 5, (3, false))]
    #[case::exactly_the_limit(3, 10, 3, (3, false))]
    #[case::more_than_the_limit(3, 10, 2, (2, true))]
    #[case::large_objects(4, MAX_BATCH_BYTES / 2, 5, (2, true))]
    #[case::object_larger_than_a_batch(2, 2 * MAX_BATCH_BYTES, 5, (1, true))]
    #[case::none(0, 0, 5, (0, false))]
    fn batches_are_limited_by_count_and_bytes(
        #[case] count: u64,
        #[case] length: usize,
        #[case] limit: usize,
        #[case] expected: (usize, bool),
    ) {
        let events: Vec<_> = (0..count).map(|revision| event(revision, length)).collect();
        let batch = EventBatch::take(&events, limit);
        assert_eq!((batch.events.len(), batch.has_more), expected);
    }
}
