//! Index of objects by UID and by the UIDs of their owners.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::object;
use serde_json::Value;

use super::ObjectKey;

/// Index of the current objects.
#[derive(Default)]
pub(super) struct Index {
    by_uid: BTreeMap<String, ObjectKey>,
    /// Owner UID → objects that have it in `ownerReferences`.
    dependents: BTreeMap<String, BTreeSet<ObjectKey>>,
}

// === impl Index ===

impl Index {
    /// Returns the key of the object with this UID.
    pub(super) fn by_uid(&self, uid: &str) -> Option<&ObjectKey> {
        self.by_uid.get(uid)
    }

    /// Returns the keys of the dependents of an owner, sorted.
    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = &ObjectKey> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, key: &ObjectKey, old: &Value) {
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

    /// Adds an object.
    pub(super) fn insert(&mut self, key: &ObjectKey, new: &Value) {
        self.by_uid.insert(object::uid(new).to_owned(), key.clone());
        for owner in object::owner_references(new) {
            self.dependents.entry(object::text(owner, "/uid").to_owned()).or_default().insert(key.clone());
        }
    }
}
