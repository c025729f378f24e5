//! The history by collection, for those that somebody watches: a watch sees, and is woken for, what it is about.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;

use super::Record;

/// A collection: the storage name of a resource, in one namespace or all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    pub resource: String,
    pub namespace: Option<String>,
}

#[derive(Default)]
pub(super) struct Feeds(BTreeMap<Scope, Feed>);

struct Feed {
    records: VecDeque<Arc<Record>>,
    /// The newest revision that left `records`; who has not seen it has missed something.
    lost: u64,
    newest: watch::Sender<u64>,
}

// === impl Scope ===

impl Scope {
    pub(super) fn holds(&self, record: &Record) -> bool {
        self.resource == record.key.resource
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == record.key.namespace)
    }

    /// The collections that an object is in.
    fn of(record: &Record) -> [Self; 2] {
        [None, Some(record.key.namespace.clone())]
            .map(|namespace| Self { resource: record.key.resource.clone(), namespace })
    }
}

// === impl Feeds ===

impl Feeds {
    /// Wakes at every new record of `scope`, and keeps its feed as long as it lives.
    pub(super) fn open<'a>(
        &mut self,
        scope: &Scope,
        history: impl Iterator<Item = &'a Arc<Record>>,
    ) -> watch::Receiver<u64> {
        let feed = self.0.entry(scope.clone()).or_insert_with(|| Feed {
            records: history.filter(|record| scope.holds(record)).cloned().collect(),
            lost: 0,
            newest: watch::channel(0).0,
        });
        feed.newest.subscribe()
    }

    /// A record may be shown. Feeds that nobody follows any more end here.
    pub(super) fn push(&mut self, record: &Arc<Record>) {
        for scope in Scope::of(record) {
            match self.0.get_mut(&scope) {
                Some(feed) if feed.newest.receiver_count() > 0 => {
                    feed.records.push_back(Arc::clone(record));
                    feed.newest.send_replace(record.revision);
                }
                Some(_) => drop(self.0.remove(&scope)),
                None => {}
            }
        }
    }

    /// The oldest record leaves the history.
    pub(super) fn forget(&mut self, record: &Record) {
        for scope in Scope::of(record) {
            let Some(feed) = self.0.get_mut(&scope) else { continue };
            if feed.records.front().is_some_and(|oldest| oldest.revision == record.revision) {
                feed.records.pop_front();
                feed.lost = record.revision;
            }
        }
    }

    /// The records after `revision`, and what was lost before them.
    pub(super) fn after(&self, scope: &Scope, revision: u64) -> (impl Iterator<Item = &Arc<Record>>, u64) {
        let feed = self.0.get(scope);
        let records = feed.into_iter().flat_map(move |feed| {
            let from = feed.records.partition_point(|record| record.revision <= revision);
            feed.records.range(from..)
        });
        (records, feed.map_or(0, |feed| feed.lost))
    }
}
