use serde_json::json;

use super::*;

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
    let _ =
        list(&stores, vec![owned("x", "1", "me"), owned("y", "1", "me"), owned("z", "1", "them"), pod("a", "w", "1")]);
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
