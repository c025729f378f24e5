//! What is known of the objects of one kind: what the watch has told, and our own writes that are ahead of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::runtime::watcher::Event;
use serde_json::Value;

use super::Key;
use super::change::Noted;
use super::index::{Index, words};
use crate::Kind;
use crate::kept::{Keeping, Kept};
use crate::object::meta;

#[derive(Debug, Default)]
pub(super) struct Store {
    keeping: Keeping,
    pub(super) objects: BTreeMap<Key, Kept>,
    /// Answers to our own writes that the watch has not delivered yet.
    ahead: BTreeMap<Key, Kept>,
    /// Of `objects` and of `ahead`: what it finds is looked at.
    pub(super) index: Index,
    /// Collects a running list.
    listing: Option<BTreeMap<Key, Kept>>,
    pub(super) synced: bool,
}

// === impl Store ===

impl Store {
    pub(super) fn new(keeping: Keeping) -> Store {
        Store { keeping, ..Store::default() }
    }

    pub(super) fn accept(&mut self, kind: Kind, event: Event<Value>) -> Vec<Noted> {
        match event {
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                let tree = Arc::new(object);
                let kept = Kept::new(self.keeping.form, &tree);
                self.listing.get_or_insert_default().insert(Key::of(&tree), kept);
                Vec::new()
            }
            Event::InitDone => self.exchange(kind),
            Event::Apply(object) => {
                let tree = Arc::new(object);
                let kept = Kept::new(self.keeping.form, &tree);
                self.put(kind, Key::of(&tree), kept).into_iter().collect()
            }
            Event::Delete(object) => self.remove(kind, &Key::of(&object)).into_iter().collect(),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Kept> {
        self.ahead.get(key).or_else(|| self.objects.get(key))
    }

    pub(super) fn found<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> Vec<Kept> {
        keys.filter_map(|key| self.get(key).cloned()).collect()
    }

    /// Under which words the key is found: those of the object as the watch told it, and of what is ahead of that.
    fn words(&self, key: &Key) -> Vec<String> {
        let kept = self.objects.get(key).into_iter().chain(self.ahead.get(key));
        kept.flat_map(|kept| words(&kept.tree(), self.keeping.labels)).collect()
    }

    /// Changes what is known of one key.
    fn change<T>(&mut self, key: &Key, change: impl FnOnce(&mut Store) -> T) -> T {
        let before = self.words(key);
        let result = change(self);
        let now = self.words(key);
        self.index.exchange(key, before, now);
        result
    }

    pub(super) fn observe(&mut self, object: Value) {
        let tree = Arc::new(object);
        let key = Key::of(&tree);
        let newer = |known: &Kept| {
            let known = known.tree();
            meta(&known, "uid") == meta(&tree, "uid") && version(&known) < version(&tree)
        };
        if self.get(&key).is_some_and(newer) {
            let kept = Kept::new(self.keeping.form, &tree);
            self.change(&key, |store| drop(store.ahead.insert(key.clone(), kept)));
        }
    }

    /// The list is complete: differences to the old content are the changes.
    fn exchange(&mut self, kind: Kind) -> Vec<Noted> {
        let listed = self.listing.take().unwrap_or_default();
        self.ahead.clear();
        let gone: Vec<Key> = self.objects.keys().filter(|key| !listed.contains_key(key)).cloned().collect();
        let mut changes: Vec<Noted> = gone.iter().filter_map(|key| self.remove(kind, key)).collect();
        changes
            .extend(listed.into_iter().filter_map(|(key, kept)| self.put(kind, key, kept)).map(Noted::without_trees));
        if !self.synced {
            self.synced = true;
            changes.push(Noted::Synced(kind));
        }
        changes
    }

    fn put(&mut self, kind: Kind, key: Key, kept: Kept) -> Option<Noted> {
        let new = kept.tree();
        // What is ahead of `new` stays.
        let caught_up = self
            .ahead
            .get(&key)
            .map(Kept::tree)
            .is_some_and(|ahead| version(&ahead) <= version(&new) || meta(&ahead, "uid") != meta(&new, "uid"));
        let known = self.objects.get(&key);
        if !caught_up && known == Some(&kept) {
            return None;
        }
        let held = known.map(Kept::tree).into_iter().chain([new]).collect();
        let old = self.change(&key, |store| {
            if caught_up {
                store.ahead.remove(&key);
            }
            store.objects.insert(key.clone(), kept.clone())
        });
        let is_news = old.as_ref() != Some(&kept);
        is_news.then_some(Noted::Object { kind, key, old, new: Some(kept), held })
    }

    fn remove(&mut self, kind: Kind, key: &Key) -> Option<Noted> {
        let held = self.objects.get(key).map(Kept::tree).into_iter().collect();
        let old = self.change(key, |store| {
            store.ahead.remove(key);
            store.objects.remove(key)
        })?;
        Some(Noted::Object { kind, key: key.clone(), old: Some(old), new: None, held })
    }
}

/// Resource versions of one kind count upwards (Kubernetes promises it since 1.35, and etcd always did).
fn version(object: &Value) -> u64 {
    meta(object, "resourceVersion").parse().unwrap_or_default()
}
