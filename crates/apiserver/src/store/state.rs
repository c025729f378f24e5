//! The state of a store behind its lock: objects, history, and the durable revision.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use apimachinery::object;
use serde_json::Value;

use super::change_signal::{ChangeReceiver, ChangeSignal};
use super::format::{CheckpointEnd, JournalEntry};
use super::index::Index;
use super::recovery::JournalContents;
use super::stored_object::UnversionedObject;
use super::watch_cache::WatchCache;
use super::{
    Collection, CollectionKey, CommitError, CompactedError, Epoch, EventBatch, NamespacedName, ObjectKey,
    StorageFailure, StoreEvent, StoredObject,
};

/// The state of a store.
pub(super) struct State {
    /// The revision of the newest visible write.
    pub(super) revision: u64,
    /// The highest revision that was ever assigned, including writes that were rolled back; it is not assigned again.
    last_assigned_revision: u64,
    /// Revisions up to this one survive a crash.
    durable_revision: u64,
    /// Number of storage failures so far, each of which may have rolled back writes.
    pub(super) rollbacks: u64,
    /// The most recent storage failure.
    failure: Option<Arc<StorageFailure>>,
    /// Whether writes are rejected.
    rejects_writes: bool,
    /// Revisions up to this one are no longer in the history.
    compacted_revision: u64,
    /// Objects by resource, without empty collections. A collection that a list is still reading is copied on the next
    /// write (copy-on-write), so lists themselves need no copy.
    pub(super) objects: BTreeMap<String, Arc<Collection>>,
    /// Number of changes of objects so far, including rollbacks.
    changes: u64,
    /// The last change of each resource that has objects.
    last_changes: BTreeMap<String, u64>,
    /// Resources whose parsed objects are always kept in memory.
    pinned_resources: BTreeSet<String>,
    pub(super) index: Index,
    pub(super) history: VecDeque<Arc<StoreEvent>>,
    /// Memory of the history in addition to the current objects, in bytes.
    history_bytes: usize,
    /// The durable events by collection.
    watch_cache: WatchCache,
    history_limits: HistoryLimits,
    /// Reports changes of the newest durable revision, and rollbacks.
    durable_changed: ChangeSignal,
}

/// A write of an object.
pub(super) enum Write {
    /// Stores a new version.
    Put(UnversionedObject),
    /// Removes the object; this is its last version.
    Delete(UnversionedObject),
}

/// Limits of the history.
#[derive(Debug, Clone, Copy)]
pub(super) struct HistoryLimits {
    /// Maximum number of events.
    pub(super) events: usize,
    /// Maximum memory in addition to the current objects, in bytes.
    pub(super) bytes: usize,
}

/// All objects at one revision.
pub(super) struct Checkpoint {
    pub(super) end: CheckpointEnd,
    pub(super) objects: Vec<(ObjectKey, Arc<StoredObject>)>,
}

/// Lengths of a journal file in bytes: in total, and of its checkpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct JournalLengths {
    pub(super) file: u64,
    pub(super) checkpoint: u64,
}

// === impl State ===

impl State {
    pub(super) fn new(history_limits: HistoryLimits) -> Self {
        Self {
            revision: 0,
            last_assigned_revision: 0,
            durable_revision: 0,
            rollbacks: 0,
            failure: None,
            rejects_writes: false,
            compacted_revision: 0,
            objects: BTreeMap::new(),
            changes: 0,
            last_changes: BTreeMap::new(),
            pinned_resources: BTreeSet::new(),
            index: Index::default(),
            history: VecDeque::new(),
            history_bytes: 0,
            watch_cache: WatchCache::default(),
            history_limits,
            durable_changed: ChangeSignal::default(),
        }
    }

