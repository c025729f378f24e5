//! What a store holds, behind its lock: objects, the history, and how much of it is durable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::feeds::Feeds;
use super::format::{BaseEnd, Entry};
use super::index::Index;
use super::recovery::Recovered;
use super::{Collection, Compacted, Failure, Kept, Key, Place, Record, Rejected, Scope, Since};
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
    /// By resource. A collection that a list still reads is copied for the next write to it, which takes no longer than to
    /// copy it for the list would have taken.
    pub(super) objects: BTreeMap<String, Arc<Collection>>,
    /// Resources whose trees stay.
    held: BTreeSet<String>,
    pub(super) index: Index,
    pub(super) history: VecDeque<Arc<Record>>,
    /// The durable part of it, by collection.
    feeds: Feeds,
    /// How many records the history keeps.
    kept: usize,
    /// The newest durable revision; wakes when something was undone, too.
    latest: watch::Sender<u64>,
}

/// Every object at one moment.
pub(super) struct Base {
    pub(super) end: BaseEnd,
    pub(super) objects: Vec<(Key, Arc<Kept>)>,
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
            held: BTreeSet::new(),
            index: Index::default(),
            history: VecDeque::new(),
            feeds: Feeds::default(),
            kept,
            latest,
        }
    }

    /// Fills an empty state with what a file holds. The writes behind the base become history again, so that watches
    /// go on over a restart.
    pub(super) fn restore(&mut self, found: Recovered) -> Lengths {
        let lengths = Lengths { file: found.length as u64, base: found.base_length as u64 };
        for Entry { key, object, .. } in found.base {
            self.put(&key, None, object.map(kept).as_ref());
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
        let removed = if object.is_none() { old.as_ref().map(|old| removal(&old.tree(), revision)) } else { None };
        self.apply(Record { revision, key, old, new: object.map(kept), removed });
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Kept>> {
        // A tuple of borrowed strings cannot look up a tuple of owned ones.
        self.objects.get(&key.resource)?.get(&(key.namespace.clone(), key.name.clone()))
    }

    /// Keeps the trees of a resource from now on.
    pub(super) fn hold(&mut self, resource: &str) {
        if self.held.insert(resource.to_owned()) {
            self.objects
                .get(resource)
                .into_iter()
                .flat_map(|objects| objects.iter())
                .for_each(|(_, object)| object.hold());
        }
    }

    pub(super) fn reachable(&self, revision: u64) -> Result<(), Compacted> {
        if revision < self.compacted { Err(Compacted { oldest: self.compacted }) } else { Ok(()) }
    }

    /// The first durable records after `revision`.
    pub(super) fn after(
        &self,
        revision: u64,
        since: Option<Since>,
        most: usize,
    ) -> Result<Vec<Arc<Record>>, Compacted> {
        self.reachable(revision)?;
        if since.is_some_and(|since| since.0 != self.losses) {
            return Err(Compacted { oldest: self.durable });
        }
        let from = self.behind(revision);
        Ok(self.history.range(from..self.behind(self.durable).max(from)).take(most).cloned().collect())
    }

    /// Where in the history the records after `revision` begin.
    fn behind(&self, revision: u64) -> usize {
        self.history.partition_point(|record| record.revision <= revision)
    }

    pub(super) fn follow(&mut self, scope: &Scope) -> watch::Receiver<u64> {
        let durable = self.behind(self.durable);
        self.feeds.open(scope, self.history.range(..durable))
    }

    pub(super) fn after_in(
        &self,
        scope: &Scope,
        revision: u64,
        most: usize,
    ) -> Result<(Vec<Arc<Record>>, u64), Compacted> {
        let (records, lost) = self.feeds.after(scope, revision);
        if lost > revision {
            return Err(Compacted { oldest: self.compacted });
        }
        let records: Vec<_> = records.take(most).cloned().collect();
        let seen = match records.last() {
            Some(last) if records.len() == most => last.revision,
            _ => self.durable.max(revision),
        };
        Ok((records, seen))
    }

    pub(super) fn is_durable(&self, revision: u64, since: Since) -> Result<bool, Arc<Failure>> {
        match &self.failure {
            Some(failure) if since.0 != self.losses => Err(Arc::clone(failure)),
            _ => Ok(self.durable >= revision),
        }
    }

    /// Makes a write that can be seen, but is not yet durable. Returns the object as written, or as removed.
    pub(super) fn write(
        &mut self,
        key: &Key,
        expected: Option<&Arc<Value>>,
        new: Option<Value>,
    ) -> Result<(Arc<Record>, Arc<Value>), Rejected> {
        if let (true, Some(failure)) = (self.refusing, &self.failure) {
            return Err(Rejected::Refused(Arc::clone(failure)));
        }
        let old = match (self.get(key), expected) {
            (Some(current), Some(expected)) if current.is(expected) => Some(Arc::clone(current)),
            (None, None) if new.is_some() => None,
            _ => return Err(Rejected::Raced),
        };
        self.issued += 1;
        self.revision = self.issued;
        let revision = self.issued;
        let record = |new, removed| Record { revision, key: key.clone(), old, new, removed };
        let (record, written) = match (new, expected) {
            (Some(mut object), _) => {
                object::set_resource_version(&mut object, revision);
                let object = Arc::new(object);
                (record(Some(Arc::new(Kept::new(&object))), None), object)
            }
            (None, Some(last)) => {
                let removed = removal(last, revision);
                let last = removed.tree();
                (record(None, Some(removed)), last)
            }
            (None, None) => return Err(Rejected::Raced),
        };
        Ok((self.apply(record), written))
    }

    /// The object as it is from this revision on, in the history too.
    fn apply(&mut self, record: Record) -> Arc<Record> {
        self.put(&record.key, record.old.as_ref(), record.new.as_ref());
        let record = Arc::new(record);
        self.history.push_back(Arc::clone(&record));
        record
    }

    /// Of what was there only the text is kept.
    fn put(&mut self, key: &Key, old: Option<&Arc<Kept>>, new: Option<&Arc<Kept>>) {
        if let Some(old) = old {
            self.index.forget(key, &old.tree());
        }
        if let Some(new) = new {
            self.index.note(key, &new.tree());
        }
        let place = (key.namespace.clone(), key.name.clone());
        let objects = Arc::make_mut(self.objects.entry(key.resource.clone()).or_default());
        match (new, objects.get_mut(&place)) {
            (Some(new), Some(slot)) => *slot = Arc::clone(new),
            (Some(new), None) => drop(objects.insert(Arc::new(place), Arc::clone(new))),
            (None, _) => drop(objects.remove(&place)),
        }
        if let Some(old) = old {
            old.release();
        }
        if let Some(new) = new.filter(|_| self.held.contains(&key.resource)) {
            new.hold();
        }
    }

    /// Everything up to `revision` is durable: it is shown to watches, and may leave the history.
    pub(super) fn settle(&mut self, revision: u64) {
        // From the end, as little of a long history is new.
        let newer = |than: u64| self.history.iter().rev().take_while(move |record| record.revision > than).count();
        let (from, to) = (self.history.len() - newer(self.durable), self.history.len() - newer(revision));
        for record in self.history.range(from..to.max(from)) {
            self.feeds.push(record);
        }
        self.durable = self.durable.max(revision);
        while self.history.len() > self.kept
            && self.history.front().is_some_and(|oldest| oldest.revision <= self.durable)
            && let Some(oldest) = self.history.pop_front()
        {
            self.compacted = oldest.revision;
            self.feeds.forget(&oldest);
        }
        self.latest.send_replace(self.durable);
    }

    /// Undoes what is not durable, and refuses writes from now on.
    pub(super) fn lose(&mut self, failure: Failure) {
        while self.history.back().is_some_and(|record| record.revision > self.durable)
            && let Some(record) = self.history.pop_back()
        {
            self.put(&record.key, record.new.as_ref(), record.old.as_ref());
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
            objects.iter().map(move |(place, object)| {
                let (namespace, name) = Place::clone(place);
                let key = Key { resource: resource.clone(), namespace, name };
                (key, Arc::clone(object))
            })
        });
        Base { end, objects: everything.collect() }
    }
}

fn kept(object: Value) -> Arc<Kept> {
    Arc::new(Kept::new(&Arc::new(object)))
}

/// A removed object carries the revision of its removal.
fn removal(last: &Value, revision: u64) -> Arc<Kept> {
    let mut last = last.clone();
    object::set_resource_version(&mut last, revision);
    kept(last)
}
