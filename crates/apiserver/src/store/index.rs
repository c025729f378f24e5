//! Index of objects by UID, by the UIDs of their owners, and by namespace.

use std::collections::BTreeMap;

use apimachinery::object;
use serde_json::{Value, json};

use super::ObjectKey;

/// Index of the current objects.
#[derive(Clone, Default)]
pub(super) struct Index {
    by_uid: BTreeMap<String, IndexedObject>,
    /// Owner UID → dependents.
    dependents: BTreeMap<String, Dependents>,
    /// Namespace → number of objects.
    namespace_sizes: BTreeMap<String, usize>,
}

/// What garbage collection needs to know about an object, without parsing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexedObject {
    pub(crate) key: ObjectKey,
    /// Whether the deletion of the object waits for that of its dependents.
    pub(crate) waits_for_dependents: bool,
}

/// The objects that have an owner in `ownerReferences`.
#[derive(Clone, Default)]
struct Dependents {
    /// Key of the dependent → whether its reference to the owner has `blockOwnerDeletion`.
    blocks_deletion: BTreeMap<ObjectKey, bool>,
    /// Number of dependents with `blockOwnerDeletion`.
    blocking: usize,
}

// === impl Index ===

impl Index {
    /// Returns the object with this UID.
    pub(super) fn by_uid(&self, uid: &str) -> Option<&IndexedObject> {
        self.by_uid.get(uid)
    }

    /// Returns the keys of the objects that wait for their dependents, by UID.
    pub(super) fn waiting_objects(&self) -> impl Iterator<Item = &ObjectKey> {
        self.by_uid.values().filter(|object| object.waits_for_dependents).map(|object| &object.key)
    }

    /// Returns the keys of the dependents of an owner, sorted.
    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = &ObjectKey> {
        self.dependents.get(uid).into_iter().flat_map(|dependents| dependents.blocks_deletion.keys())
    }

    /// Returns the keys of the dependents of owners that do not exist. Takes linear time in the number of owners.
    pub(super) fn dependents_of_absent_owners(&self) -> impl Iterator<Item = &ObjectKey> {
        let absent = self.dependents.iter().filter(|(uid, _)| !self.by_uid.contains_key(*uid));
        absent.flat_map(|(_, dependents)| dependents.blocks_deletion.keys())
    }

    /// Reports whether an owner has dependents with `blockOwnerDeletion`.
    pub(super) fn has_blocking_dependents(&self, uid: &str) -> bool {
        self.dependents.get(uid).is_some_and(|dependents| dependents.blocking > 0)
    }

    /// Reports whether a namespace contains no objects.
    pub(super) fn is_namespace_empty(&self, namespace: &str) -> bool {
        !self.namespace_sizes.contains_key(namespace)
    }

    /// Replaces an object; `None` is an object that does not exist.
    pub(super) fn replace(&mut self, key: &ObjectKey, old: Option<&Value>, new: Option<&Value>) {
        if let (Some(old), Some(new)) = (old, new)
            && object::uid(old) == object::uid(new)
            && object::waits_for_dependents(old) == object::waits_for_dependents(new)
            && object::owner_references(old).eq(object::owner_references(new))
        {
            return;
        }
        if let Some(old) = old {
            self.remove(key, old);
        }
        if let Some(new) = new {
            self.insert(key, new);
        }
    }