    /// Returns a state with the same objects at the same revision, all of them durable, and without their history.
    pub(super) fn fork(&self) -> Self {
        Self {
            revision: self.revision,
            last_assigned_revision: self.last_assigned_revision,
            durable_revision: self.revision,
            compacted_revision: self.revision,
            objects: self.objects.clone(),
            changes: self.changes,
            last_changes: self.last_changes.clone(),
            pinned_resources: self.pinned_resources.clone(),
            index: self.index.clone(),
            ..Self::new(self.history_limits)
        }
    }

    /// Returns a receiver of the changes of the newest durable revision, and of rollbacks.
    pub(super) fn durable_changes(&self) -> ChangeReceiver {
        self.durable_changed.subscribe()
    }

    /// Restores an empty state from a journal file. The writes after the checkpoint become history, so that watches
    /// continue after a restart.
    pub(super) fn restore(&mut self, recovered: JournalContents) -> JournalLengths {
        let lengths = JournalLengths { file: recovered.length as u64, checkpoint: recovered.checkpoint_length as u64 };
        for JournalEntry { key, object, .. } in recovered.objects {
            self.put(&key, None, object.map(stored_object).as_ref());
        }
        if let Some(end) = recovered.end {
            (self.revision, self.last_assigned_revision, self.compacted_revision) =
                (end.revision, end.issued, end.revision);
        }
        for entry in recovered.commits {
            // The checkpoint may already include the first of the writes that follow it.
            if entry.revision > self.revision {
                self.replay(entry);
            }
        }
        self.last_assigned_revision = self.last_assigned_revision.max(self.revision);
        self.mark_durable(self.revision);
        lengths
    }

