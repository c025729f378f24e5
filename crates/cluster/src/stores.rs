//! Ordered stores of what the API server last told us, one per kind.
//!
//! A store is a plain synchronous struct that watch events go into and changes come out of; tests drive it without a
//! client. During a (re-)list the old content stays visible and is exchanged at once when the list is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use kube::runtime::watcher::Event;
use serde_json::Value;

use crate::Kind;
use crate::answered::Answered;
use crate::object::{controller_uid, meta};
use crate::slim::slim;

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

/// What happened to a store.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The first list of this kind is complete.
    Synced(Kind),
    /// An object came, changed or went; at least one of `old` and `new` is there.
    Object {
        /// Its kind.
        kind: Kind,
        /// Its key.
        key: Key,
        /// Content before.
        old: Option<Arc<Value>>,
        /// Content now.
        new: Option<Arc<Value>>,
    },
}

#[derive(Debug, Default)]
struct Store {
    objects: BTreeMap<Key, Arc<Value>>,
    /// Answers to our own writes that the watch has not delivered yet.
    ahead: BTreeMap<Key, Arc<Value>>,
    /// Keys of `objects` by the UID of their controller.
    owned: BTreeMap<String, BTreeSet<Key>>,
    /// Collects a running list.
    listing: Option<BTreeMap<Key, Arc<Value>>>,
    synced: bool,
}

/// All stores; a cheap handle.
#[derive(Clone, Debug)]
pub struct Stores {
    stores: Arc<RwLock<BTreeMap<Kind, Store>>>,
    answered: Answered,
    /// Managed fields of other managers are dropped on entry: nobody here reads them.
    manager: &'static str,
}

// === impl Stores ===

impl Stores {
    /// Empty stores that keep the managed fields of `manager` only.
    #[must_use]
    pub fn new(manager: &'static str) -> Stores {
        Stores { stores: Arc::default(), answered: Answered::default(), manager }
    }

    /// Takes one watch event in; returns what changed, in key order.
    #[must_use]
    pub fn accept(&self, kind: Kind, event: Event<Value>) -> Vec<Change> {
        let event = event.modify(|object| slim(object, kind, self.manager));
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        stores.entry(kind).or_default().accept(kind, event)
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
    pub fn forget(&self, kind: Kind) -> Vec<Change> {
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        let gone = stores.remove(&kind).unwrap_or_default().objects;
        gone.into_iter().map(|(key, old)| Change::Object { kind, key, old: Some(old), new: None }).collect()
    }

    /// One object.
    #[must_use]
    pub fn get(&self, kind: Kind, key: &Key) -> Option<Arc<Value>> {
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        stores.get(&kind)?.get(key).cloned()
    }

    /// Every object of a kind, in key order.
    #[must_use]
    pub fn list(&self, kind: Kind) -> Vec<Arc<Value>> {
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        stores
            .get(&kind)
            .map(|store| store.objects.keys().filter_map(|key| store.get(key).cloned()).collect())
            .unwrap_or_default()
    }

    /// The objects of a kind in one namespace, in name order.
    #[must_use]
    pub fn list_in(&self, kind: Kind, namespace: &str) -> Vec<Arc<Value>> {
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        let Some(store) = stores.get(&kind) else { return Vec::new() };
        let from = Key::new(namespace, "");
        let keys = store.objects.range(from..).map(|(key, _)| key).take_while(|key| key.namespace == namespace);
        keys.filter_map(|key| store.get(key).cloned()).collect()
    }

    /// The objects of a kind whose controller has this UID, in key order.
    #[must_use]
    pub fn owned(&self, kind: Kind, controller: &str) -> Vec<Arc<Value>> {
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        let Some(store) = stores.get(&kind) else { return Vec::new() };
        let keys = store.owned.get(controller).into_iter().flatten();
        let objects = keys.filter_map(|key| store.get(key));
        objects.filter(|object| controller_uid(object) == Some(controller)).cloned().collect()
    }

    /// Whether the first list of `kind` is complete.
    #[must_use]
    pub fn synced(&self, kind: Kind) -> bool {
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        stores.get(&kind).is_some_and(|store| store.synced)
    }
}

// === impl Store ===

impl Store {
    fn accept(&mut self, kind: Kind, event: Event<Value>) -> Vec<Change> {
        match event {
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listing.get_or_insert_default().insert(Key::of(&object), Arc::new(object));
                Vec::new()
            }
            Event::InitDone => self.exchange(kind),
            Event::Apply(object) => self.put(kind, Arc::new(object)).into_iter().collect(),
            Event::Delete(object) => self.remove(kind, &Key::of(&object)).into_iter().collect(),
        }
    }

    fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.ahead.get(key).or_else(|| self.objects.get(key))
    }

    fn observe(&mut self, object: Value) {
        let key = Key::of(&object);
        let newer =
            |known: &Arc<Value>| meta(known, "uid") == meta(&object, "uid") && version(known) < version(&object);
        if self.get(&key).is_some_and(newer) {
            // The index may say too much: what it finds is looked at.
            controller_uid(&object).iter().for_each(|uid| self.own(uid, &key));
            self.ahead.insert(key, Arc::new(object));
        }
    }

    /// The list is complete: differences to the old content are the changes.
    fn exchange(&mut self, kind: Kind) -> Vec<Change> {
        let listed = self.listing.take().unwrap_or_default();
        self.ahead.clear();
        let gone: Vec<Key> = self.objects.keys().filter(|key| !listed.contains_key(key)).cloned().collect();
        let mut changes: Vec<Change> = gone.iter().filter_map(|key| self.remove(kind, key)).collect();
        changes.extend(listed.into_values().filter_map(|object| self.put(kind, object)));
        if !self.synced {
            self.synced = true;
            changes.push(Change::Synced(kind));
        }
        changes
    }

    fn put(&mut self, kind: Kind, object: Arc<Value>) -> Option<Change> {
        let key = Key::of(&object);
        if self
            .ahead
            .get(&key)
            .is_some_and(|ahead| version(ahead) <= version(&object) || meta(ahead, "uid") != meta(&object, "uid"))
        {
            self.ahead.remove(&key);
        }
        let old = self.objects.insert(key.clone(), object.clone());
        let (before, now) = (old.as_deref().and_then(controller_uid), controller_uid(&object));
        if before != now {
            before.iter().for_each(|uid| self.disown(uid, &key));
            now.iter().for_each(|uid| self.own(uid, &key));
        }
        if old.as_ref() == Some(&object) {
            return None;
        }
        Some(Change::Object { kind, key, old, new: Some(object) })
    }

    fn remove(&mut self, kind: Kind, key: &Key) -> Option<Change> {
        self.ahead.remove(key);
        let old = self.objects.remove(key)?;
        controller_uid(&old).iter().for_each(|uid| self.disown(uid, key));
        Some(Change::Object { kind, key: key.clone(), old: Some(old), new: None })
    }

    fn own(&mut self, controller: &str, key: &Key) {
        self.owned.entry(controller.to_owned()).or_default().insert(key.clone());
    }

    fn disown(&mut self, controller: &str, key: &Key) {
        let Some(keys) = self.owned.get_mut(controller) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.owned.remove(controller);
        }
    }
}

