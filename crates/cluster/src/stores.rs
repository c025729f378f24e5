//! Ordered caches of the watched objects, one per kind.
//!
//! A cache is a plain synchronous struct that turns watch events into changes, so tests need no client. During a
//! list the previous content stays visible; it is replaced when the list is complete.

mod change;
mod index;
mod store;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use kube::runtime::watcher::Event;
use serde_json::Value;

use crate::Kind;
use crate::cached_object::{CachePolicy, CachedObject};
use crate::last_applied::LastApplied;
use crate::managed_fields::has_written_annotation;
use crate::namespaced_name::NamespacedName;
use crate::object::metadata_field;
use crate::owner::{is_owned_by, is_recorded_as_managed_by};
use crate::transform::{drop_unused_fields, drop_unused_state};
use change::CachedChange;
pub use change::{Change, Changes};
use index::{controller_index_value, label_index_value};
pub(crate) use store::ListError;
use store::Store;

/// Caches of all kinds. Clones share the content.
#[derive(Clone, Debug)]
pub struct Stores {
    stores: Arc<RwLock<BTreeMap<Kind, Store>>>,
    last_applied: LastApplied,
    /// Field manager whose managed fields are cached; managed fields of other managers are dropped.
    manager: &'static str,
    content: CachedContent,
    cache_policy: fn(Kind) -> CachePolicy,
}

/// Which fields of an object are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CachedContent {
    /// Those that reconciles read.
    Reduced,
    /// Also the managed fields of all managers and the schemas of definitions, which predict the result of an apply.
    Complete,
}

// === impl Stores ===

impl Stores {
    /// Returns empty caches that retain only the managed fields of `manager`.
    #[must_use]
    pub fn new(manager: &'static str) -> Stores {
        Stores::with_cache_policy(manager, |_| CachePolicy::default())
    }

    /// Returns empty caches with a cache policy per kind.
    #[must_use]
    pub fn with_cache_policy(manager: &'static str, cache_policy: fn(Kind) -> CachePolicy) -> Stores {
        let content = CachedContent::Reduced;
        Stores { stores: Arc::default(), last_applied: LastApplied::default(), manager, content, cache_policy }
    }

    /// Returns empty caches for [`Applier::preview`](crate::Applier::preview), which retain the managed fields of all
    /// managers and the schemas of CustomResourceDefinitions.
    #[must_use]
    pub fn with_complete_objects(manager: &'static str, cache_policy: fn(Kind) -> CachePolicy) -> Stores {
        Stores { content: CachedContent::Complete, ..Stores::with_cache_policy(manager, cache_policy) }
    }

    /// Caches the complete list of `objects` of a kind and returns the changes.
    pub fn replace_all(&self, kind: Kind, objects: Vec<Value>) -> Changes {
        let listed = objects.into_iter().map(Event::InitApply);
        [Event::Init].into_iter().chain(listed).for_each(|event| drop(self.apply_event(kind, event)));
        self.apply_event(kind, Event::InitDone)
    }

    /// Records that the objects of `kind` cannot be listed, and why.
    pub fn mark_unreadable(&self, kind: Kind, message: String) {
        self.add_kind(kind, BTreeSet::from([String::new()]));
        self.record_list_error(kind, ListError { code: None, message });
    }

    /// Applies an event of the only watch of `kind` to its cache and returns the changes.
    pub fn apply_event(&self, kind: Kind, event: Event<Value>) -> Changes {
        self.apply_namespace_event(kind, "", event)
    }

    /// Applies an event of the watch of `kind` in `namespace` to the cache, which the watches of several namespaces share,
    /// and returns the changes. A list replaces only the objects of its namespace; an empty name is the whole kind.
    pub(crate) fn apply_namespace_event(&self, kind: Kind, namespace: &str, event: Event<Value>) -> Changes {
        let event = event.modify(|object| match self.content {
            CachedContent::Reduced => drop_unused_fields(object, kind, self.manager, (self.cache_policy)(kind).fields),
            CachedContent::Complete => drop_unused_state(object, kind),
        });
        self.update(kind, |store| store.apply_event(kind, namespace, event)).into()
    }

    /// Adds the cache of `kind`, which has synced once each of `namespaces` has been listed.
    pub(crate) fn add_kind(&self, kind: Kind, namespaces: BTreeSet<String>) {
        self.update(kind, |store| store.require_lists(namespaces));
    }

    /// Returns whether a watch of `kind` is running.
    pub(crate) fn has_kind(&self, kind: Kind) -> bool {
        self.read(kind, |_| Some(())).is_some()
    }

    /// Records why `kind` could not be listed or watched. Does nothing if its watch was stopped.
    pub(crate) fn record_list_error(&self, kind: Kind, error: ListError) {
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get_mut(&kind) {
            store.list_error = Some(error);
        }
    }

    /// Returns why the last attempt to list or watch `kind` failed, if it did.
    pub(crate) fn list_error(&self, kind: Kind) -> Option<ListError> {
        self.read(kind, |store| store.list_error.clone())
    }

    /// Caches the response to our own write, so that the next read does not return an outdated object. The change is
    /// reported when the watch delivers it. Responses for objects that are not cached are ignored: an object that the watch
    /// reported as deleted must not reappear.
    pub(crate) fn observe_write(&self, kind: Kind, mut object: Value) {
        drop_unused_fields(&mut object, kind, self.manager, (self.cache_policy)(kind).fields);
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get_mut(&kind) {
            store.observe_write(object);
        }
    }

