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
#[cfg(test)]
mod faults;
mod format;
mod journal;
mod recovery;
mod state;
pub mod storage;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use apimachinery::status::Status;
use serde_json::Value;
use tokio::sync::watch;

use journal::Journal;
pub use recovery::OpenError;
use state::State;
use storage::Storage;

/// How many revisions a watch may fall behind, unless said otherwise. A record is two pointers into objects that mostly live anyway; this is
/// hours of a busy small cluster, and a watch lasts ten minutes at most before kube clients renew it.
pub const HISTORY: usize = 50_000;

/// How deep an object may be nested that is written to disk; deeper JSON is not read back.
const DEEPEST: usize = 120;

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
    pub old: Option<Arc<Value>>,
    /// Absent when the object was removed.
    pub new: Option<Arc<Value>>,
    /// The removed object carrying the revision of its removal: clients resume watches from there.
    pub removed: Option<Arc<Value>>,
}

/// Why a write was not made.
#[derive(Debug, Clone)]
pub enum Rejected {
    /// Someone else wrote the object first; read again.
    Raced,
    /// Nothing can be written at present.
    Refused(Arc<Failure>),
    /// The object is nested too deep to be written to disk.
    TooDeep,
}

/// Why writes do not become durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {cause}")]
pub struct Failure {
    file: String,
    cause: String,
    /// There is no room, rather than something broken.
    full: bool,
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

/// A consistent list.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub revision: u64,
    pub objects: BTreeMap<Place, Arc<Value>>,
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

    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.state().get(key).cloned()
    }

    #[must_use]
    pub fn by_uid(&self, uid: &str) -> Option<(Key, Arc<Value>)> {
        let state = self.state();
        let key = state.by_uid.get(uid)?;
        Some((key.clone(), Arc::clone(state.get(key)?)))
    }

    /// Everything that names `uid` as an owner, in order.
    #[must_use]
    pub fn dependents(&self, uid: &str) -> Vec<(Key, Arc<Value>)> {
        let state = self.state();
        let keys = state.dependents.get(uid).into_iter().flatten();
        keys.filter_map(|key| Some((key.clone(), Arc::clone(state.get(key)?)))).collect()
    }

    /// The objects of one resource now, in one namespace or all.
    #[must_use]
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Snapshot {
        let state = self.state();
        let all = state.objects.get(resource).into_iter().flatten();
        let objects = all
            .filter(|((at, _), _)| namespace.is_none_or(|namespace| at == namespace))
            .map(|(place, object)| (place.clone(), Arc::clone(object)))
            .collect();
        Snapshot { revision: state.revision, objects }
    }

    /// The same list as it was at `revision`: later pages of a list continue in the world of the first one.
    ///
    /// # Errors
    /// [`Compacted`] when the history no longer reaches back so far.
    pub fn list_at(&self, resource: &str, namespace: Option<&str>, revision: u64) -> Result<Snapshot, Compacted> {
        let Snapshot { mut objects, .. } = self.list(resource, namespace);
        let state = self.state();
        state.reachable(revision)?;
        for record in state.history.iter().rev().take_while(|record| record.revision > revision) {
            if record.key.resource != resource || namespace.is_some_and(|only| record.key.namespace != only) {
                continue;
            }
            let place = (record.key.namespace.clone(), record.key.name.clone());
            match &record.old {
                Some(old) => objects.insert(place, Arc::clone(old)),
                None => objects.remove(&place),
            };
        }
        Ok(Snapshot { revision, objects })
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
            objects.iter().map(move |((at, name), object)| (resource, at, name, object))
        });
        everything
            .filter(|(_, at, _, _)| *at == namespace)
            .map(|(resource, at, name, object)| {
                let key = Key { resource: resource.clone(), namespace: at.clone(), name: name.clone() };
                (key, Arc::clone(object))
            })
            .collect()
    }

    /// The durable records after `revision`, oldest first.
    ///
    /// # Errors
    /// [`Compacted`] when some of them are gone, and when something was undone since `since`.
    pub fn after(&self, revision: u64, since: Option<Since>) -> Result<Vec<Arc<Record>>, Compacted> {
        self.state().after(revision, since)
    }

    /// Writes `new` (removes with `None`) if the object is still `expected`, and stamps it with the new revision.
    ///
    /// # Errors
    /// [`Rejected`] when it is not, or when nothing can be written.
    pub fn commit(&self, key: &Key, expected: Option<&Arc<Value>>, new: Option<Value>) -> Result<Arc<Value>, Rejected> {
        if self.journal.is_some() && new.as_ref().is_some_and(|new| is_deeper(new, DEEPEST)) {
            return Err(Rejected::TooDeep);
        }
        let mut state = self.state();
        let record = state.write(key, expected, new)?;
        match &self.journal {
            // Under the lock, so that the file has the order of the revisions.
            Some(journal) => journal.write(Arc::clone(&record)),
            None => state.settle(record.revision),
        }
        record.new.clone().or_else(|| record.removed.clone()).ok_or(Rejected::Raced)
    }

    /// As [`Self::commit`]; `None` when someone else wrote the object first.
    ///
    /// # Errors
    /// When nothing can be written.
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
            Err(Rejected::TooDeep) => {
                Err(Status::bad_request(format!("{} is nested deeper than {DEEPEST} levels", key.name)))
            }
        }
    }
}

