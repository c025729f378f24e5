//! What a store holds, behind its lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::format::{BaseEnd, Entry};
use super::recovery::Recovered;
use super::{Compacted, Failure, Key, Place, Record, Rejected, Since};
use crate::object;

pub(super) struct State {
    /// Of the newest write that can be seen.
    pub(super) revision: u64,
    /// The highest revision that any write was given, those that were undone included: it is not given again.
    issued: u64,
    /// Up to this revision a crash undoes nothing.
    durable: u64,
    /// How often something may have been undone.
    pub(super) losses: u64,
    /// The newest reason for that.
    failure: Option<Arc<Failure>>,
    /// Writes are refused.
    refusing: bool,
    /// Revisions up to this one are no longer in the history.
    compacted: u64,
    pub(super) objects: BTreeMap<String, BTreeMap<Place, Arc<Value>>>,
    pub(super) by_uid: BTreeMap<String, Key>,
    /// Owner uid → who names it in `ownerReferences`.
    pub(super) dependents: BTreeMap<String, BTreeSet<Key>>,
    pub(super) history: VecDeque<Arc<Record>>,
    /// How many records the history keeps.
    kept: usize,
    /// The newest durable revision; wakes when something was undone, too.
    latest: watch::Sender<u64>,
}

/// Every object at one moment.
pub(super) struct Base {
    pub(super) end: BaseEnd,
    pub(super) objects: Vec<(Key, Arc<Value>)>,
}

/// Parts of a file: all of it, and its base.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    pub(super) file: u64,
    pub(super) base: u64,
}

// === impl State ===

impl State {
    pub(super) fn new(kept: usize, latest: watch::Sender<u64>) -> Self {
        Self {
            revision: 0,
            issued: 0,
            durable: 0,
            losses: 0,
            failure: None,
            refusing: false,
            compacted: 0,
            objects: BTreeMap::new(),
            by_uid: BTreeMap::new(),
            dependents: BTreeMap::new(),
            history: VecDeque::new(),
            kept,
            latest,
        }
    }

    /// Fills an empty state with what a file holds. The writes behind the base become history again, so that watches
    /// go on over a restart.
    pub(super) fn restore(&mut self, found: Recovered) -> Lengths {
        let lengths = Lengths { file: found.length as u64, base: found.base_length as u64 };
        for Entry { key, object, .. } in found.base {
            self.put(&key, None, object.map(Arc::new));
        }
        if let Some(end) = found.end {
            (self.revision, self.issued, self.compacted) = (end.revision, end.issued, end.revision);
        }
        for entry in found.commits {
            // A base may be ahead of the first writes behind it.
            if entry.revision > self.revision {
                self.replay(entry);
            }
        }
        self.issued = self.issued.max(self.revision);
        self.settle(self.revision);
        lengths
    }

    fn replay(&mut self, Entry { revision, key, object }: Entry) {
        self.revision = revision;
        let old = self.get(&key).cloned();
        self.apply(revision, &key, old, object.map(Arc::new));
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        // A tuple of borrowed strings cannot look up a tuple of owned ones.
        self.objects.get(&key.resource)?.get(&(key.namespace.clone(), key.name.clone()))
    }

    pub(super) fn reachable(&self, revision: u64) -> Result<(), Compacted> {
        if revision < self.compacted { Err(Compacted { oldest: self.compacted }) } else { Ok(()) }
    }

    /// The durable records after `revision`.
    pub(super) fn after(&self, revision: u64, since: Option<Since>) -> Result<Vec<Arc<Record>>, Compacted> {
        self.reachable(revision)?;
        if since.is_some_and(|since| since.0 != self.losses) {
            return Err(Compacted { oldest: self.durable });
        }
        let position = |revision| self.history.partition_point(|record| record.revision <= revision);
        let (from, to) = (position(revision), position(self.durable));
        Ok(self.history.range(from..to.max(from)).cloned().collect())
    }

