//! The only state: objects under one revision counter, and the history that watches read.
//!
//! Every write is one revision, and becomes visible and part of the history under the same lock, so readers see
//! revisions in order. Writers never wait for readers: who falls behind the bounded history starts again from a list.
//!
//! A store is in memory, or [opened](Store::open) on a folder: then a [`journal`] writes behind it, and nothing leaves
//! the process before it is durable. Watches are shown durable revisions only; whoever answers a client waits for
//! [`Store::durable`] first. What could not be written is undone, and writes are refused until they can be again.

#[cfg(test)]
mod crash_tests;
pub(crate) mod depth;
mod failure;
#[cfg(test)]
mod faults;
mod feeds;
mod file;
mod format;
mod index;
mod journal;
mod kept;
mod lists;
mod recovery;
#[cfg(test)]
mod served_tests;
mod state;
pub mod storage;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use apimachinery::status::Status;
use serde_json::Value;
use tokio::sync::watch;

pub use failure::Failure;
pub use feeds::Scope;
use journal::Journal;
pub use kept::Kept;
pub use recovery::OpenError;
use state::State;
use storage::Storage;

/// How many revisions a watch may fall behind, unless said otherwise. A record holds its object as text; this is
/// hours of a busy small cluster, and a watch lasts ten minutes at most before kube clients renew it.
pub const HISTORY: usize = 50_000;

/// Namespace (empty for cluster scope) and name, in the order of lists.
pub type Place = (String, String);

/// Where one object is: the storage name of its resource (`deployments.apps`) and its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub resource: String,
    pub namespace: String,
    pub name: String,
}

/// One revision.
#[derive(Debug)]
pub struct Record {
    pub revision: u64,
    pub key: Key,
    /// Absent when the object was created.
    pub old: Option<Arc<Kept>>,
    /// Absent when the object was removed.
    pub new: Option<Arc<Kept>>,
    /// The removed object carrying the revision of its removal: clients resume watches from there.
    pub removed: Option<Arc<Kept>>,
}

/// Why a write was not made.
#[derive(Debug, Clone)]
pub enum Rejected {
    /// Someone else wrote the object first; read again.
    Raced,
    /// Nothing can be written at present.
    Refused(Arc<Failure>),
    /// The object is nested deeper than its text could be read back.
    TooDeep,
}

/// What a store keeps, and how.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Revisions in the history.
    pub history: usize,
    /// Bytes of writes behind the base before the file is begun anew; more when the base is larger.
    pub rewrite_after: u64,
    /// How long after a failure the first try is made to write again; the others take longer.
    pub retry: Duration,
}

/// Since when a request has looked at the store: what it saw may be undone later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since(u64);

/// The revision asked for is older than the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    pub oldest: u64,
}

/// A consistent list, in the order of places.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub revision: u64,
    pub objects: Vec<(Arc<Place>, Arc<Kept>)>,
    /// How many more there are behind them.
    pub rest: usize,
}

/// What a resource has, in the order of places.
pub type Collection = BTreeMap<Arc<Place>, Arc<Kept>>;

/// A consistent list of all of a resource, which is not copied: to touch each of many objects takes long, and who lists
/// them does so anyway.
#[derive(Debug, Clone)]
pub struct Whole {
    pub revision: u64,
    pub objects: Arc<Collection>,
}

/// A handle; clones share the state.
#[derive(Clone)]
pub struct Store {
    state: Arc<Mutex<State>>,
    /// The newest durable revision.
    latest: watch::Receiver<u64>,
    /// Absent in memory. The last handle to go waits for what is still to be written.
    journal: Option<Arc<Journal>>,
}

// === impl Store ===

impl Store {
    /// An empty store in memory whose history keeps `kept` revisions.
    #[must_use]
    pub fn new(kept: usize) -> Self {
        let (sender, latest) = watch::channel(0);
        Self { state: Arc::new(Mutex::new(State::new(kept, sender))), latest, journal: None }
    }

