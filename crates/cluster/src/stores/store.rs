//! Cache of the objects of one kind: watched objects, overlaid by responses to our own writes that are newer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::runtime::watcher::Event;
use serde_json::Value;

use super::change::CachedChange;
use super::index::{Index, index_values};
use crate::Kind;
use crate::cached_object::{CachePolicy, CachedObject};
use crate::namespaced_name::NamespacedName;
use crate::object::metadata_field;

/// Cached objects of one kind.
#[derive(Debug, Default)]
pub(super) struct Store {
    cache_policy: CachePolicy,
    /// Watched objects.
    pub(super) objects: BTreeMap<NamespacedName, CachedObject>,
    /// Responses to our own writes that the watch has not delivered yet.
    pending_writes: BTreeMap<NamespacedName, CachedObject>,
    /// Index of `objects` and `pending_writes`. It also contains values of objects that a pending write overlays, so
    /// callers verify the objects that they find.
    pub(super) index: Index,
    /// Objects of the lists in progress, by namespace; the empty name is a list of the whole kind.
    listings: BTreeMap<String, BTreeMap<NamespacedName, CachedObject>>,
    /// Namespaces whose first list is not complete.
    unlisted: BTreeSet<String>,
    /// Whether the first list of every namespace is complete.
    pub(super) synced: bool,
    /// Error of the last attempt to list or watch the kind that failed.
    pub(super) list_error: Option<ListError>,
}

/// Why a kind could not be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListError {
    /// HTTP status code of the API server's response, if it responded.
    pub(crate) code: Option<u16>,
    /// Message of the API server, or the error of the request.
    pub(crate) message: String,
}

// === impl Store ===

impl Store {
    pub(super) fn new(cache_policy: CachePolicy) -> Store {
        Store { cache_policy, ..Store::default() }
    }

    /// Requires a complete list of each of these namespaces before the store counts as synced.
    pub(super) fn require_lists(&mut self, namespaces: BTreeSet<String>) {
        self.unlisted = namespaces;
    }

    /// Applies an event of the watch of `namespace`, or of the whole kind if it is empty.
    pub(super) fn apply_event(&mut self, kind: Kind, namespace: &str, event: Event<Value>) -> Vec<CachedChange> {
        match event {
            Event::Init => {
                self.listings.insert(namespace.to_owned(), BTreeMap::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                let value = Arc::new(object);
                let cached = CachedObject::new(self.cache_policy.representation, &value);
                let listing = self.listings.entry(namespace.to_owned()).or_default();
                listing.insert(NamespacedName::from_object(&value), cached);
                Vec::new()
            }
            Event::InitDone => self.replace_listed(kind, namespace),
            Event::Apply(object) => {
                let value = Arc::new(object);
                let cached = CachedObject::new(self.cache_policy.representation, &value);
                self.insert(kind, NamespacedName::from_object(&value), cached).into_iter().collect()
            }
            Event::Delete(object) => self.remove(kind, &NamespacedName::from_object(&object)).into_iter().collect(),
        }
    }

    pub(super) fn get(&self, key: &NamespacedName) -> Option<&CachedObject> {
        self.pending_writes.get(key).or_else(|| self.objects.get(key))
    }

    pub(super) fn get_all<'a>(&self, keys: impl Iterator<Item = &'a NamespacedName>) -> Vec<CachedObject> {
        keys.filter_map(|key| self.get(key).cloned()).collect()
    }

    /// Returns the index values of the watched object and of the pending write.
    fn index_values(&self, key: &NamespacedName) -> Vec<String> {
        let cached = self.objects.get(key).into_iter().chain(self.pending_writes.get(key));
        cached.flat_map(|cached| index_values(&cached.value(), self.cache_policy.indexed_labels)).collect()
    }

    /// Runs `update`, which changes the object of one key, and updates the index.
    fn update_indexed<T>(&mut self, key: &NamespacedName, update: impl FnOnce(&mut Store) -> T) -> T {
        let old = self.index_values(key);
        let result = update(self);
        let new = self.index_values(key);
        self.index.update(key, old, new);
        result
    }

