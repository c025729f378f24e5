//! Objects, revisions and lists in memory.

use serde_json::json;

use super::*;
use crate::object;

fn key(name: &str) -> Key {
    Key { resource: "configmaps".into(), namespace: "default".into(), name: name.into() }
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "data": {"k": value}})
}

#[test]
fn a_list_at_an_old_revision_shows_the_old_world() {
    let store = Store::new(HISTORY);
    let a = store.commit(&key("a"), None, Some(config_map("a", "1"))).unwrap();
    let b = store.commit(&key("b"), None, Some(config_map("b", "1"))).unwrap();
    store.commit(&key("a"), Some(&a), Some(config_map("a", "2"))).unwrap();
    store.commit(&key("b"), Some(&b), None).unwrap();
    store.commit(&key("c"), None, Some(config_map("c", "1"))).unwrap();

    let scope = Scope { resource: "configmaps".into(), namespace: Some("default".into()) };
    let then = store.page(&scope, None, Some(2), usize::MAX).unwrap();
    let names: Vec<&str> = then.objects.iter().map(|(place, _)| place.1.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(then.objects[0].1.tree()["data"]["k"], json!("1"));
    let rest = store.page(&scope, Some(&("default".into(), "a".into())), Some(2), usize::MAX).unwrap();
    assert_eq!(rest.objects.len(), 1);
    let first = store.page(&scope, None, Some(2), 1).unwrap();
    assert_eq!((first.objects[0].0.1.as_str(), first.objects.len(), first.rest), ("a", 1, 1));
}

#[test]
fn a_whole_list_stays_as_it_was_while_objects_are_written() {
    let store = Store::new(HISTORY);
    let a = store.commit(&key("a"), None, Some(config_map("a", "1"))).unwrap();
    store.commit(&key("b"), None, Some(config_map("b", "1"))).unwrap();
    let shown = |whole: &Whole| -> Vec<String> {
        let object = |(place, kept): (&Arc<Place>, &Arc<Kept>)| format!("{}{}", place.1, kept.tree()["data"]["k"]);
        whole.objects.iter().map(object).collect()
    };
    let first = store.whole("configmaps");
    store.commit(&key("c"), None, Some(config_map("c", "1"))).unwrap();
    store.commit(&key("a"), Some(&a), None).unwrap();
    let then = store.whole("configmaps");
    assert_eq!((first.revision, shown(&first)), (2, vec![r#"a"1""#.to_owned(), r#"b"1""#.to_owned()]));
    assert_eq!((then.revision, shown(&then)), (4, vec![r#"b"1""#.to_owned(), r#"c"1""#.to_owned()]));
    assert!(store.whole("secrets").objects.is_empty());
}

#[test]
fn a_page_knows_how_much_is_behind_it() {
    let store = Store::new(HISTORY);
    for name in ["a", "b", "c", "d"] {
        store.commit(&key(name), None, Some(config_map(name, "1"))).unwrap();
    }
    let elsewhere = Key { namespace: "other".into(), ..key("e") };
    store.commit(&elsewhere, None, Some(config_map("e", "1"))).unwrap();
    let scope = Scope { resource: "configmaps".into(), namespace: Some("default".into()) };
    let page = |after: Option<&str>, most| {
        let after = after.map(|name| ("default".to_owned(), name.to_owned()));
        let Snapshot { objects, rest, .. } = store.page(&scope, after.as_ref(), None, most).unwrap();
        (objects.iter().map(|(place, _)| place.1.clone()).collect::<Vec<_>>().concat(), rest)
    };
    assert_eq!(page(None, 2), ("ab".to_owned(), 2));
    assert_eq!(page(Some("b"), 2), ("cd".to_owned(), 0));
    assert_eq!(page(Some("b"), 1), ("c".to_owned(), 1));
    assert_eq!(page(Some("d"), 1), (String::new(), 0));
    let everywhere = Scope { namespace: None, ..scope.clone() };
    assert_eq!(store.page(&everywhere, None, None, 3).unwrap().rest, 2);
}

#[test]
fn a_removal_carries_its_own_revision() {
    let store = Store::new(HISTORY);
    let a = store.commit(&key("a"), None, Some(config_map("a", "1"))).unwrap();
    let gone = store.commit(&key("a"), Some(&a), None).unwrap();
    assert_eq!(object::resource_version(&a), "1");
    assert_eq!(object::resource_version(&gone), "2");
    assert!(store.by_uid("a").is_none());
}

#[test]
fn a_write_over_a_stale_object_loses() {
    let store = Store::new(HISTORY);
    let first = store.commit(&key("a"), None, Some(config_map("a", "1"))).unwrap();
    store.commit(&key("a"), Some(&first), Some(config_map("a", "2"))).unwrap();
    let third = || Some(config_map("a", "3"));
    assert!(matches!(store.commit(&key("a"), Some(&first), third()), Err(Rejected::Raced)));
    assert!(matches!(store.commit(&key("a"), None, third()), Err(Rejected::Raced)));
}
