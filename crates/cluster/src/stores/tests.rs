use serde_json::json;

use super::*;
use crate::namespaced_name::NamespacedName;
use crate::object::metadata_field;

const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");

fn pod(namespace: &str, name: &str, version: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "resourceVersion": version,
        "managedFields": [{"manager": "kubelet", "operation": "Update"}, {"manager": "us", "operation": "Apply"}]}})
}

fn describe_changes(changes: Changes) -> Vec<String> {
    let describe = |change: Change| match change {
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
    changes.map(describe).collect()
}

fn list(stores: &Stores, objects: Vec<Value>) -> Vec<String> {
    let _ = stores.apply_event(POD, Event::Init);
    for object in objects {
        assert!(stores.apply_event(POD, Event::InitApply(object)).len() == 0);
    }
    describe_changes(stores.apply_event(POD, Event::InitDone))
}

#[test]
fn list_replaces_content_and_reports_changes_in_key_order() {
    let stores = Stores::new("us");
    assert!(!stores.has_synced(POD));
    assert_eq!(list(&stores, vec![pod("b", "y", "1"), pod("a", "x", "1")]), ["+a/x", "+b/y", "synced pods"]);
    assert!(stores.has_synced(POD));
    assert_eq!(list(&stores, vec![pod("b", "y", "1"), pod("b", "z", "3")]), ["-a/x", "+b/z"]);
}

#[test]
fn unchanged_object_is_not_reported() {
    let stores = Stores::new("us");
    let _ = list(&stores, vec![pod("a", "x", "1")]);
    assert!(stores.apply_event(POD, Event::Apply(pod("a", "x", "1"))).len() == 0);
    assert_eq!(describe_changes(stores.apply_event(POD, Event::Apply(pod("a", "x", "2")))), ["~a/x"]);
    assert_eq!(describe_changes(stores.apply_event(POD, Event::Delete(pod("a", "x", "3")))), ["-a/x"]);
    assert!(stores.apply_event(POD, Event::Delete(pod("a", "x", "3"))).len() == 0);
}

#[test]
fn only_managed_fields_of_own_manager_are_cached() {
    let stores = Stores::new("us");
    let _ = list(&stores, vec![pod("a", "x", "1")]);
    let stored = stores.get(POD, &NamespacedName::new("a", "x")).unwrap();
    assert_eq!(stored["metadata"]["managedFields"], json!([{"manager": "us", "operation": "Apply"}]));
    assert_eq!(stored["kind"], "Pod");
}

#[test]
fn own_write_is_visible_before_the_watch_delivers_it() {
    let stores = Stores::new("us");
    let _ = list(&stores, vec![pod("a", "x", "5")]);
    let cached_version = |stores: &Stores| {
        metadata_field(&stores.get(POD, &NamespacedName::new("a", "x")).unwrap(), "resourceVersion").to_owned()
    };
    stores.observe_write(POD, pod("a", "x", "4"));
    assert_eq!(cached_version(&stores), "5");
    stores.observe_write(POD, pod("a", "x", "7"));
    assert_eq!(cached_version(&stores), "7");
    assert_eq!(describe_changes(stores.apply_event(POD, Event::Apply(pod("a", "x", "6")))), ["~a/x"]);
    assert_eq!(cached_version(&stores), "7");
    assert_eq!(describe_changes(stores.apply_event(POD, Event::Apply(pod("a", "x", "7")))), ["~a/x"]);
    assert_eq!(describe_changes(stores.apply_event(POD, Event::Delete(pod("a", "x", "8")))), ["-a/x"]);
    stores.observe_write(POD, pod("a", "x", "7"));
    assert!(stores.list(POD).is_empty());
}

#[test]
fn lists_objects_of_one_namespace() {
    let stores = Stores::new("us");
    let _ = list(&stores, vec![pod("a", "x", "1"), pod("ab", "y", "1"), pod("b", "z", "1")]);
    let names: Vec<_> =
        stores.list_namespace(POD, "ab").iter().map(|object| metadata_field(object, "name").to_owned()).collect();
    assert_eq!(names, ["y"]);
}

fn owner(uid: &str) -> Value {
    json!({"metadata": {"namespace": "a", "uid": uid}})
}

#[test]
fn lists_objects_by_owner() {
    let stores = Stores::new("us");
    let controlled_pod = |name: &str, version: &str, owner: &str| {
        let mut pod = pod("a", name, version);
        pod["metadata"]["ownerReferences"] = json!([{"controller": true, "uid": owner}]);
        pod
    };
    let names = |owner: &str| -> Vec<String> {
        stores
            .list_owned_by(POD, &self::owner(owner))
            .iter()
            .map(|object| metadata_field(object, "name").to_owned())
            .collect()
    };
    let _ = list(
        &stores,
        vec![
            controlled_pod("x", "1", "me"),
            controlled_pod("y", "1", "me"),
            controlled_pod("z", "1", "them"),
            pod("a", "w", "1"),
        ],
    );
    assert_eq!((names("me"), names("them"), names("")), (vec!["x".into(), "y".into()], vec!["z".into()], vec![]));
    // Our own write changes the controller before the watch delivers it.
    stores.observe_write(POD, controlled_pod("x", "2", "them"));
    assert_eq!(names("me"), ["y"]);
    let _ = stores.apply_event(POD, Event::Apply(controlled_pod("x", "2", "them")));
    let _ = stores.apply_event(POD, Event::Delete(controlled_pod("y", "3", "me")));
    assert_eq!((names("me"), names("them")), (vec![], vec!["x".into(), "z".into()]));
    let _ = list(&stores, vec![controlled_pod("z", "1", "me")]);
    assert_eq!((names("me"), names("them")), (vec!["z".into()], vec![]));
    // A user's copy has the owner reference, but not our field manager.
    let mut copy = controlled_pod("v", "1", "me");
    copy["metadata"]["managedFields"] = json!([{"manager": "kubectl-create", "operation": "Update"}]);
    let _ = stores.apply_event(POD, Event::Apply(copy));
    assert_eq!(names("me"), ["z"]);
    assert!(stores.get_owned_by(POD, &NamespacedName::new("a", "v"), &owner("me")).is_none());
    assert!(stores.get_owned_by(POD, &NamespacedName::new("a", "z"), &owner("me")).is_some());
}

#[test]
fn lists_objects_by_indexed_label() {
    let cache_policy = |_| CachePolicy {
        representation: crate::Representation::Serialized,
        indexed_labels: &["app"],
        ..CachePolicy::default()
    };
    let stores = Stores::with_cache_policy("us", cache_policy);
    let pod_of_app = |name: &str, version: &str, app: &str| {
        let mut pod = pod("a", name, version);
        pod["metadata"]["labels"] = json!({"app": app, "other": "x"});
        pod
    };
    let names = |app: &str| -> Vec<String> {
        stores
            .list_with_label(POD, "a", "app", app)
            .iter()
            .map(|object| metadata_field(object, "name").to_owned())
            .collect()
    };
    let _ = list(
        &stores,
        vec![pod_of_app("x", "1", "one"), pod_of_app("y", "1", "one"), pod_of_app("z", "1", "two"), pod("b", "w", "1")],
    );
    assert_eq!((names("one"), names("two"), names("on")), (vec!["x".into(), "y".into()], vec!["z".into()], vec![]));
    assert!(stores.list_with_label(POD, "b", "app", "one").is_empty());
    // Our own write is newer than the next event of the watch.
    stores.observe_write(POD, pod_of_app("x", "5", "two"));
    assert_eq!((names("one"), names("two")), (vec!["y".to_owned()], vec!["x".into(), "z".into()]));
    let _ = stores.apply_event(POD, Event::Apply(pod_of_app("x", "3", "three")));
    assert_eq!((names("two"), names("three")), (vec!["x".to_owned(), "z".into()], vec![]));
    let _ = stores.apply_event(POD, Event::Delete(pod_of_app("x", "6", "two")));
    assert_eq!(names("two"), ["z"]);
}

#[test]
fn removed_kind_reports_its_objects_as_deleted() {
    let stores = Stores::new("us");
    let _ = list(&stores, vec![pod("a", "x", "1")]);
    assert_eq!(describe_changes(stores.remove_kind(POD)), ["-a/x"]);
    assert!(!stores.has_synced(POD));
}

#[test]
fn list_of_a_namespace_replaces_only_its_objects() {
    let stores = Stores::new("us");
    stores.add_kind(POD, ["a", "b"].map(str::to_owned).into());
    let list_namespace = |namespace: &str, objects: Vec<Value>| {
        let _ = stores.apply_namespace_event(POD, namespace, Event::Init);
        for object in objects {
            let _ = stores.apply_namespace_event(POD, namespace, Event::InitApply(object));
        }
        describe_changes(stores.apply_namespace_event(POD, namespace, Event::InitDone))
    };
    // The lists of both namespaces overlap in time.
    let _ = stores.apply_namespace_event(POD, "a", Event::Init);
    let _ = stores.apply_namespace_event(POD, "a", Event::InitApply(pod("a", "x", "1")));
    assert_eq!(list_namespace("b", vec![pod("b", "y", "2")]), ["+b/y"]);
    assert!(!stores.has_synced(POD));
    assert_eq!(describe_changes(stores.apply_namespace_event(POD, "a", Event::InitDone)), ["+a/x", "synced pods"]);
    assert!(stores.has_synced(POD));
    // A write in another namespace that its watch has not delivered yet remains visible.
    stores.observe_write(POD, pod("b", "y", "5"));
    assert_eq!(list_namespace("a", vec![pod("a", "z", "3")]), ["-a/x", "+a/z"]);
    let stored = stores.get(POD, &NamespacedName::new("b", "y")).unwrap();
    assert_eq!(metadata_field(&stored, "resourceVersion"), "5");
}

#[test]
fn own_creation_is_cached_before_the_watch_delivers_it() {
    let stores = Stores::new("us");
    let _ = list(&stores, vec![pod("a", "x", "1")]);
    let key = NamespacedName::new("a", "new");
    let version = || stores.get(POD, &key).map(|pod| metadata_field(&pod, "resourceVersion").to_owned());
    stores.observe_creation(POD, pod("a", "new", "2"));
    assert_eq!(version().as_deref(), Some("2"));
    stores.observe_write(POD, pod("a", "new", "3"));
    assert_eq!(describe_changes(stores.apply_event(POD, Event::Apply(pod("a", "new", "2")))), ["+a/new"]);
    assert_eq!(version().as_deref(), Some("3"), "the later write is newer than the watch");
    let _ = stores.apply_event(POD, Event::Delete(pod("a", "new", "4")));
    assert_eq!(version(), None);
}

#[test]
fn created_object_that_is_gone_is_removed() {
    let stores = Stores::new("us");
    let _ = list(&stores, vec![pod("a", "x", "1")]);
    let (created, watched) = (NamespacedName::new("a", "new"), NamespacedName::new("a", "x"));
    stores.observe_creation(POD, pod("a", "new", "2"));
    stores.observe_absence(POD, &created);
    stores.observe_absence(POD, &watched);
    assert!(stores.get(POD, &created).is_none());
    assert!(stores.get(POD, &watched).is_some(), "the watch reports the deletion of an object that it delivered");
    // A list that does not contain the object replaces the creation.
    stores.observe_creation(POD, pod("a", "new", "2"));
    let _ = list(&stores, vec![pod("a", "x", "1")]);
    assert!(stores.get(POD, &created).is_none());
}