    /// What is kept in a folder; it is begun if there is nothing.
    ///
    /// # Errors
    /// When the folder cannot be read or written, and when what is there is damaged or of a newer version.
    pub fn open(storage: Arc<dyn Storage>, settings: Settings) -> Result<Self, OpenError> {
        let (sender, latest) = watch::channel(0);
        let mut state = State::new(settings.history, sender);
        let found = recovery::load(storage.as_ref())?;
        let lengths = found.map(|found| state.restore(found));
        let state = Arc::new(Mutex::new(state));
        let journal = Journal::start(storage, Arc::clone(&state), settings, lengths)?;
        Ok(Self { state, latest, journal: Some(Arc::new(journal)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while holding the lock can only come from allocation; the state is consistent between statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a request begins; see [`Self::durable`].
    #[must_use]
    pub fn since_now(&self) -> Since {
        Since(if self.journal.is_some() { self.state().losses } else { 0 })
    }

    /// Waits until everything that can be seen now is durable. Costs nothing in memory.
    ///
    /// # Errors
    /// When something was undone since then: what the caller saw, or wrote, may not have happened.
    pub async fn durable(&self, since: Since) -> Result<(), Arc<Failure>> {
        if self.journal.is_none() {
            return Ok(());
        }
        let seen = self.revision();
        let mut latest = self.latest.clone();
        loop {
            latest.borrow_and_update();
            if self.state().is_durable(seen, since)? {
                return Ok(());
            }
            if latest.changed().await.is_err() {
                // The sender lives in the state that this handle holds.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Wakes at every new durable revision.
    #[must_use]
    pub fn latest(&self) -> watch::Receiver<u64> {
        self.latest.clone()
    }

    #[must_use]
    pub fn revision(&self) -> u64 {
        self.state().revision
    }

    /// Keeps the trees of a resource from now on: controllers of this process read it all the time.
    pub fn hold(&self, resource: &str) {
        self.state().hold(resource);
    }

    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.kept(key).map(|kept| kept.tree())
    }

    /// The same as it is kept.
    #[must_use]
    pub fn kept(&self, key: &Key) -> Option<Arc<Kept>> {
        self.state().get(key).cloned()
    }

    #[must_use]
    pub fn by_uid(&self, uid: &str) -> Option<(Key, Arc<Value>)> {
        let state = self.state();
        let key = state.index.by_uid(uid)?;
        Some((key.clone(), state.get(key)?.tree()))
    }

    /// Everything that names `uid` as an owner, in order.
    #[must_use]
    pub fn dependents(&self, uid: &str) -> Vec<(Key, Arc<Value>)> {
        let state = self.state();
        let keys = state.index.dependents(uid);
        keys.filter_map(|key| Some((key.clone(), state.get(key)?.tree()))).collect()
    }

    /// The objects of one resource now, in one namespace or all.
    #[must_use]
    pub fn list(&self, scope: &Scope) -> Snapshot {
        self.state().list(scope, None, usize::MAX)
    }

    /// All objects of one resource now.
    #[must_use]
    pub fn whole(&self, resource: &str) -> Whole {
        self.state().whole(resource)
    }

    /// At most so many of them, behind a place if one is named; as they were at a revision if one is: later pages of a
    /// list continue in the world of the first one.
    ///
    /// # Errors
    /// [`Compacted`] when the history no longer reaches back so far.
    pub fn page(
        &self,
        scope: &Scope,
        after: Option<&Place>,
        at: Option<u64>,
        most: usize,
    ) -> Result<Snapshot, Compacted> {
        let state = self.state();
        match at {
            Some(revision) => state.list_at(scope, after, revision, most),
            None => Ok(state.list(scope, after, most)),
        }
    }

    /// The resources that have objects, or had.
    #[must_use]
    pub fn resources(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    /// What lives in a namespace, by resource.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<(Key, Arc<Value>)> {
        let state = self.state();
        let everything = state.objects.iter().flat_map(|(resource, objects)| {
            objects.iter().map(move |(place, object)| (resource, &place.0, &place.1, object))
        });
        everything
            .filter(|(_, at, _, _)| *at == namespace)
            .map(|(resource, at, name, object)| {
                let key = Key { resource: resource.clone(), namespace: at.clone(), name: name.clone() };
                (key, object.tree())
            })
            .collect()
    }

    /// The first durable records after `revision`, at most so many, oldest first.
    ///
    /// # Errors
    /// [`Compacted`] when some of them are gone, and when something was undone since `since`.
    pub fn after(&self, revision: u64, since: Option<Since>, most: usize) -> Result<Vec<Arc<Record>>, Compacted> {
        self.state().after(revision, since, most)
    }

    /// Wakes at every new durable record of a collection.
    #[must_use]
    pub fn follow(&self, scope: &Scope) -> watch::Receiver<u64> {
        self.state().follow(scope)
    }

    /// Whether a watch can begin behind `revision`.
    ///
    /// # Errors
    /// [`Compacted`] when records behind it are gone.
    pub fn reachable(&self, revision: u64) -> Result<(), Compacted> {
        self.state().reachable(revision)
    }

    /// The first durable records of a followed collection after `revision`, at most so many, oldest first; and the
    /// revision up to which nothing is missing then.
    ///
    /// # Errors
    /// [`Compacted`] when some of them are gone.
    pub fn after_in(&self, scope: &Scope, revision: u64, most: usize) -> Result<(Vec<Arc<Record>>, u64), Compacted> {
        self.state().after_in(scope, revision, most)
    }

    /// Writes `new` (removes with `None`) if the object is still `expected`, and stamps it with the new revision.
    ///
    /// # Errors
    /// [`Rejected`] when it is not, when it is nested too deep, or when nothing can be written.
    pub fn commit(&self, key: &Key, expected: Option<&Arc<Value>>, new: Option<Value>) -> Result<Arc<Value>, Rejected> {
        if new.as_ref().is_some_and(depth::is_too_deep) {
            return Err(Rejected::TooDeep);
        }
        let mut state = self.state();
        let (record, written) = state.write(key, expected, new)?;
        match &self.journal {
            // Under the lock, so that the file has the order of the revisions.
            Some(journal) => journal.write(record),
            None => state.settle(record.revision),
        }
        Ok(written)
    }

    /// As [`Self::commit`]; `None` when someone else wrote the object first.
    ///
    /// # Errors
    /// When it is nested too deep, or nothing can be written.
    pub fn attempt(
        &self,
        key: &Key,
        expected: Option<&Arc<Value>>,
        new: Option<Value>,
    ) -> Result<Option<Arc<Value>>, Status> {
        match self.commit(key, expected, new) {
            Ok(written) => Ok(Some(written)),
            Err(Rejected::Raced) => Ok(None),
            Err(Rejected::Refused(failure)) => Err(failure.status()),
            Err(Rejected::TooDeep) => Err(depth::refusal(&key.name)),
        }
    }
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self { history: HISTORY, rewrite_after: 8 * 1024 * 1024, retry: Duration::from_secs(1) }
    }
}