    pub(super) fn observe_write(&mut self, object: Value) {
        let value = Arc::new(object);
        let key = NamespacedName::from_object(&value);
        let is_older = |cached: &CachedObject| {
            let cached = cached.value();
            metadata_field(&cached, "uid") == metadata_field(&value, "uid")
                && resource_version(&cached) < resource_version(&value)
        };
        if self.get(&key).is_some_and(is_older) {
            let cached = CachedObject::new(self.cache_policy.representation, &value);
            self.update_indexed(&key, |store| drop(store.pending_writes.insert(key.clone(), cached)));
        }
    }

    pub(super) fn observe_creation(&mut self, object: Value) {
        let key = NamespacedName::from_object(&object);
        if self.objects.contains_key(&key) {
            return self.observe_write(object);
        }
        let cached = CachedObject::new(self.cache_policy.representation, &Arc::new(object));
        self.update_indexed(&key, |store| drop(store.pending_writes.insert(key.clone(), cached)));
    }

    pub(super) fn observe_absence(&mut self, key: &NamespacedName) {
        if !self.objects.contains_key(key) {
            self.update_indexed(key, |store| drop(store.pending_writes.remove(key)));
        }
    }

    /// Replaces the content of `namespace` with the completed list and returns the differences.
    fn replace_listed(&mut self, kind: Kind, namespace: &str) -> Vec<CachedChange> {
        let listed = self.listings.remove(namespace).unwrap_or_default();
        let is_in_scope = |key: &NamespacedName| namespace.is_empty() || key.namespace == namespace;
        self.pending_writes.retain(|key, _| !is_in_scope(key));
        let deleted: Vec<NamespacedName> =
            self.objects.keys().filter(|key| is_in_scope(key) && !listed.contains_key(key)).cloned().collect();
        let mut changes: Vec<CachedChange> = deleted.iter().filter_map(|key| self.remove(kind, key)).collect();
        changes.extend(
            listed
                .into_iter()
                .filter_map(|(key, cached)| self.insert(kind, key, cached))
                .map(CachedChange::without_parsed_objects),
        );
        self.unlisted.remove(namespace);
        if !self.synced && self.unlisted.is_empty() {
            self.synced = true;
            changes.push(CachedChange::Synced(kind));
        }
        changes
    }

    fn insert(&mut self, kind: Kind, key: NamespacedName, cached: CachedObject) -> Option<CachedChange> {
        let new = cached.value();
        // A pending write that is newer than the watched object is retained.
        let caught_up = self.pending_writes.get(&key).map(CachedObject::value).is_some_and(|pending| {
            resource_version(&pending) <= resource_version(&new)
                || metadata_field(&pending, "uid") != metadata_field(&new, "uid")
        });
        let previous = self.objects.get(&key);
        if !caught_up && previous == Some(&cached) {
            return None;
        }
        let parsed = previous.map(CachedObject::value).into_iter().chain([new]).collect();
        let old = self.update_indexed(&key, |store| {
            if caught_up {
                store.pending_writes.remove(&key);
            }
            store.objects.insert(key.clone(), cached.clone())
        });
        let changed = old.as_ref() != Some(&cached);
        changed.then_some(CachedChange::Object { kind, key, old, new: Some(cached), parsed })
    }

    fn remove(&mut self, kind: Kind, key: &NamespacedName) -> Option<CachedChange> {
        let parsed = self.objects.get(key).map(CachedObject::value).into_iter().collect();
        let old = self.update_indexed(key, |store| {
            store.pending_writes.remove(key);
            store.objects.remove(key)
        })?;
        Some(CachedChange::Object { kind, key: key.clone(), old: Some(old), new: None, parsed })
    }
}

/// Returns the resource version as a number. Resource versions of one kind increase monotonically: Kubernetes
/// guarantees it since 1.35, and etcd revisions imply it for earlier versions.
fn resource_version(object: &Value) -> u64 {
    metadata_field(object, "resourceVersion").parse().unwrap_or_default()
}