    pub(super) fn is_durable(&self, revision: u64, since: Since) -> Result<bool, Arc<Failure>> {
        match &self.failure {
            Some(failure) if since.0 != self.losses => Err(Arc::clone(failure)),
            _ => Ok(self.durable >= revision),
        }
    }

    /// Makes a write that can be seen, but is not yet durable.
    pub(super) fn write(
        &mut self,
        key: &Key,
        expected: Option<&Arc<Value>>,
        new: Option<Value>,
    ) -> Result<Arc<Record>, Rejected> {
        if let (true, Some(failure)) = (self.refusing, &self.failure) {
            return Err(Rejected::Refused(Arc::clone(failure)));
        }
        let unchanged = match (self.get(key), expected) {
            (Some(current), Some(expected)) => Arc::ptr_eq(current, expected),
            (None, None) => new.is_some(),
            _ => false,
        };
        if !unchanged {
            return Err(Rejected::Raced);
        }
        self.issued += 1;
        self.revision = self.issued;
        let new = new.map(|mut object| {
            object::set_resource_version(&mut object, self.issued);
            Arc::new(object)
        });
        Ok(self.apply(self.issued, key, expected.cloned(), new))
    }

    /// The object as it is from this revision on, in the history too.
    fn apply(&mut self, revision: u64, key: &Key, old: Option<Arc<Value>>, new: Option<Arc<Value>>) -> Arc<Record> {
        let last = if new.is_none() { old.as_deref().cloned() } else { None };
        let removed = last.map(|mut object| {
            object::set_resource_version(&mut object, revision);
            Arc::new(object)
        });
        self.put(key, old.as_deref(), new.clone());
        let record = Arc::new(Record { revision, key: key.clone(), old, new, removed });
        self.history.push_back(Arc::clone(&record));
        record
    }

    fn put(&mut self, key: &Key, old: Option<&Value>, new: Option<Arc<Value>>) {
        self.index(key, old, new.as_deref());
        let place = (key.namespace.clone(), key.name.clone());
        let objects = self.objects.entry(key.resource.clone()).or_default();
        match new {
            Some(new) => objects.insert(place, new),
            None => objects.remove(&place),
        };
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

    /// Everything up to `revision` is durable: it is shown to watches, and may leave the history.
    pub(super) fn settle(&mut self, revision: u64) {
        self.durable = self.durable.max(revision);
        while self.history.len() > self.kept
            && self.history.front().is_some_and(|oldest| oldest.revision <= self.durable)
            && let Some(oldest) = self.history.pop_front()
        {
            self.compacted = oldest.revision;
        }
        self.latest.send_replace(self.durable);
    }

    /// Undoes what is not durable, and refuses writes from now on.
    pub(super) fn lose(&mut self, failure: Failure) {
        while self.history.back().is_some_and(|record| record.revision > self.durable)
            && let Some(record) = self.history.pop_back()
        {
            self.put(&record.key, record.new.as_deref(), record.old.clone());
        }
        self.revision = self.durable;
        self.refuse(failure);
        self.losses += 1;
        self.latest.send_replace(self.durable);
    }

    /// Writes are refused for this reason.
    pub(super) fn refuse(&mut self, failure: Failure) {
        self.failure = Some(Arc::new(failure));
        self.refusing = true;
    }

    /// Accepts writes again. Who follows the changes reads everything again: what it wrote may have been undone, or
    /// refused.
    pub(super) fn recover(&mut self) {
        self.refusing = false;
        self.losses += 1;
        self.latest.send_replace(self.durable);
    }

    pub(super) fn base(&self) -> Base {
        let end = BaseEnd { revision: self.revision, issued: self.issued };
        let everything = self.objects.iter().flat_map(|(resource, objects)| {
            objects.iter().map(move |((namespace, name), object)| {
                let key = Key { resource: resource.clone(), namespace: namespace.clone(), name: name.clone() };
                (key, Arc::clone(object))
            })
        });
        Base { end, objects: everything.collect() }
    }
}
