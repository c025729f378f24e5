//! The object store: all state of the cluster, under one revision counter, with the history of events that watches
//! read.
//!
//! Every write has one revision; it becomes visible and part of the history under the same lock, so readers see
//! revisions in order. Writers never wait for readers: a watch that falls behind the bounded history has to relist.
//!
//! A store is in memory, or is [opened](Store::open) on a directory: then a [`journal`] persists the writes, and no
//! response is sent before its write is durable. Watches only see durable revisions; before the server responds to a
//! client, it waits for [`Store::wait_durable`]. Writes that cannot be persisted are rolled back, and further writes
//! are rejected until the journal can be written again.

mod change_signal;
mod collection;
mod commit_error;
#[cfg(test)]
mod crash_tests;
pub(crate) mod depth;
mod epoch;
mod event;
mod failure;
#[cfg(test)]
mod faults;
mod format;
mod index;
mod journal;
mod journal_file;
mod json_text;
mod key;
mod list;
mod queued_bytes;
mod read_set;
mod recovery;
#[cfg(test)]
mod server_tests;
mod settings;
mod size;
mod state;
pub(crate) mod storage;
mod stored_object;
#[cfg(test)]
mod tests;
mod watch_cache;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apimachinery::Status;
use serde_json::Value;

use crate::async_worker;
use crate::cpu_threads::offer_cpu;

pub(crate) use change_signal::ChangeReceiver;
pub(crate) use collection::{Collection, CollectionSnapshot, ListPage};
pub(crate) use commit_error::CommitError;
pub(crate) use epoch::Epoch;
pub(crate) use event::{CompactedError, EventBatch, StoreEvent};
pub use failure::StorageFailure;
pub(crate) use index::IndexedObject;
use journal::Journal;
pub(crate) use key::{CollectionKey, NamespacedName, ObjectKey};
pub(crate) use read_set::ReadSet;
pub use recovery::StoreOpenError;
use settings::DEFAULT_HISTORY_BYTES;
pub use settings::{DEFAULT_HISTORY_SIZE, StoreSettings};
use state::{HistoryLimits, State, Write};
use storage::Storage;
#[cfg(test)]
pub(crate) use stored_object::READ_COUNT;
pub(crate) use stored_object::StoredObject;
use stored_object::UnversionedObject;

/// Memory in bytes of the writes that are not durable yet, from which writers wait for the journal.
const MAX_QUEUED_BYTES: usize = 16 * 1024 * 1024;

/// Handle of a store; clones share the state.
#[derive(Clone)]
pub struct Store {
    state: Arc<Mutex<State>>,
    /// Changes of the newest durable revision, and rollbacks.
    durable_changes: ChangeReceiver,
    /// `None` in memory. Dropping the last handle waits until all writes are persisted.
    journal: Option<Arc<Journal>>,
}

// === impl Store ===

impl Store {
    /// Returns an empty store in memory with a history of at most `history_size` events.
    #[must_use]
    pub fn new(history_size: usize) -> Self {
        Self::with_history(HistoryLimits { events: history_size, bytes: DEFAULT_HISTORY_BYTES })
    }

    /// Returns an empty store in memory with a limited history.
    fn with_history(limits: HistoryLimits) -> Self {
        Self::in_memory(State::new(limits))
    }

    fn in_memory(state: State) -> Self {
        let durable_changes = state.durable_changes();
        Self { state: Arc::new(Mutex::new(state)), durable_changes, journal: None }
    }

    /// Returns an independent store in memory with the same objects at the same revision, and without their history.
    #[must_use]
    pub(crate) fn fork(&self) -> Self {
        Self::in_memory(self.state().fork())
    }