    /// Applies a write from the journal.
    fn replay(&mut self, JournalEntry { revision, key, object }: JournalEntry) {
        self.revision = revision;
        let old = self.get(&key).cloned();
        let deleted =
            if object.is_none() { old.as_ref().map(|old| deleted_object(&old.value(), revision)) } else { None };
        self.apply(StoreEvent { revision, key, old, new: object.map(stored_object), deleted });
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<StoredObject>> {
        // The strings are cloned, because a map with a tuple of owned strings as key cannot be searched with borrowed
        // strings.
        self.objects.get(&key.resource)?.get(&(key.namespace.clone(), key.name.clone()))
    }

    /// Returns a number that differs after every change of an object of the resource, and is 0 without objects: an empty
    /// collection that had objects in the meantime is unchanged.
    pub(super) fn last_change(&self, resource: &str) -> u64 {
        self.last_changes.get(resource).copied().unwrap_or_default()
    }

    /// Keeps the parsed objects of a resource in memory from now on.
    pub(super) fn pin_resource(&mut self, resource: &str) {
        if self.pinned_resources.insert(resource.to_owned()) {
            self.objects
                .get(resource)
                .into_iter()
                .flat_map(|objects| objects.iter())
                .for_each(|(_, object)| object.pin());
        }
    }

    pub(super) fn check_revision(&self, revision: u64) -> Result<(), CompactedError> {
        if revision < self.compacted_revision {
            Err(CompactedError { oldest: self.compacted_revision })
        } else {
            Ok(())
        }
    }

    /// Returns the first `limit` durable events after `revision`.
    pub(super) fn events_after(
        &self,
        revision: u64,
        epoch: Option<Epoch>,
        limit: usize,
    ) -> Result<EventBatch, CompactedError> {
        self.check_revision(revision)?;
        if epoch.is_some_and(|epoch| epoch.0 != self.rollbacks) {
            return Err(CompactedError { oldest: self.durable_revision });
        }
        let start = self.index_after(revision);
        let end = self.index_after(self.durable_revision).max(start);
        Ok(EventBatch::take(self.history.range(start..end), limit))
    }

    /// Returns the index in the history of the first event after `revision`.
    fn index_after(&self, revision: u64) -> usize {
        self.history.partition_point(|event| event.revision <= revision)
    }

    pub(super) fn subscribe(&mut self, collection: &CollectionKey) -> ChangeReceiver {
        let durable = self.index_after(self.durable_revision);
        self.watch_cache.subscribe(collection, self.history.range(..durable))
    }

    pub(super) fn collection_events_after(
        &self,
        collection: &CollectionKey,
        revision: u64,
        limit: usize,
    ) -> Result<(EventBatch, u64), CompactedError> {
        let (events, compacted) = self.watch_cache.events_after(collection, revision);
        if compacted > revision {
            return Err(CompactedError { oldest: self.compacted_revision });
        }
        let batch = EventBatch::take(events, limit);
        let complete_revision = match batch.events.last() {
            Some(last) if batch.has_more => last.revision,
            _ => self.durable_revision.max(revision),
        };
        Ok((batch, complete_revision))
    }

    pub(super) fn is_durable(&self, revision: u64, epoch: Epoch) -> Result<bool, Arc<StorageFailure>> {
        match &self.failure {
            Some(failure) if epoch.0 != self.rollbacks => Err(Arc::clone(failure)),
            _ => Ok(self.durable_revision >= revision),
        }
    }

    /// Returns the revision of the next write.
    pub(super) fn next_revision(&self) -> u64 {
        self.last_assigned_revision + 1
    }

    /// Applies a write, which becomes visible but is not yet durable. Returns the written or deleted object.
    pub(super) fn write(
        &mut self,
        key: &ObjectKey,
        expected: Option<&Arc<Value>>,
        write: Write,
    ) -> Result<(Arc<StoreEvent>, Arc<Value>), CommitError> {
        if let (true, Some(failure)) = (self.rejects_writes, &self.failure) {
            return Err(CommitError::Unavailable(Arc::clone(failure)));
        }
        let old = match (self.get(key), expected) {
            (Some(current), Some(expected)) if current.is_same(expected) => Some(Arc::clone(current)),
            (None, None) => None,
            _ => return Err(CommitError::Conflict),
        };
        let revision = self.next_revision();
        let (new, deleted, written) = match write {
            Write::Put(object) => {
                let (stored, value) = object.into_stored(revision);
                (Some(Arc::new(stored)), None, value)
            }
            Write::Delete(object) => {
                let (stored, value) = object.into_stored(revision);
                (None, Some(Arc::new(stored)), value)
            }
        };
        (self.revision, self.last_assigned_revision) = (revision, revision);
        Ok((self.apply(StoreEvent { revision, key: key.clone(), old, new, deleted }), written))
    }

    /// Applies an event to the objects and the history.
    fn apply(&mut self, event: StoreEvent) -> Arc<StoreEvent> {
        self.put(&event.key, event.old.as_ref(), event.new.as_ref());
        let event = Arc::new(event);
        self.history_bytes += event.retained_bytes();
        self.history.push_back(Arc::clone(&event));
        event
    }

    /// Replaces an object. Only the JSON text of the old version stays in memory.
    fn put(&mut self, key: &ObjectKey, old: Option<&Arc<StoredObject>>, new: Option<&Arc<StoredObject>>) {
        let (old_value, new_value) = (old.map(|old| old.value()), new.map(|new| new.value()));
        self.index.replace(key, old_value.as_deref(), new_value.as_deref());
        self.changes += 1;
        let namespaced_name = (key.namespace.clone(), key.name.clone());
        match new {
            Some(new) => self.insert(&key.resource, namespaced_name, new),
            None => self.remove(&key.resource, &namespaced_name),
        }
        if let Some(old) = old {
            old.unpin();
        }
        if let Some(new) = new.filter(|_| self.pinned_resources.contains(&key.resource)) {
            new.pin();
        }
    }

    /// Adds or replaces an object in its collection.
    fn insert(&mut self, resource: &str, namespaced_name: NamespacedName, object: &Arc<StoredObject>) {
        match self.last_changes.get_mut(resource) {
            Some(last_change) => *last_change = self.changes,
            None => drop(self.last_changes.insert(resource.to_owned(), self.changes)),
        }
        let objects = Arc::make_mut(self.objects.entry(resource.to_owned()).or_default());
        match objects.get_mut(&namespaced_name) {
            Some(entry) => *entry = Arc::clone(object),
            None => drop(objects.insert(Arc::new(namespaced_name), Arc::clone(object))),
        }
    }

    /// Removes an object from its collection, and an empty collection: its definition may be deleted.
    fn remove(&mut self, resource: &str, namespaced_name: &NamespacedName) {
        let Some(objects) = self.objects.get_mut(resource) else { return };
        let collection = Arc::make_mut(objects);
        collection.remove(namespaced_name);
        if collection.is_empty() {
            self.objects.remove(resource);
            self.last_changes.remove(resource);
        } else if let Some(last_change) = self.last_changes.get_mut(resource) {
            *last_change = self.changes;
        }
    }

    /// Marks all revisions up to `revision` as durable: watches may return them, and they may be removed from the
    /// history.
    pub(super) fn mark_durable(&mut self, revision: u64) {
        // Searches from the end, because only the last few events of a long history are new.
        let count_after =
            |after: u64| self.history.iter().rev().take_while(move |event| event.revision > after).count();
        let (start, end) =
            (self.history.len() - count_after(self.durable_revision), self.history.len() - count_after(revision));
        for event in self.history.range(start..end.max(start)) {
            self.watch_cache.push(event);
        }
        self.durable_revision = self.durable_revision.max(revision);
        while self.exceeds_history_limits()
            && self.history.front().is_some_and(|oldest| oldest.revision <= self.durable_revision)
            && let Some(oldest) = self.history.pop_front()
        {
            self.history_bytes -= oldest.retained_bytes();
            self.compacted_revision = oldest.revision;
            self.watch_cache.remove_oldest(&oldest);
        }
        self.durable_changed.send();
    }

    fn exceeds_history_limits(&self) -> bool {
        self.history.len() > self.history_limits.events || self.history_bytes > self.history_limits.bytes
    }

    /// Rolls back all writes that are not durable, and rejects writes from now on.
    pub(super) fn roll_back(&mut self, failure: StorageFailure) {
        while self.history.back().is_some_and(|event| event.revision > self.durable_revision)
            && let Some(event) = self.history.pop_back()
        {
            self.history_bytes -= event.retained_bytes();
            self.put(&event.key, event.new.as_ref(), event.old.as_ref());
        }
        self.revision = self.durable_revision;
        self.reject_writes(failure);
        self.rollbacks += 1;
        self.durable_changed.send();
    }

    /// Rejects writes from now on because of this failure.
    pub(super) fn reject_writes(&mut self, failure: StorageFailure) {
        self.failure = Some(Arc::new(failure));
        self.rejects_writes = true;
    }

    /// Accepts writes again. Watchers relist, because their own writes may have been rolled back or rejected.
    pub(super) fn accept_writes(&mut self) {
        self.rejects_writes = false;
        self.rollbacks += 1;
        self.durable_changed.send();
    }

    /// Returns all objects for a checkpoint.
    pub(super) fn checkpoint(&self) -> Checkpoint {
        let end = CheckpointEnd { revision: self.revision, issued: self.last_assigned_revision };
        let all_objects = self.objects.iter().flat_map(|(resource, objects)| {
            objects.iter().map(move |(namespaced_name, object)| {
                let (namespace, name) = NamespacedName::clone(namespaced_name);
                let key = ObjectKey { resource: resource.clone(), namespace, name };
                (key, Arc::clone(object))
            })
        });
        Checkpoint { end, objects: all_objects.collect() }
    }
}

fn stored_object(object: Value) -> Arc<StoredObject> {
    Arc::new(StoredObject::new(&Arc::new(object)))
}

/// Returns the deleted object with the revision of its deletion.
fn deleted_object(last: &Value, revision: u64) -> Arc<StoredObject> {
    let mut last = last.clone();
    object::set_resource_version(&mut last, revision);
    stored_object(last)
}
