//! The history by collection, for the collections that have watches: a watch reads, and is notified of, only the events
//! of its collection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::change_signal::{ChangeReceiver, ChangeSignal};
use super::{CollectionKey, StoreEvent};

/// Number of collections below which those without receivers are not removed.
const MIN_COLLECTIONS: usize = 64;

/// The events of the watched collections.
#[derive(Default)]
pub(super) struct WatchCache {
    collections: BTreeMap<CollectionKey, CollectionEvents>,
    /// Number of collections at which those without receivers are removed: twice the number after the last removal.
    max_collections: usize,
}

/// The events of one watched collection.
struct CollectionEvents {
    events: VecDeque<Arc<StoreEvent>>,
    /// The newest revision that was removed from `events`. A watch at an older revision has missed events.
    compacted_revision: u64,
    changed: ChangeSignal,
}

// === impl WatchCache ===

impl WatchCache {
    /// Returns a receiver that is notified of every event of `collection`; events of the collection are kept as long as
    /// a receiver exists.
    pub(super) fn subscribe<'a>(
        &mut self,
        collection: &CollectionKey,
        history: impl Iterator<Item = &'a Arc<StoreEvent>>,
    ) -> ChangeReceiver {
        if self.collections.len() >= self.max_collections {
            // Collections without events, such as those of deleted namespaces, are not visited by `push`.
            self.collections.retain(|_, events| events.changed.receiver_count() > 0);
            self.max_collections = self.collections.len().saturating_mul(2).max(MIN_COLLECTIONS);
        }
        let collection_events = self.collections.entry(collection.clone()).or_insert_with(|| CollectionEvents {
            events: history.filter(|event| collection.contains(&event.key)).cloned().collect(),
            compacted_revision: 0,
            changed: ChangeSignal::default(),
        });
        collection_events.changed.subscribe()
    }

    /// Adds a durable event. Collections without receivers are dropped.
    pub(super) fn push(&mut self, event: &Arc<StoreEvent>) {
        for collection in CollectionKey::containing(&event.key) {
            match self.collections.get_mut(&collection) {
                Some(collection_events) if collection_events.changed.receiver_count() > 0 => {
                    collection_events.events.push_back(Arc::clone(event));
                    collection_events.changed.send();
                }
                Some(_) => drop(self.collections.remove(&collection)),
                None => {}
            }
        }
    }

    /// Removes the oldest event of the history.
    pub(super) fn remove_oldest(&mut self, event: &StoreEvent) {
        for collection in CollectionKey::containing(&event.key) {
            let Some(collection_events) = self.collections.get_mut(&collection) else { continue };
            if collection_events.events.front().is_some_and(|oldest| oldest.revision == event.revision) {
                collection_events.events.pop_front();
                collection_events.compacted_revision = event.revision;
            }
        }
    }

    /// Returns the events after `revision`, and the newest revision that was removed.
    pub(super) fn events_after(
        &self,
        collection: &CollectionKey,
        revision: u64,
    ) -> (impl Iterator<Item = &Arc<StoreEvent>>, u64) {
        let collection_events = self.collections.get(collection);
        let events = collection_events.into_iter().flat_map(move |collection_events| {
            let start = collection_events.events.partition_point(|event| event.revision <= revision);
            collection_events.events.range(start..)
        });
        (events, collection_events.map_or(0, |collection_events| collection_events.compacted_revision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_without_receivers_are_removed() {
        let mut cache = WatchCache::default();
        let collection = |index: usize| CollectionKey { resource: "pods".into(), namespace: Some(format!("n{index}")) };
        let watched = cache.subscribe(&collection(0), std::iter::empty());
        for index in 1..10_000 {
            drop(cache.subscribe(&collection(index), std::iter::empty()));
            assert!(cache.collections.len() <= MIN_COLLECTIONS);
        }
        assert!(cache.collections.contains_key(&collection(0)) && !watched.has_changed());
    }
}