    /// Caches the response to a creation: [`Self::get`] returns the object before the watch delivers it. The change is reported
    /// when the watch delivers it.
    pub fn observe_creation(&self, kind: Kind, mut object: Value) {
        drop_unused_fields(&mut object, kind, self.manager, (self.cache_policy)(kind).fields);
        self.update(kind, |store| store.observe_creation(object));
    }

    /// Removes an object that a write did not find, if only the response to a write contains it. The watch does not report the
    /// deletion of an object that it has not delivered.
    pub fn observe_absence(&self, kind: Kind, key: &NamespacedName) {
        self.update(kind, |store| store.observe_absence(key));
    }

    /// Returns the last applied configurations of objects to which the API server added fields.
    pub(crate) fn last_applied(&self) -> &LastApplied {
        &self.last_applied
    }

    /// Removes the cache of a kind that is no longer served. Returns its objects as deleted.
    pub(crate) fn remove_kind(&self, kind: Kind) -> Changes {
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        let objects = stores.remove(&kind).unwrap_or_default().objects.into_iter();
        let changes =
            objects.map(|(key, old)| CachedChange::Object { kind, key, old: Some(old), new: None, parsed: Vec::new() });
        changes.collect::<Vec<_>>().into()
    }

    /// Returns one object.
    #[must_use]
    pub fn get(&self, kind: Kind, key: &NamespacedName) -> Option<Arc<Value>> {
        let cached = self.read(kind, |store| store.get(key).cloned())?;
        Some(cached.value())
    }

    /// Returns all objects of a kind in key order.
    #[must_use]
    pub fn list(&self, kind: Kind) -> Vec<Arc<Value>> {
        self.values(kind, |store| store.get_all(store.objects.keys()))
    }

    /// Returns the objects of a kind in one namespace in name order.
    #[must_use]
    pub fn list_namespace(&self, kind: Kind, namespace: &str) -> Vec<Arc<Value>> {
        self.values(kind, |store| {
            let from = NamespacedName::new(namespace, "");
            let keys = store.objects.range(from..).map(|(key, _)| key).take_while(|key| key.namespace == namespace);
            store.get_all(keys)
        })
    }

    /// Returns one object if `owner` controls it and our field manager applied it.
    #[must_use]
    pub fn get_owned_by(&self, kind: Kind, key: &NamespacedName, owner: &Value) -> Option<Arc<Value>> {
        self.get(kind, key).filter(|object| is_owned_by(object, owner, self.manager))
    }

    /// Returns the objects of a kind that `owner` controls and that our field manager applied, in key order. A copy of such an
    /// object has the same owner reference, but another field manager or the identity of its source.
    #[must_use]
    pub fn list_owned_by(&self, kind: Kind, owner: &Value) -> Vec<Arc<Value>> {
        let index_value = controller_index_value(metadata_field(owner, "uid"));
        let mut objects = self.values(kind, |store| store.get_all(store.index.find(&index_value, "")));
        objects.retain(|object| is_owned_by(object, owner, self.manager));
        objects
    }

    /// Returns whether our field manager applied the object and recorded its identity, so that it may be deleted.
    #[must_use]
    pub fn has_recorded_identity(&self, object: &Value) -> bool {
        is_recorded_as_managed_by(object, self.manager)
    }

    /// Returns whether our field manager wrote the current value of the annotation. A copy of the object has the annotation, too,
    /// but another field manager.
    #[must_use]
    pub fn is_own_annotation(&self, object: &Value, annotation: &str) -> bool {
        has_written_annotation(object, annotation, self.manager)
    }

    /// Returns the objects of a kind in one namespace whose `label` has this value, in name order. The label must be one of
    /// the indexed labels of the kind.
    #[must_use]
    pub fn list_with_label(&self, kind: Kind, namespace: &str, label: &str, value: &str) -> Vec<Arc<Value>> {
        let index_value = label_index_value(label, value);
        let mut objects = self.values(kind, |store| {
            let keys = store.index.find(&index_value, namespace);
            store.get_all(keys.take_while(|key| key.namespace == namespace))
        });
        objects.retain(|object| object["metadata"]["labels"][label] == value);
        objects
    }

    /// Returns whether the first list of `kind`, in every watched namespace, is complete.
    #[must_use]
    pub fn has_synced(&self, kind: Kind) -> bool {
        self.read(kind, |store| Some(store.synced)).unwrap_or_default()
    }

    /// Runs `update` on the cache of `kind`, which is created if it does not exist.
    fn update<T>(&self, kind: Kind, update: impl FnOnce(&mut Store) -> T) -> T {
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        update(stores.entry(kind).or_insert_with(|| Store::new((self.cache_policy)(kind))))
    }

    fn read<T>(&self, kind: Kind, read: impl FnOnce(&Store) -> Option<T>) -> Option<T> {
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        read(stores.get(&kind)?)
    }

    /// Returns the objects that `select` returns, parsed after the lock is released.
    fn values(&self, kind: Kind, select: impl FnOnce(&Store) -> Vec<CachedObject>) -> Vec<Arc<Value>> {
        let cached = self.read(kind, |store| Some(select(store))).unwrap_or_default();
        cached.iter().map(CachedObject::value).collect()
    }
}
