//! Ordered stores of what the API server last told us, one per kind.
//!
//! A store is a plain synchronous struct that watch events go into and changes come out of; tests drive it without a
//! client. During a (re-)list the old content stays visible and is exchanged at once when the list is complete.

mod change;
mod index;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use kube::runtime::watcher::Event;
use serde_json::Value;

use crate::Kind;
use crate::answered::Answered;
use crate::kept::{Keeping, Kept};
use crate::object::{controller_uid, meta};
use crate::slim::slim;
use change::Noted;
pub use change::{Change, Changes};
use index::{labelled, owned};
use store::Store;

/// Names one object of a kind; `namespace` is empty for cluster-scoped ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of `object`.
    #[must_use]
    pub fn of(object: &Value) -> Key {
        Key::new(meta(object, "namespace"), meta(object, "name"))
    }

    /// A key from its parts.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Key {
        Key { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// All stores; a cheap handle.
#[derive(Clone, Debug)]
pub struct Stores {
    stores: Arc<RwLock<BTreeMap<Kind, Store>>>,
    answered: Answered,
    /// Managed fields of other managers are dropped on entry: nobody here reads them.
    manager: &'static str,
    keeping: fn(Kind) -> Keeping,
}

// === impl Stores ===

impl Stores {
    /// Empty stores that keep the managed fields of `manager` only.
    #[must_use]
    pub fn new(manager: &'static str) -> Stores {
        Stores::keeping(manager, |_| Keeping::default())
    }

    /// Likewise, each kind kept as `keeping` says.
    #[must_use]
    pub fn keeping(manager: &'static str, keeping: fn(Kind) -> Keeping) -> Stores {
        Stores { stores: Arc::default(), answered: Answered::default(), manager, keeping }
    }

    /// Takes one watch event in; returns what changed.
    pub fn accept(&self, kind: Kind, event: Event<Value>) -> Changes {
        let event = event.modify(|object| slim(object, kind, self.manager));
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        let store = stores.entry(kind).or_insert_with(|| Store::new((self.keeping)(kind)));
        store.accept(kind, event).into()
    }

    /// Takes in the answer to our own write, so that the next look does not act on what we know to be outdated. The
    /// change itself is reported when the watch delivers it. Only objects already known are taken in: one that the
    /// watch has seen deleted must not come back.
    pub fn observe(&self, kind: Kind, mut object: Value) {
        slim(&mut object, kind, self.manager);
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get_mut(&kind) {
            store.observe(object);
        }
    }

    /// What applies have been answered with.
    pub(crate) fn answered(&self) -> &Answered {
        &self.answered
    }

    /// Forgets a kind that is no longer served; what it held is reported as gone.
    #[must_use]
    pub fn forget(&self, kind: Kind) -> Changes {
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        let gone = stores.remove(&kind).unwrap_or_default().objects.into_iter();
        let noted = gone.map(|(key, old)| Noted::Object { kind, key, old: Some(old), new: None, held: Vec::new() });
        noted.collect::<Vec<_>>().into()
    }

    /// One object.
    #[must_use]
    pub fn get(&self, kind: Kind, key: &Key) -> Option<Arc<Value>> {
        let kept = self.look(kind, |store| store.get(key).cloned())?;
        Some(kept.tree())
    }

    /// Every object of a kind, in key order.
    #[must_use]
    pub fn list(&self, kind: Kind) -> Vec<Arc<Value>> {
        self.trees(kind, |store| store.objects.keys().filter_map(|key| store.get(key).cloned()).collect())
    }

    /// The objects of a kind in one namespace, in name order.
    #[must_use]
    pub fn list_in(&self, kind: Kind, namespace: &str) -> Vec<Arc<Value>> {
        self.trees(kind, |store| {
            let from = Key::new(namespace, "");
            let keys = store.objects.range(from..).map(|(key, _)| key).take_while(|key| key.namespace == namespace);
            keys.filter_map(|key| store.get(key).cloned()).collect()
        })
    }

    /// The objects of a kind whose controller has this UID, in key order.
    #[must_use]
    pub fn owned(&self, kind: Kind, controller: &str) -> Vec<Arc<Value>> {
        let mut found = self.trees(kind, |store| store.found(store.index.find(&owned(controller), "")));
        found.retain(|object| controller_uid(object) == Some(controller));
        found
    }

    /// The objects of a kind in one namespace whose `label` has this value, in name order; the label is one of those by which
    /// the kind is kept.
    #[must_use]
    pub fn labelled(&self, kind: Kind, namespace: &str, label: &str, value: &str) -> Vec<Arc<Value>> {
        let word = labelled(label, value);
        let mut found = self.trees(kind, |store| {
            store.found(store.index.find(&word, namespace).take_while(|key| key.namespace == namespace))
        });
        found.retain(|object| object["metadata"]["labels"][label] == value);
        found
    }

    /// Whether the first list of `kind` is complete.
    #[must_use]
    pub fn synced(&self, kind: Kind) -> bool {
        self.look(kind, |store| Some(store.synced)).unwrap_or_default()
    }

    fn look<T>(&self, kind: Kind, at: impl FnOnce(&Store) -> Option<T>) -> Option<T> {
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        at(stores.get(&kind)?)
    }

    /// Trees are made after the stores are free again.
    fn trees(&self, kind: Kind, of: impl FnOnce(&Store) -> Vec<Kept>) -> Vec<Arc<Value>> {
        let kept = self.look(kind, |store| Some(of(store))).unwrap_or_default();
        kept.iter().map(Kept::tree).collect()
    }
}
