//! Ordered stores of what the API server last told us, one per kind.
//!
//! A store is a plain synchronous struct that watch events go into and changes come out of; tests drive it without a
//! client. During a (re-)list the old content stays visible and is exchanged at once when the list is complete.

mod index;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use kube::runtime::watcher::Event;
use serde_json::Value;

use crate::Kind;
use crate::answered::Answered;
use crate::kept::{Keeping, Kept};
use crate::object::{controller_uid, meta};
use crate::slim::slim;
use index::{Index, labelled, owned, words};

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

/// What one event changed, in key order. A change of an object becomes trees when it is asked for: those of a long list are
/// not all there at once.
#[derive(Debug)]
pub struct Changes(std::vec::IntoIter<Noted>);

#[derive(Debug)]
enum Noted {
    Synced(Kind),
    Object {
        kind: Kind,
        key: Key,
        old: Option<Kept>,
        new: Option<Kept>,
        /// Trees that are there anyway.
        held: Vec<Arc<Value>>,
    },
}

#[derive(Debug, Default)]
struct Store {
    keeping: Keeping,
    objects: BTreeMap<Key, Kept>,
    /// Answers to our own writes that the watch has not delivered yet.
    ahead: BTreeMap<Key, Kept>,
    /// Of `objects` and of `ahead`: what it finds is looked at.
    index: Index,
    /// Collects a running list.
    listing: Option<BTreeMap<Key, Kept>>,
    synced: bool,
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

// === impl Changes ===

impl Iterator for Changes {
    type Item = Change;

    fn next(&mut self) -> Option<Change> {
        let told = match self.0.next()? {
            Noted::Synced(kind) => Change::Synced(kind),
            Noted::Object { kind, key, old, new, held: _held } => {
                let tree = |kept: Option<Kept>| kept.map(|kept| kept.tree());
                Change::Object { kind, key, old: tree(old), new: tree(new) }
            }
        };
        Some(told)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Changes {}

// === impl Noted ===

impl Noted {
    fn without_trees(mut self) -> Noted {
        if let Noted::Object { held, .. } = &mut self {
            held.clear();
        }
        self
    }
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
        let store = stores.entry(kind).or_insert_with(|| Store { keeping: (self.keeping)(kind), ..Store::default() });
        Changes(store.accept(kind, event).into_iter())
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
        Changes(noted.collect::<Vec<_>>().into_iter())
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

// === impl Store ===

impl Store {
    fn accept(&mut self, kind: Kind, event: Event<Value>) -> Vec<Noted> {
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

    fn get(&self, key: &Key) -> Option<&Kept> {
        self.ahead.get(key).or_else(|| self.objects.get(key))
    }

    fn found<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> Vec<Kept> {
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

    fn observe(&mut self, object: Value) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");

    fn pod(namespace: &str, name: &str, version: &str) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name, "resourceVersion": version,
            "managedFields": [{"manager": "kubelet"}, {"manager": "us"}]}})
    }

    fn names(changes: Changes) -> Vec<String> {
        let text = |change: Change| match change {
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
        changes.map(text).collect()
    }

    fn list(stores: &Stores, objects: Vec<Value>) -> Vec<String> {
        let _ = stores.accept(POD, Event::Init);
        for object in objects {
            assert!(stores.accept(POD, Event::InitApply(object)).len() == 0);
        }
        names(stores.accept(POD, Event::InitDone))
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
        assert!(stores.accept(POD, Event::Apply(pod("a", "x", "1"))).len() == 0);
        assert_eq!(names(stores.accept(POD, Event::Apply(pod("a", "x", "2")))), ["~a/x"]);
        assert_eq!(names(stores.accept(POD, Event::Delete(pod("a", "x", "3")))), ["-a/x"]);
        assert!(stores.accept(POD, Event::Delete(pod("a", "x", "3"))).len() == 0);
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
        assert_eq!(names(stores.accept(POD, Event::Apply(pod("a", "x", "6")))), ["~a/x"]);
        assert_eq!(seen(&stores), "7");
        assert_eq!(names(stores.accept(POD, Event::Apply(pod("a", "x", "7")))), ["~a/x"]);
        assert_eq!(names(stores.accept(POD, Event::Delete(pod("a", "x", "8")))), ["-a/x"]);
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
    fn objects_are_found_by_the_labels_of_their_kind() {
        let keeping = |_| Keeping { form: crate::Form::Text, labels: &["app"] };
        let stores = Stores::keeping("us", keeping);
        let of = |name: &str, version: &str, app: &str| {
            let mut pod = pod("a", name, version);
            pod["metadata"]["labels"] = json!({"app": app, "other": "x"});
            pod
        };
        let found = |app: &str| -> Vec<String> {
            stores.labelled(POD, "a", "app", app).iter().map(|object| meta(object, "name").to_owned()).collect()
        };
        let _ = list(&stores, vec![of("x", "1", "one"), of("y", "1", "one"), of("z", "1", "two"), pod("b", "w", "1")]);
        assert_eq!((found("one"), found("two"), found("on")), (vec!["x".into(), "y".into()], vec!["z".into()], vec![]));
        assert!(stores.labelled(POD, "b", "app", "one").is_empty());
        // Our own write is ahead of what the watch still tells.
        stores.observe(POD, of("x", "5", "two"));
        assert_eq!((found("one"), found("two")), (vec!["y".to_owned()], vec!["x".into(), "z".into()]));
        let _ = stores.accept(POD, Event::Apply(of("x", "3", "three")));
        assert_eq!((found("two"), found("three")), (vec!["x".to_owned(), "z".into()], vec![]));
        let _ = stores.accept(POD, Event::Delete(of("x", "6", "two")));
        assert_eq!(found("two"), ["z"]);
    }

    #[test]
    fn a_forgotten_kind_reports_its_objects_gone() {
        let stores = Stores::new("us");
        let _ = list(&stores, vec![pod("a", "x", "1")]);
        assert_eq!(names(stores.forget(POD)), ["-a/x"]);
        assert!(!stores.synced(POD));
    }
}