    /// Removes an object.
    fn remove(&mut self, key: &ObjectKey, old: &Value) {
        self.by_uid.remove(object::uid(old));
        for owner in object::owner_references(old) {
            let uid = object::text(owner, "/uid");
            if let Some(dependents) = self.dependents.get_mut(uid) {
                dependents.remove(key);
                if dependents.blocks_deletion.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
        if let Some(size) = self.namespace_sizes.get_mut(&key.namespace) {
            *size -= 1;
            if *size == 0 {
                self.namespace_sizes.remove(&key.namespace);
            }
        }
    }

    /// Adds an object.
    fn insert(&mut self, key: &ObjectKey, new: &Value) {
        let indexed = IndexedObject { key: key.clone(), waits_for_dependents: object::waits_for_dependents(new) };
        self.by_uid.insert(object::uid(new).to_owned(), indexed);
        for owner in object::owner_references(new) {
            let dependents = self.dependents.entry(object::text(owner, "/uid").to_owned()).or_default();
            dependents.insert(key, owner["blockOwnerDeletion"] == json!(true));
        }
        match self.namespace_sizes.get_mut(&key.namespace) {
            Some(size) => *size += 1,
            None => drop(self.namespace_sizes.insert(key.namespace.clone(), 1)),
        }
    }
}

// === impl Dependents ===

impl Dependents {
    /// Adds a reference of an object, which may have several references to the same owner.
    fn insert(&mut self, key: &ObjectKey, blocks: bool) {
        let already_blocks = self.blocks_deletion.entry(key.clone()).or_default();
        if blocks && !*already_blocks {
            *already_blocks = true;
            self.blocking += 1;
        }
    }

    fn remove(&mut self, key: &ObjectKey) {
        if self.blocks_deletion.remove(key) == Some(true) {
            self.blocking -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { resource: "pods".to_owned(), namespace: "default".to_owned(), name: name.to_owned() }
    }

    fn dependent(name: &str, blocks: &[bool]) -> Value {
        let owners: Vec<Value> =
            blocks.iter().map(|blocks| json!({"uid": "owner", "blockOwnerDeletion": blocks})).collect();
        json!({"metadata": {"uid": name, "ownerReferences": owners}})
    }

    #[test]
    fn counts_blocking_dependents_once() {
        let (a, b) = (dependent("a", &[false, true, true]), dependent("b", &[false]));
        let mut index = Index::default();
        index.insert(&key("a"), &a);
        index.insert(&key("b"), &b);
        assert_eq!(index.dependents("owner").count(), 2);
        assert!(index.has_blocking_dependents("owner"));
        index.remove(&key("a"), &a);
        assert!(!index.has_blocking_dependents("owner"));
        assert_eq!(index.dependents("owner").collect::<Vec<_>>(), [&key("b")]);
        index.remove(&key("b"), &b);
        assert_eq!(index.dependents("owner").count(), 0);
    }

    #[test]
    fn replacement_changes_owners() {
        let (unowned, owned) = (dependent("a", &[]), dependent("a", &[true]));
        let mut index = Index::default();
        index.replace(&key("a"), None, Some(&unowned));
        for _ in 0..2 {
            index.replace(&key("a"), Some(&unowned), Some(&unowned));
            index.replace(&key("a"), Some(&unowned), Some(&owned));
            assert!(index.has_blocking_dependents("owner"));
            index.replace(&key("a"), Some(&owned), Some(&owned));
            index.replace(&key("a"), Some(&owned), Some(&dependent("a", &[false])));
            assert!(!index.has_blocking_dependents("owner"));
            assert_eq!(index.dependents("owner").count(), 1);
            index.replace(&key("a"), Some(&dependent("a", &[false])), Some(&unowned));
            assert_eq!(index.dependents("owner").count(), 0);
        }
        assert_eq!(index.by_uid("a").map(|object| &object.key), Some(&key("a")));
        index.replace(&key("a"), Some(&unowned), None);
        assert!(index.by_uid("a").is_none() && index.is_namespace_empty("default"));
    }

    #[test]
    fn deletion_in_the_foreground_changes_the_index() {
        let object = dependent("a", &[true]);
        let mut waiting = object.clone();
        waiting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        waiting["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        let mut index = Index::default();
        index.replace(&key("a"), None, Some(&object));
        assert_eq!(index.waiting_objects().count(), 0);
        index.replace(&key("a"), Some(&object), Some(&waiting));
        assert_eq!(index.waiting_objects().collect::<Vec<_>>(), [&key("a")]);
        assert!(index.has_blocking_dependents("owner"));
        index.replace(&key("a"), Some(&waiting), Some(&object));
        assert_eq!(index.waiting_objects().count(), 0);
    }

    #[test]
    fn namespace_is_empty_without_objects() {
        let (a, b) = (dependent("a", &[]), dependent("b", &[]));
        let mut index = Index::default();
        assert!(index.is_namespace_empty("default"));
        index.insert(&key("a"), &a);
        index.insert(&key("b"), &b);
        index.remove(&key("a"), &a);
        assert!(!index.is_namespace_empty("default") && index.is_namespace_empty("other"));
        index.remove(&key("b"), &b);
        assert!(index.is_namespace_empty("default"));
    }
}