    /// Opens the store in `storage`, or creates it if there is none.
    ///
    /// # Errors
    /// When the files cannot be read or written, are corrupt or have a newer format.
    pub fn open(storage: Arc<dyn Storage>, settings: StoreSettings) -> Result<Self, StoreOpenError> {
        let limits = HistoryLimits { events: settings.history_size, bytes: settings.history_bytes };
        let mut state = State::new(limits);
        let recovered = recovery::load(storage.as_ref())?;
        let durable_changes = state.durable_changes();
        let lengths = recovered.map(|recovered| state.restore(recovered));
        let state = Arc::new(Mutex::new(state));
        let journal = Journal::start(storage, Arc::clone(&state), settings, lengths)?;
        Ok(Self { state, durable_changes, journal: Some(Arc::new(journal)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is ignored: only an allocation failure can panic while the lock is held, and the state is
        // consistent between statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current epoch, for [`Self::wait_durable`].
    #[must_use]
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(if self.journal.is_some() { self.state().rollbacks } else { 0 })
    }

    /// Waits until all revisions that are visible now are durable. Returns immediately for a store in memory.
    ///
    /// # Errors
    /// When writes have been rolled back since `epoch`: data that the caller has read or written may have been lost.
    pub(crate) async fn wait_durable(&self, epoch: Epoch) -> Result<(), Arc<StorageFailure>> {
        if self.journal.is_none() {
            return Ok(());
        }
        let revision = self.revision();
        let mut durable_changes = self.durable_changes.clone();
        loop {
            durable_changes.mark_seen();
            if self.state().is_durable(revision, epoch)? {
                return Ok(());
            }
            durable_changes.changed().await;
        }
    }

    /// Returns whether more than [`MAX_QUEUED_BYTES`] are queued for the journal; never in memory.
    #[must_use]
    pub(crate) fn is_journal_behind(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.queued_bytes().get() > MAX_QUEUED_BYTES)
    }

    /// Blocks this thread while more than [`MAX_QUEUED_BYTES`] are queued for the journal. Returns after a failure of the
    /// storage, which empties the queue. The caller must hold no lock.
    pub(crate) fn wait_for_journal(&self) {
        if let Some(journal) = self.journal.as_ref().filter(|_| self.is_journal_behind()) {
            async_worker::leave(|| journal.queued_bytes().wait_until_at_most(MAX_QUEUED_BYTES));
        }
    }

    /// Waits until writes have been rolled back since `epoch`, or are accepted again after a failure; returns the current
    /// epoch. Never returns for a store in memory. Cancel-safe.
    pub(crate) async fn rolled_back(&self, epoch: Epoch) -> Epoch {
        let mut durable_changes = self.durable_changes.clone();
        while self.journal.is_some() {
            durable_changes.mark_seen();
            let current = self.epoch();
            if current != epoch {
                return current;
            }
            durable_changes.changed().await;
        }
        std::future::pending().await
    }

    /// Waits until the journal thread has ended, after which no write can be persisted. Never returns for a store in
    /// memory.
    pub(crate) async fn failed(&self) -> StorageFailure {
        match &self.journal {
            Some(journal) => journal.failed().await,
            None => std::future::pending().await,
        }
    }

    /// Returns a receiver that is notified of every new durable revision.
    #[must_use]
    pub(crate) fn durable_changes(&self) -> ChangeReceiver {
        self.durable_changes.clone()
    }

    /// Returns the revision of the newest visible write.
    #[must_use]
    pub(crate) fn revision(&self) -> u64 {
        self.state().revision
    }

    /// Keeps all parsed objects of a resource in memory from now on. Intended for resources that the controllers of
    /// this process read frequently.
    pub(crate) fn pin_resource(&self, resource: &str) {
        self.state().pin_resource(resource);
    }

    /// Returns an object.
    #[must_use]
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<Value>> {
        self.get_stored(key).map(|stored| stored.value())
    }

    /// Returns the objects of one resource, such as `nodes`, ordered by namespace and name.
    #[must_use]
    pub fn objects(&self, resource: &str) -> Vec<Arc<Value>> {
        let all_namespaces = CollectionKey { resource: resource.to_owned(), namespace: None };
        self.list(&all_namespaces).objects.into_iter().map(|(_, stored)| stored.value()).collect()
    }

    /// Returns an object as JSON text.
    #[must_use]
    pub(crate) fn get_stored(&self, key: &ObjectKey) -> Option<Arc<StoredObject>> {
        self.state().get(key).cloned()
    }

    /// Returns key and deletion state of the object with this UID.
    #[must_use]
    pub(crate) fn find_by_uid(&self, uid: &str) -> Option<IndexedObject> {
        self.state().index.by_uid(uid).cloned()
    }

    /// Returns the keys of the objects whose deletion waits for that of their dependents.
    #[must_use]
    pub(crate) fn waiting_objects(&self) -> Vec<ObjectKey> {
        self.state().index.waiting_objects().cloned().collect()
    }

    /// Reports whether any object has `uid` in its `ownerReferences`.
    pub(crate) fn has_dependents(&self, uid: &str) -> bool {
        self.state().index.dependents(uid).next().is_some()
    }

    /// Returns the keys of the objects with `uid` in their `ownerReferences`, sorted.
    #[must_use]
    pub(crate) fn dependents(&self, uid: &str) -> Vec<ObjectKey> {
        self.state().index.dependents(uid).cloned().collect()
    }

    /// Returns the keys of the objects with an owner that does not exist.
    #[must_use]
    pub(crate) fn dependents_of_absent_owners(&self) -> BTreeSet<ObjectKey> {
        self.state().index.dependents_of_absent_owners().cloned().collect()
    }

    /// Reports whether objects have a reference with `uid` and `blockOwnerDeletion`.
    #[must_use]
    pub(crate) fn has_blocking_dependents(&self, uid: &str) -> bool {
        self.state().index.has_blocking_dependents(uid)
    }

    /// Returns the current objects of one resource, in one namespace or in all.
    #[must_use]
    pub(crate) fn list(&self, collection: &CollectionKey) -> ListPage {
        self.state().list(collection, None, usize::MAX)
    }

    /// Returns the current objects of one resource with a selected name, and adds all of the resource to the reads of a write.
    pub(crate) fn list_for_write(
        &self,
        resource: &str,
        reads: &mut ReadSet,
        is_selected: impl Fn(&NamespacedName) -> bool,
    ) -> Vec<Arc<StoredObject>> {
        let state = self.state();
        reads.add_resource(resource, state.last_change(resource));
        let objects = state.objects.get(resource).into_iter().flat_map(|objects| objects.iter());
        objects.filter(|(name, _)| is_selected(name)).map(|(_, object)| Arc::clone(object)).collect()
    }

    /// Returns all current objects of one resource.
    #[must_use]
    pub(crate) fn snapshot(&self, resource: &str) -> CollectionSnapshot {
        self.state().snapshot(resource)
    }

    /// Returns at most `limit` objects after the name `after`, optionally as they were at `revision`, so that later
    /// pages of a list are consistent with the first.
    ///
    /// # Errors
    /// [`CompactedError`] when the history no longer contains the revision.
    pub(crate) fn list_page(
        &self,
        collection: &CollectionKey,
        after: Option<&NamespacedName>,
        revision: Option<u64>,
        limit: usize,
    ) -> Result<ListPage, CompactedError> {
        let state = self.state();
        match revision {
            Some(revision) => state.list_at(collection, after, revision, limit),
            None => Ok(state.list(collection, after, limit)),
        }
    }

    /// Returns the resources that have objects.
    #[must_use]
    pub(crate) fn resources(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    /// Returns the first object of a collection whose name sorts after `after`.
    #[must_use]
    pub(crate) fn next_object(
        &self,
        collection: &CollectionKey,
        after: Option<&NamespacedName>,
    ) -> Option<(NamespacedName, Arc<Value>)> {
        let state = self.state();
        let (key, object) = state.next_object(collection, after)?;
        Some((NamespacedName::clone(key), object.value()))
    }

    /// Returns the first object of a namespace that sorts after `after`, by resource and name.
    #[must_use]
    pub(crate) fn next_in_namespace(
        &self,
        namespace: &str,
        after: Option<&ObjectKey>,
    ) -> Option<(ObjectKey, Arc<Value>)> {
        let state = self.state();
        let (key, object) = state.next_in_namespace(namespace, after)?;
        Some((key, object.value()))
    }

    /// Reports whether a namespace contains no objects.
    #[must_use]
    pub(crate) fn is_namespace_empty(&self, namespace: &str) -> bool {
        self.state().index.is_namespace_empty(namespace)
    }

    /// Returns the number of objects of a resource.
    #[must_use]
    pub(crate) fn count(&self, resource: &str) -> usize {
        self.state().objects.get(resource).map_or(0, |objects| objects.len())
    }

    /// Returns the first durable events after `revision`, at most `limit` and fewer if their objects are large.
    ///
    /// # Errors
    /// [`CompactedError`] when some of them are no longer in the history, or when writes have been rolled back since
    /// `epoch`.
    pub(crate) fn events_after(
        &self,
        revision: u64,
        epoch: Option<Epoch>,
        limit: usize,
    ) -> Result<EventBatch, CompactedError> {
        self.state().events_after(revision, epoch, limit)
    }

    /// Returns a receiver that is notified of every new durable event of a collection.
    #[must_use]
    pub(crate) fn subscribe(&self, collection: &CollectionKey) -> ChangeReceiver {
        self.state().subscribe(collection)
    }

    /// Checks whether a watch can start after `revision`.
    ///
    /// # Errors
    /// [`CompactedError`] when events after it are no longer in the history.
    pub(crate) fn check_revision(&self, revision: u64) -> Result<(), CompactedError> {
        self.state().check_revision(revision)
    }

    /// Returns the first durable events of a subscribed collection after `revision`, at most `limit` and fewer if their
    /// objects are large, and the revision up to which they are complete.
    ///
    /// # Errors
    /// [`CompactedError`] when some of them are no longer in the history.
    pub(crate) fn collection_events_after(
        &self,
        collection: &CollectionKey,
        revision: u64,
        limit: usize,
    ) -> Result<(EventBatch, u64), CompactedError> {
        self.state().collection_events_after(collection, revision, limit)
    }

    /// Writes `new` (`None` deletes the object) if the object is still `expected`, and sets its `resourceVersion` to
    /// the new revision.
    ///
    /// # Errors
    /// [`CommitError`] when the object has changed, is nested too deeply or too large, or when the store rejects writes.
    pub(crate) fn commit(
        &self,
        key: &ObjectKey,
        expected: Option<&Arc<Value>>,
        new: Option<Value>,
    ) -> Result<Arc<Value>, CommitError> {
        self.commit_after(key, expected, new, &ReadSet::default())
    }

    /// Like [`Self::commit`], for a write that depends on `reads`.
    fn commit_after(
        &self,
        key: &ObjectKey,
        expected: Option<&Arc<Value>>,
        new: Option<Value>,
        reads: &ReadSet,
    ) -> Result<Arc<Value>, CommitError> {
        if new.as_ref().is_some_and(depth::is_too_deep) {
            return Err(CommitError::TooDeep);
        }
        let write = self.encode(expected, new)?;
        offer_cpu();
        let mut state = self.state();
        if !reads.is_current(&state) {
            return Err(CommitError::Conflict);
        }
        let (event, written) = state.write(key, expected, write)?;
        match &self.journal {
            // The event is queued under the lock, so that the journal is in the order of revisions.
            Some(journal) => journal.write(event),
            None => state.mark_durable(event.revision),
        }
        Ok(written)
    }

    /// Encodes the new version, or the last one of a deleted object, without holding the lock meanwhile.
    fn encode(&self, expected: Option<&Arc<Value>>, new: Option<Value>) -> Result<Write, CommitError> {
        let next_revision = self.state().next_revision();
        match (new, expected) {
            (Some(new), _) => {
                let object = UnversionedObject::new(new, next_revision);
                if size::is_too_large(&object) { Err(CommitError::TooLarge) } else { Ok(Write::Put(object)) }
            }
            (None, Some(last)) => Ok(Write::Delete(UnversionedObject::new(Value::clone(last), next_revision))),
            (None, None) => Err(CommitError::Conflict),
        }
    }

    /// Commits a write that depends on `reads`; returns `None` on a conflict.
    ///
    /// # Errors
    /// When the object is nested too deeply or too large, or when the store rejects writes.
    pub(crate) fn try_commit(
        &self,
        key: &ObjectKey,
        expected: Option<&Arc<Value>>,
        new: Option<Value>,
        reads: &ReadSet,
    ) -> Result<Option<Arc<Value>>, Status> {
        match self.commit_after(key, expected, new, reads) {
            Ok(written) => Ok(Some(written)),
            Err(CommitError::Conflict) => Ok(None),
            Err(CommitError::Unavailable(failure)) => Err(failure.status()),
            Err(CommitError::TooDeep) => Err(depth::too_deep_error(&key.name)),
            Err(CommitError::TooLarge) => Err(size::too_large_error(&key.name)),
        }
    }
}