/// Resource versions of one kind count upwards (Kubernetes promises it since 1.35, and etcd always did).
fn version(object: &Value) -> u64 {
    meta(object, "resourceVersion").parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");

    fn pod(namespace: &str, name: &str, version: &str) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name, "resourceVersion": version,
            "managedFields": [{"manager": "kubelet"}, {"manager": "us"}]}})
    }

    fn names(changes: &[Change]) -> Vec<String> {
        let text = |change: &Change| match change {
            Change::Synced(kind) => format!("synced {}", kind.plural),
            Change::Object { key, old, new, .. } => {
                let verb = match (old, new) {
                    (None, _) => "+",
                    (Some(_), Some(_)) => "~",
                    (_, None) => "-",
                };
                format!("{verb}{}/{}", key.namespace, key.name)
            }
        };
        changes.iter().map(text).collect()
    }

    fn list(stores: &Stores, objects: Vec<Value>) -> Vec<String> {
        let _ = stores.accept(POD, Event::Init);
        for object in objects {
            assert!(stores.accept(POD, Event::InitApply(object)).is_empty());
        }
        names(&stores.accept(POD, Event::InitDone))
    }

    #[test]
    fn a_list_is_exchanged_at_once_and_in_order() {
        let stores = Stores::new("us");
        assert!(!stores.synced(POD));
        assert_eq!(list(&stores, vec![pod("b", "y", "1"), pod("a", "x", "1")]), ["+a/x", "+b/y", "synced pods"]);
        assert!(stores.synced(POD));
        assert_eq!(list(&stores, vec![pod("b", "y", "1"), pod("b", "z", "3")]), ["-a/x", "+b/z"]);
    }

    #[test]
    fn repeated_content_is_no_change() {
        let stores = Stores::new("us");
        let _ = list(&stores, vec![pod("a", "x", "1")]);
        assert!(stores.accept(POD, Event::Apply(pod("a", "x", "1"))).is_empty());
        assert_eq!(names(&stores.accept(POD, Event::Apply(pod("a", "x", "2")))), ["~a/x"]);
        assert_eq!(names(&stores.accept(POD, Event::Delete(pod("a", "x", "3")))), ["-a/x"]);
        assert!(stores.accept(POD, Event::Delete(pod("a", "x", "3"))).is_empty());
    }

    #[test]
    fn only_our_managed_fields_are_kept() {
        let stores = Stores::new("us");
        let _ = list(&stores, vec![pod("a", "x", "1")]);
        let stored = stores.get(POD, &Key::new("a", "x")).unwrap();
        assert_eq!(stored["metadata"]["managedFields"], json!([{"manager": "us"}]));
        assert_eq!(stored["kind"], "Pod");
    }

    #[test]
    fn our_own_write_is_seen_before_the_watch_delivers_it() {
        let stores = Stores::new("us");
        let _ = list(&stores, vec![pod("a", "x", "5")]);
        let seen = |stores: &Stores| meta(&stores.get(POD, &Key::new("a", "x")).unwrap(), "resourceVersion").to_owned();
        stores.observe(POD, pod("a", "x", "4"));
        assert_eq!(seen(&stores), "5");
        stores.observe(POD, pod("a", "x", "7"));
        assert_eq!(seen(&stores), "7");
        assert_eq!(names(&stores.accept(POD, Event::Apply(pod("a", "x", "6")))), ["~a/x"]);
        assert_eq!(seen(&stores), "7");
        assert_eq!(names(&stores.accept(POD, Event::Apply(pod("a", "x", "7")))), ["~a/x"]);
        assert_eq!(names(&stores.accept(POD, Event::Delete(pod("a", "x", "8")))), ["-a/x"]);
        stores.observe(POD, pod("a", "x", "7"));
        assert!(stores.list(POD).is_empty());
    }

    #[test]
    fn a_namespace_is_a_range() {
        let stores = Stores::new("us");
        let _ = list(&stores, vec![pod("a", "x", "1"), pod("ab", "y", "1"), pod("b", "z", "1")]);
        let found: Vec<_> = stores.list_in(POD, "ab").iter().map(|object| meta(object, "name").to_owned()).collect();
        assert_eq!(found, ["y"]);
    }

    #[test]
    fn objects_are_found_by_their_controller() {
        let stores = Stores::new("us");
        let owned = |name: &str, version: &str, owner: &str| {
            let mut pod = pod("a", name, version);
            pod["metadata"]["ownerReferences"] = json!([{"controller": true, "uid": owner}]);
            pod
        };
        let found = |owner: &str| -> Vec<String> {
            stores.owned(POD, owner).iter().map(|object| meta(object, "name").to_owned()).collect()
        };
        let _ = list(
            &stores,
            vec![owned("x", "1", "me"), owned("y", "1", "me"), owned("z", "1", "them"), pod("a", "w", "1")],
        );
        assert_eq!((found("me"), found("them"), found("")), (vec!["x".into(), "y".into()], vec!["z".into()], vec![]));
        // Handed over, as our own write says before the watch does.
        stores.observe(POD, owned("x", "2", "them"));
        assert_eq!(found("me"), ["y"]);
        let _ = stores.accept(POD, Event::Apply(owned("x", "2", "them")));
        let _ = stores.accept(POD, Event::Delete(owned("y", "3", "me")));
        assert_eq!((found("me"), found("them")), (vec![], vec!["x".into(), "z".into()]));
        let _ = list(&stores, vec![owned("z", "1", "me")]);
        assert_eq!((found("me"), found("them")), (vec!["z".into()], vec![]));
    }

    #[test]
    fn a_forgotten_kind_reports_its_objects_gone() {
        let stores = Stores::new("us");
        let _ = list(&stores, vec![pod("a", "x", "1")]);
        assert_eq!(names(&stores.forget(POD)), ["-a/x"]);
        assert!(!stores.synced(POD));
    }
}
