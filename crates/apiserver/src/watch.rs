//! Cursors over the history of the store, for watches and for the controllers of this process.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use crate::store::{ChangeReceiver, CollectionKey, CompactedError, Epoch, EventBatch, Store, StoreEvent};

/// Maximum number of events that a subscription buffers.
const MAX_BUFFERED: usize = 1024;

/// Change of an object.
#[derive(Debug, Clone)]
pub struct Change {
    /// Storage name of the resource: `pods`, `deployments.apps`.
    pub resource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Object before the change; `None` if it was created.
    pub old: Option<Arc<Value>>,
    /// Object after the change; `None` if it was deleted.
    pub new: Option<Arc<Value>>,
}

/// The subscriber missed changes and must relist. The subscription continues with the current revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("changes were missed; list again")]
pub struct Lagged;

/// Ordered stream of the changes since the subscription was created.
pub struct Subscription {
    cursor: HistoryCursor,
    pending: VecDeque<Arc<StoreEvent>>,
}

/// Position in the history of all resources; waits without polling.
struct HistoryCursor {
    store: Store,
    changes: ChangeReceiver,
    /// Set for subscribers that are notified of rolled-back writes.
    epoch: Option<Epoch>,
    position: u64,
}

/// Position in the history of one collection; changes of other collections do not wake it.
pub(crate) struct CollectionCursor {
    store: Store,
    scope: CollectionKey,
    changes: ChangeReceiver,
    position: u64,
    /// Set if the initial position had already been compacted.
    compacted: Option<CompactedError>,
}

// === impl Subscription ===

impl Subscription {
    /// Subscribes to all changes from now on.
    pub(crate) fn new(store: &Store) -> Self {
        let epoch = Some(store.epoch());
        Self {
            cursor: HistoryCursor { epoch, ..HistoryCursor::new(store, store.revision()) },
            pending: VecDeque::new(),
        }
    }

    /// Waits for the next change. Cancel-safe.
    ///
    /// # Errors
    /// [`Lagged`] if this subscriber fell behind the history, or writes that it may have read were rolled back.
    pub async fn next(&mut self) -> Result<Change, Lagged> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Change::from(event.as_ref()));
            }
            match self.cursor.next(MAX_BUFFERED).await {
                Ok(events) => self.pending.extend(events),
                Err(CompactedError { .. }) => {
                    self.cursor.skip_to_latest();
                    return Err(Lagged);
                }
            }
        }
    }
}

// === impl HistoryCursor ===

impl HistoryCursor {
    fn new(store: &Store, position: u64) -> Self {
        Self { store: store.clone(), changes: store.durable_changes(), epoch: None, position }
    }

    /// Waits for events and returns between one and `limit` of them. Cancel-safe.
    async fn next(&mut self, limit: usize) -> Result<Vec<Arc<StoreEvent>>, CompactedError> {
        loop {
            self.changes.mark_seen();
            let EventBatch { events, .. } = self.store.events_after(self.position, self.epoch, limit)?;
            if let Some(last) = events.last() {
                self.position = last.revision;
                return Ok(events);
            }
            self.changes.changed().await;
        }
    }

    fn skip_to_latest(&mut self) {
        self.epoch = self.epoch.map(|_| self.store.epoch());
        self.position = self.store.revision();
    }
}

// === impl CollectionCursor ===

impl CollectionCursor {
    /// Returns a cursor that reads the events of a collection after the revision `position`.
    pub(crate) fn new(store: &Store, scope: CollectionKey, position: u64) -> Self {
        let changes = store.subscribe(&scope);
        let compacted = store.check_revision(position).err();
        Self { store: store.clone(), scope, changes, position, compacted }
    }

    /// Waits for events of the collection and returns between one and `limit` of them. Cancel-safe.
    pub(crate) async fn next(&mut self, limit: usize) -> Result<EventBatch, CompactedError> {
        if let Some(error) = self.compacted {
            return Err(error);
        }
        loop {
            self.changes.mark_seen();
            let (batch, revision) = self.store.collection_events_after(&self.scope, self.position, limit)?;
            self.position = revision;
            if !batch.events.is_empty() {
                return Ok(batch);
            }
            self.changes.changed().await;
        }
    }

    /// Returns the revision up to which every event of the collection has been read.
    pub(crate) fn position(&self) -> u64 {
        match self.store.collection_events_after(&self.scope, self.position, 1) {
            Ok((batch, revision)) if batch.events.is_empty() => revision,
            _ => self.position,
        }
    }
}

// === impl Change ===

impl From<&StoreEvent> for Change {
    fn from(event: &StoreEvent) -> Self {
        Self {
            resource: event.key.resource.clone(),
            namespace: event.key.namespace.clone(),
            name: event.key.name.clone(),
            old: event.old.as_ref().map(|old| old.value()),
            new: event.new.as_ref().map(|new| new.value()),
        }
    }
}
