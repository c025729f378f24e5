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
    assert!(store.get_by_uid("a").is_none());
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
