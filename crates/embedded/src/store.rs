//! The only state: objects under one revision counter, and the history that watches read.
//!
//! Every write is one revision, and becomes visible and part of the history under the same lock, so readers see
//! revisions in order. Writers never wait for readers: who falls behind the bounded history starts again from a list.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

use crate::object;

/// How many revisions a watch may fall behind, unless said otherwise. A record is two pointers into objects that mostly live anyway; this is
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
    pub old: Option<Arc<Value>>,
    /// Absent when the object was removed.
    pub new: Option<Arc<Value>>,
    /// The removed object carrying the revision of its removal: clients resume watches from there.
    pub removed: Option<Arc<Value>>,
}

/// Someone else wrote the object first; read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raced;

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
    latest: watch::Receiver<u64>,
}

struct State {
    revision: u64,
    /// Revisions up to this one are no longer in the history.
    compacted: u64,
    objects: BTreeMap<String, BTreeMap<Place, Arc<Value>>>,
    by_uid: BTreeMap<String, Key>,
    /// Owner uid → who names it in `ownerReferences`.
    dependents: BTreeMap<String, BTreeSet<Key>>,
    history: VecDeque<Arc<Record>>,
    /// How many records the history keeps.
    kept: usize,
    latest: watch::Sender<u64>,
}

// === impl Store ===

impl Store {
    /// An empty store whose history keeps `kept` revisions.
    #[must_use]
    pub fn new(kept: usize) -> Self {
        let (sender, latest) = watch::channel(0);
        let state = State {
            revision: 0,
            compacted: 0,
            objects: BTreeMap::new(),
            by_uid: BTreeMap::new(),
            dependents: BTreeMap::new(),
            history: VecDeque::new(),
            kept,
            latest: sender,
        };
        Self { state: Arc::new(Mutex::new(state)), latest }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while holding the lock can only come from allocation; the state is consistent between statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes at every new revision.
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

    /// The records after `revision`, oldest first.
    ///
    /// # Errors
    /// [`Compacted`] when some of them are gone.
    pub fn since(&self, revision: u64) -> Result<Vec<Arc<Record>>, Compacted> {
        let state = self.state();
        state.reachable(revision)?;
        let from = state.history.partition_point(|record| record.revision <= revision);
        Ok(state.history.range(from..).cloned().collect())
    }

    /// Writes `new` (removes with `None`) if the object is still `expected`, and stamps it with the new revision.
    ///
    /// # Errors
    /// [`Raced`] when it is not.
    pub fn commit(&self, key: &Key, expected: Option<&Arc<Value>>, new: Option<Value>) -> Result<Arc<Value>, Raced> {
        let mut state = self.state();
        let unchanged = match (state.get(key), expected) {
            (Some(current), Some(expected)) => Arc::ptr_eq(current, expected),
            (None, None) => true,
            _ => false,
        };
        if unchanged { state.write(key, expected.cloned(), new) } else { Err(Raced) }
    }
}

// === impl State ===

impl State {
    fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        // A tuple of borrowed strings cannot look up a tuple of owned ones.
        self.objects.get(&key.resource)?.get(&(key.namespace.clone(), key.name.clone()))
    }

    fn reachable(&self, revision: u64) -> Result<(), Compacted> {
        if revision < self.compacted { Err(Compacted { oldest: self.compacted }) } else { Ok(()) }
    }

    fn write(&mut self, key: &Key, old: Option<Arc<Value>>, new: Option<Value>) -> Result<Arc<Value>, Raced> {
        self.revision += 1;
        let revision = self.revision;
        let stamp = |mut object: Value| {
            object::set_resource_version(&mut object, revision);
            Arc::new(object)
        };
        let removed = if new.is_none() { old.as_deref().cloned().map(stamp) } else { None };
        let new = new.map(stamp);
        self.index(key, old.as_deref(), new.as_deref());
        let place = (key.namespace.clone(), key.name.clone());
        let objects = self.objects.entry(key.resource.clone()).or_default();
        match &new {
            Some(new) => objects.insert(place, Arc::clone(new)),
            None => objects.remove(&place),
        };
        let written = new.clone().or_else(|| removed.clone()).ok_or(Raced)?;
        self.publish(Record { revision, key: key.clone(), old, new, removed });
        Ok(written)
    }

    fn index(&mut self, key: &Key, old: Option<&Value>, new: Option<&Value>) {
        if let Some(old) = old {
            self.by_uid.remove(object::uid(old));
            for owner in object::owner_references(old) {
                let uid = object::text(owner, "/uid");
                if let Some(keys) = self.dependents.get_mut(uid) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.dependents.remove(uid);
                    }
                }
            }
        }
        if let Some(new) = new {
            self.by_uid.insert(object::uid(new).to_owned(), key.clone());
            for owner in object::owner_references(new) {
                self.dependents.entry(object::text(owner, "/uid").to_owned()).or_default().insert(key.clone());
            }
        }
    }

    fn publish(&mut self, record: Record) {
        let revision = record.revision;
        self.history.push_back(Arc::new(record));
        if self.history.len() > self.kept
            && let Some(oldest) = self.history.pop_front()
        {
            self.compacted = oldest.revision;
        }
        self.latest.send_replace(revision);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        assert_eq!(store.commit(&key("a"), Some(&first), Some(config_map("a", "3"))), Err(Raced));
        assert_eq!(store.commit(&key("a"), None, Some(config_map("a", "3"))), Err(Raced));
    }
}
