//! Following the history of the store.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use crate::store::{Compacted, Record, Scope, Since, Store};

/// How many records a subscriber holds at most that it has not asked for yet.
const AT_ONCE: usize = 1024;

/// One change, as the controllers in this process see it. Objects are shared, not copied.
#[derive(Debug, Clone)]
pub struct Change {
    /// Storage name of the resource: `pods`, `deployments.apps`.
    pub resource: String,
    /// Empty for cluster scope.
    pub namespace: String,
    pub name: String,
    /// Absent when the object was created.
    pub old: Option<Arc<Value>>,
    /// Absent when the object was removed.
    pub new: Option<Arc<Value>>,
}

/// Changes were missed: list again. The subscription goes on from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("changes were missed; list again")]
pub struct Lagged;

/// Every change after the moment of subscribing, in order.
pub struct Subscription {
    cursor: Cursor,
    pending: VecDeque<Arc<Record>>,
}

/// A position in the history; waits without polling.
struct Cursor {
    store: Store,
    latest: tokio::sync::watch::Receiver<u64>,
    /// Whoever reads more than the history wants to know when something was undone.
    since: Option<Since>,
    position: u64,
}

/// A position in the history of one collection; not woken for others.
pub(crate) struct Follower {
    store: Store,
    scope: Scope,
    newest: tokio::sync::watch::Receiver<u64>,
    position: u64,
    /// The position was out of reach from the beginning.
    missed: Option<Compacted>,
}

// === impl Subscription ===

impl Subscription {
    pub(crate) fn new(store: &Store) -> Self {
        let since = Some(store.since_now());
        Self { cursor: Cursor { since, ..Cursor::new(store, store.revision()) }, pending: VecDeque::new() }
    }

    /// Waits for the next change. Cancel-safe.
    ///
    /// # Errors
    /// [`Lagged`] when this subscriber fell behind the history, or what it may have read was undone.
    pub async fn next(&mut self) -> Result<Change, Lagged> {
        loop {
            if let Some(record) = self.pending.pop_front() {
                return Ok(Change::from(record.as_ref()));
            }
            match self.cursor.next(AT_ONCE).await {
                Ok(records) => self.pending.extend(records),
                Err(Compacted { .. }) => {
                    self.cursor.skip_to_now();
                    return Err(Lagged);
                }
            }
        }
    }
}

// === impl Cursor ===

impl Cursor {
    fn new(store: &Store, position: u64) -> Self {
        Self { store: store.clone(), latest: store.latest(), since: None, position }
    }

    /// The next records, at least one and at most so many. Cancel-safe.
    async fn next(&mut self, most: usize) -> Result<Vec<Arc<Record>>, Compacted> {
        loop {
            self.latest.borrow_and_update();
            let records = self.store.after(self.position, self.since, most)?;
            if let Some(last) = records.last() {
                self.position = last.revision;
                return Ok(records);
            }
            changed(&mut self.latest).await;
        }
    }

    fn skip_to_now(&mut self) {
        self.since = self.since.map(|_| self.store.since_now());
        self.position = self.store.revision();
    }
}

// === impl Follower ===

impl Follower {
    pub(crate) fn new(store: &Store, scope: Scope, position: u64) -> Self {
        let newest = store.follow(&scope);
        let missed = store.reachable(position).err();
        Self { store: store.clone(), scope, newest, position, missed }
    }

    /// The next records of the collection, at least one and at most so many. Cancel-safe.
    pub(crate) async fn next(&mut self, most: usize) -> Result<Vec<Arc<Record>>, Compacted> {
        if let Some(missed) = self.missed {
            return Err(missed);
        }
        loop {
            self.newest.borrow_and_update();
            let (records, seen) = self.store.after_in(&self.scope, self.position, most)?;
            self.position = seen;
            if !records.is_empty() {
                return Ok(records);
            }
            changed(&mut self.newest).await;
        }
    }

    /// Nothing up to this revision is still to be shown.
    pub(crate) fn position(&self) -> u64 {
        match self.store.after_in(&self.scope, self.position, 1) {
            Ok((records, seen)) if records.is_empty() => seen,
            _ => self.position,
        }
    }
}

async fn changed(newest: &mut tokio::sync::watch::Receiver<u64>) {
    if newest.changed().await.is_err() {
        // The sender lives in the store that the waiting cursor holds.
        std::future::pending::<()>().await;
    }
}

// === impl Change ===

impl From<&Record> for Change {
    fn from(record: &Record) -> Self {
        Self {
            resource: record.key.resource.clone(),
            namespace: record.key.namespace.clone(),
            name: record.key.name.clone(),
            old: record.old.as_ref().map(|old| old.tree()),
            new: record.new.as_ref().map(|new| new.tree()),
        }
    }
}
