//! A write that depends on other objects than the one it writes.

use std::cell::RefCell;
use std::sync::Arc;

use apimachinery::Status;
use serde_json::Value;

use crate::core::Core;
use crate::store::{CollectionKey, ObjectKey, ReadSet, StoredObject};

/// Maximum number of attempts of a write after conflicts. Each conflict is the success of another write, so a write
/// only fails if the objects that it depends on change all the time.
pub(crate) const MAX_ATTEMPTS: usize = 256;

/// An attempt to write one object. It commits only if no object that was read through the transaction has changed
/// since, so no write can come between a check and the commit.
pub(crate) struct Transaction<'a> {
    /// State of the server, for everything except reads of other objects.
    pub(crate) core: &'a Core,
    reads: RefCell<ReadSet>,
}

// === impl Transaction ===

impl<'a> Transaction<'a> {
    /// Starts a transaction without reads.
    pub(crate) fn new(core: &'a Core) -> Self {
        Self { core, reads: RefCell::default() }
    }

    /// Returns an object, or `None` if it or its resource does not exist. `namespace` is empty for cluster-scoped
    /// objects.
    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let resource = self.core.registry().by_name(resource)?;
        self.get_stored(resource.object_key(namespace, name)).map(|stored| stored.value())
    }

    /// Returns an object as JSON text.
    pub(crate) fn get_stored(&self, key: ObjectKey) -> Option<Arc<StoredObject>> {
        let stored = self.core.store.get_stored(&key);
        self.reads.borrow_mut().add_object(key, stored.clone());
        stored
    }

    /// Returns every object of a resource, ordered by namespace and name. Every change of the resource is a conflict.
    pub(crate) fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        self.list_named(resource, |_| true)
    }

    /// Returns the objects of a resource with a selected name, ordered by namespace and name. Every change of the resource is a
    /// conflict.
    pub(crate) fn list_named(&self, resource: &str, is_selected: impl Fn(&str) -> bool) -> Vec<Arc<Value>> {
        let objects =
            self.core.store.list_for_write(resource, &mut self.reads.borrow_mut(), |(_, name)| is_selected(name));
        objects.iter().map(|object| object.value()).collect()
    }

    /// Returns the objects of a resource in one namespace that `predicate` accepts, ordered by name. Changes of other
    /// objects are no conflict, even if `predicate` would accept them later.
    pub(crate) fn list_matching(
        &self,
        resource: &str,
        namespace: &str,
        predicate: impl Fn(&Value) -> bool,
    ) -> Vec<Arc<Value>> {
        let collection = CollectionKey { resource: resource.to_owned(), namespace: Some(namespace.to_owned()) };
        let mut matching = Vec::new();
        for (key, stored) in self.core.store.list(&collection).objects {
            let object = stored.value();
            if predicate(&object) {
                let key = ObjectKey { resource: resource.to_owned(), namespace: key.0.clone(), name: key.1.clone() };
                self.reads.borrow_mut().add_object(key, Some(stored));
                matching.push(object);
            }
        }
        matching
    }

    /// Writes `new` (`None` deletes the object) if the object is still `expected` and everything is still as it was
    /// read. Returns `None` on a conflict; the caller tries again with a new transaction.
    ///
    /// # Errors
    /// When the object is nested too deeply, or when the store rejects writes.
    pub(crate) fn commit(
        &self,
        key: &ObjectKey,
        expected: Option<&Arc<Value>>,
        new: Option<Value>,
    ) -> Result<Option<Arc<Value>>, Status> {
        self.core.store.try_commit(key, expected, new, &self.reads.borrow())
    }
}