/// Whether a value has more than `levels` levels.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let inside = |value: &Value| levels == 0 || is_deeper(value, levels - 1);
    match value {
        Value::Object(members) => members.values().any(inside),
        Value::Array(items) => items.iter().any(inside),
        _ => false,
    }
}

// === impl Failure ===

impl Failure {
    fn new(file: String, error: &io::Error) -> Self {
        let full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        Self { file, cause: error.to_string(), full }
    }

    /// As a client is told: 507 where there is no room, 500 otherwise.
    #[must_use]
    pub fn status(&self) -> Status {
        const AFTER: &str = "what is stored can be read, and writes are accepted again by themselves";
        if self.full {
            let message = format!("not stored: {self}; {AFTER} when there is room");
            return Status::insufficient_storage(message);
        }
        Status::internal(format!("not stored: {self}; {AFTER} when the file can be written anew"))
    }
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self { history: HISTORY, rewrite_after: 8 * 1024 * 1024, retry: Duration::from_secs(1) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object;

    fn key(name: &str) -> Key {
        Key { resource: "configmaps".into(), namespace: "default".into(), name: name.into() }
    }

    fn config_map(name: &str, value: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "data": {"k": value}})
    }

    #[test]
    fn a_list_at_an_old_revision_shows_the_old_world() {
        let store = Store::new(HISTORY);
        let a = store.commit(&key("a"), None, Some(config_map("a", "1"))).unwrap();
        let b = store.commit(&key("b"), None, Some(config_map("b", "1"))).unwrap();
        store.commit(&key("a"), Some(&a), Some(config_map("a", "2"))).unwrap();
        store.commit(&key("b"), Some(&b), None).unwrap();
        store.commit(&key("c"), None, Some(config_map("c", "1"))).unwrap();

        let then = store.list_at("configmaps", Some("default"), 2).unwrap();
        let names: Vec<&str> = then.objects.values().map(|object| object::name(object)).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(then.objects.values().next().map(|object| &object["data"]["k"]), Some(&json!("1")));
    }

    #[test]
    fn a_removal_carries_its_own_revision() {
        let store = Store::new(HISTORY);
        let a = store.commit(&key("a"), None, Some(config_map("a", "1"))).unwrap();
        let gone = store.commit(&key("a"), Some(&a), None).unwrap();
        assert_eq!(object::resource_version(&a), "1");
        assert_eq!(object::resource_version(&gone), "2");
        assert!(store.by_uid("a").is_none());
    }

    #[test]
    fn a_write_over_a_stale_object_loses() {
        let store = Store::new(HISTORY);
        let first = store.commit(&key("a"), None, Some(config_map("a", "1"))).unwrap();
        store.commit(&key("a"), Some(&first), Some(config_map("a", "2"))).unwrap();
        let third = || Some(config_map("a", "3"));
        assert!(matches!(store.commit(&key("a"), Some(&first), third()), Err(Rejected::Raced)));
        assert!(matches!(store.commit(&key("a"), None, third()), Err(Rejected::Raced)));
    }
}
