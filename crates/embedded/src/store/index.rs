//! Objects by their uid, and by the uids of their owners.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Key;
use crate::object;

#[derive(Default)]
pub(super) struct Index {
    by_uid: BTreeMap<String, Key>,
    /// Owner uid → who names it in `ownerReferences`.
    dependents: BTreeMap<String, BTreeSet<Key>>,
}

// === impl Index ===

impl Index {
    pub(super) fn by_uid(&self, uid: &str) -> Option<&Key> {
        self.by_uid.get(uid)
    }

    /// In order.
    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Key> {
        self.dependents.get(uid).into_iter().flatten()
    }

    pub(super) fn forget(&mut self, key: &Key, old: &Value) {
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

    pub(super) fn note(&mut self, key: &Key, new: &Value) {
        self.by_uid.insert(object::uid(new).to_owned(), key.clone());
        for owner in object::owner_references(new) {
            self.dependents.entry(object::text(owner, "/uid").to_owned()).or_default().insert(key.clone());
        }
    }
}
