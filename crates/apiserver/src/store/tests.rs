//! Objects, revisions and lists of a store in memory.

use apimachinery::object;
use serde_json::json;

use super::*;

fn key(name: &str) -> ObjectKey {
    ObjectKey { resource: "configmaps".into(), namespace: "default".into(), name: name.into() }
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "data": {"k": value}})
}

#[test]
fn lists_objects_at_old_revision() {
    let store = Store::new(DEFAULT_HISTORY_SIZE);
    let a = store.commit(&key("a"), None, Some(config_map("a", "1"))).unwrap();
    let b = store.commit(&key("b"), None, Some(config_map("b", "1"))).unwrap();
    store.commit(&key("a"), Some(&a), Some(config_map("a", "2"))).unwrap();
    store.commit(&key("b"), Some(&b), None).unwrap();
    store.commit(&key("c"), None, Some(config_map("c", "1"))).unwrap();

    let collection = CollectionKey { resource: "configmaps".into(), namespace: Some("default".into()) };
    let old_list = store.list_page(&collection, None, Some(2), usize::MAX).unwrap();
    let names: Vec<&str> = old_list.objects.iter().map(|(key, _)| key.1.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(old_list.objects[0].1.value()["data"]["k"], json!("1"));
    let remaining = store.list_page(&collection, Some(&("default".into(), "a".into())), Some(2), usize::MAX).unwrap();
    assert_eq!(remaining.objects.len(), 1);
    let first = store.list_page(&collection, None, Some(2), 1).unwrap();
    assert_eq!((first.objects[0].0.1.as_str(), first.objects.len(), first.remaining), ("a", 1, 1));
}

#[test]
fn snapshot_is_unaffected_by_later_writes() {
    let store = Store::new(DEFAULT_HISTORY_SIZE);
    let a = store.commit(&key("a"), None, Some(config_map("a", "1"))).unwrap();
    store.commit(&key("b"), None, Some(config_map("b", "1"))).unwrap();
    let names_and_values = |snapshot: &CollectionSnapshot| -> Vec<String> {
        let object = |(key, stored): (&Arc<NamespacedName>, &Arc<StoredObject>)| {
            format!("{}{}", key.1, stored.value()["data"]["k"])
        };
        snapshot.objects.iter().map(object).collect()
    };
    let first = store.snapshot("configmaps");
    store.commit(&key("c"), None, Some(config_map("c", "1"))).unwrap();
    store.commit(&key("a"), Some(&a), None).unwrap();
    let second = store.snapshot("configmaps");
    assert_eq!((first.revision, names_and_values(&first)), (2, vec![r#"a"1""#.to_owned(), r#"b"1""#.to_owned()]));
    assert_eq!((second.revision, names_and_values(&second)), (4, vec![r#"b"1""#.to_owned(), r#"c"1""#.to_owned()]));
    assert!(store.snapshot("secrets").objects.is_empty());
}

#[test]
fn list_page_reports_remaining_count() {
    let store = Store::new(DEFAULT_HISTORY_SIZE);
    for name in ["a", "b", "c", "d"] {
        store.commit(&key(name), None, Some(config_map(name, "1"))).unwrap();
    }
    let other_namespace = ObjectKey { namespace: "other".into(), ..key("e") };
    store.commit(&other_namespace, None, Some(config_map("e", "1"))).unwrap();
    let collection = CollectionKey { resource: "configmaps".into(), namespace: Some("default".into()) };
    let page = |after: Option<&str>, limit| {
        let after = after.map(|name| ("default".to_owned(), name.to_owned()));
        let ListPage { objects, remaining, .. } = store.list_page(&collection, after.as_ref(), None, limit).unwrap();
        (objects.iter().map(|(key, _)| key.1.clone()).collect::<Vec<_>>().concat(), remaining)
    };
    assert_eq!(page(None, 2), ("ab".to_owned(), 2));
    assert_eq!(page(Some("b"), 2), ("cd".to_owned(), 0));
    assert_eq!(page(Some("b"), 1), ("c".to_owned(), 1));
    assert_eq!(page(Some("d"), 1), (String::new(), 0));
    let all_namespaces = CollectionKey { namespace: None, ..collection.clone() };
    assert_eq!(store.list_page(&all_namespaces, None, None, 3).unwrap().remaining, 2);
}

#[test]
fn deletion_has_its_own_revision() {
    let store = Store::new(DEFAULT_HISTORY_SIZE);
    let a = store.commit(&key("a"), None, Some(config_map("a", "1"))).unwrap();
    let deleted = store.commit(&key("a"), Some(&a), None).unwrap();
    assert_eq!(object::resource_version(&a), "1");
    assert_eq!(object::resource_version(&deleted), "2");
    assert!(store.find_by_uid("a").is_none());
}

#[test]
fn rejects_write_of_stale_object() {
    let store = Store::new(DEFAULT_HISTORY_SIZE);
    let first = store.commit(&key("a"), None, Some(config_map("a", "1"))).unwrap();
    store.commit(&key("a"), Some(&first), Some(config_map("a", "2"))).unwrap();
    let third_version = || Some(config_map("a", "3"));
    assert!(matches!(store.commit(&key("a"), Some(&first), third_version()), Err(CommitError::Conflict)));
    assert!(matches!(store.commit(&key("a"), None, third_version()), Err(CommitError::Conflict)));
}

/// Replaced versions count once, current versions not at all, because the store needs them anyway.
#[test]
fn history_is_limited_in_bytes() {
    const LENGTH: usize = 100_000;
    const LIMIT: usize = 10 * LENGTH;
    let store = Store::with_history(HistoryLimits { events: DEFAULT_HISTORY_SIZE, bytes: LIMIT });
    let value = "x".repeat(LENGTH);
    let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    for name in &names {
        store.commit(&key(name), None, Some(config_map(name, &value))).unwrap();
    }
    assert_eq!(store.events_after(0, None, usize::MAX).unwrap().events.len(), 3, "a batch is limited in bytes");
    let first_version = Arc::downgrade(&store.get_stored(&key("0")).unwrap());
    for round in 0..50 {
        let current = store.get(&key("0"));
        store.commit(&key("0"), current.as_ref(), Some(config_map("0", &format!("{round}{value}")))).unwrap();
    }
    assert!(first_version.upgrade().is_none(), "old versions are dropped");
    let retained: usize = store.state().history.iter().map(|event| event.retained_bytes()).sum();
    assert!(retained <= LIMIT && retained > LIMIT - 2 * LENGTH, "{retained}");
    assert_eq!(store.state().history.len(), 9);
    let collection = CollectionKey { resource: "configmaps".into(), namespace: None };
    assert!(store.check_revision(60).is_err(), "the oldest events are removed first");
    let _receiver = store.subscribe(&collection);
    assert_eq!(store.collection_events_after(&collection, 61, usize::MAX).unwrap().0.events[0].revision, 62);
}

#[test]
fn iterates_over_a_namespace_in_order() {
    let store = Store::new(DEFAULT_HISTORY_SIZE);
    let object = |resource: &str, namespace: &str, name: &str| {
        let key = ObjectKey { resource: resource.into(), namespace: namespace.into(), name: name.into() };
        let uid = format!("{resource}/{namespace}/{name}");
        store
            .commit(&key, None, Some(json!({"metadata": {"name": name, "namespace": namespace, "uid": uid}})))
            .unwrap();
    };
    for (resource, namespace, name) in [
        ("configmaps", "a", "1"),
        ("configmaps", "b", "1"),
        ("configmaps", "b", "2"),
        ("namespaces", "", "b"),
        ("pods", "a", "1"),
        ("secrets", "b", "1"),
        ("secrets", "c", "1"),
    ] {
        object(resource, namespace, name);
    }
    let names = |namespace: &str| {
        let first = store.next_in_namespace(namespace, None);
        let all = std::iter::successors(first, |(key, _)| store.next_in_namespace(namespace, Some(key)));
        all.map(|(key, _)| format!("{}/{}", key.resource, key.name)).collect::<Vec<_>>()
    };
    assert_eq!(names("b"), ["configmaps/1", "configmaps/2", "secrets/1"]);
    assert_eq!(names("a"), ["configmaps/1", "pods/1"]);
    assert!(names("d").is_empty());
    assert!(store.is_namespace_empty("d") && !store.is_namespace_empty("c"));
}

/// Every deleted definition leaves such a collection.
#[test]
fn empty_collections_use_no_memory() {
    let store = Store::new(DEFAULT_HISTORY_SIZE);
    for resource in ["a.example.com", "b.example.com"] {
        let key = ObjectKey { resource: resource.into(), ..key("o") };
        let object = store.commit(&key, None, Some(config_map("o", "1"))).unwrap();
        assert_eq!(store.resources(), [resource]);
        store.commit(&key, Some(&object), None).unwrap();
        assert!(store.resources().is_empty());
        assert_eq!(store.state().last_change(resource), 0);
    }
}

/// The check of the write saw one object; a deleted and recreated one is another, also as the only one of its resource.
#[test]
fn recreated_collection_is_a_change() {
    let store = Store::new(DEFAULT_HISTORY_SIZE);
    let commit = |name: &str, current: Option<&Arc<Value>>, value: &str, reads: &ReadSet| {
        store.commit_after(&key(name), current, Some(config_map(name, value)), reads)
    };
    let reads_of_list = || {
        let mut reads = ReadSet::default();
        store.list_for_write("configmaps", &mut reads, |_| true);
        reads
    };
    let none = reads_of_list();
    let first = commit("a", None, "1", &none).unwrap();
    assert!(matches!(commit("b", None, "1", &none), Err(CommitError::Conflict)), "no longer empty");
    let one = reads_of_list();
    store.commit(&key("a"), Some(&first), None).unwrap();
    assert!(matches!(commit("b", None, "1", &one), Err(CommitError::Conflict)), "empty");
    commit("a", None, "1", &ReadSet::default()).unwrap();
    assert!(matches!(commit("b", None, "1", &one), Err(CommitError::Conflict)), "recreated");
    assert!(commit("b", None, "1", &reads_of_list()).is_ok());
}
