//! Apply and update together, as a server sees them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn options(manager: &str, force: bool) -> ApplyOptions {
    ApplyOptions {
        manager: manager.into(),
        force,
        api_version: "apps/v1".into(),
        subresource: None,
        now: "2026-01-01T00:00:00Z".into(),
    }
}

fn update_options(manager: &str, now: &str) -> UpdateOptions {
    UpdateOptions {
        manager: manager.into(),
        api_version: "v1".into(),
        subresource: None,
        now: now.into(),
        blank: json!({}),
    }
}

fn deployment() -> Structure {
    Structure::builtin("apps", "Deployment")
}

fn apply_as(manager: &str, live: Option<&Value>, applied: &Value) -> Result<Value, Status> {
    apply(&deployment(), live, applied, &options(manager, false))
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"}, "spec": spec})
}

fn created(manager: &str, spec: Value) -> Value {
    let mut live = object(spec);
    track_update(&deployment(), None, &mut live, &update_options(manager, "2026-01-01T00:00:00Z"));
    live
}

fn fields(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries.iter().find(|entry| entry["manager"] == manager).map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

#[test]
fn conflict_reads_as_kubectl_shows_it() {
    let live = created("mgr", json!({"replicas": 1}));
    let error = apply_as("me", Some(&live), &object(json!({"replicas": 2}))).unwrap_err();
    assert_eq!(error.message, "Apply failed with 1 conflict: conflict with \"mgr\" using v1: .spec.replicas");
    assert_eq!((error.code, error.reason), (409, "Conflict"));
    let cause = json!({"reason": "FieldManagerConflict", "message": "conflict with \"mgr\" using v1", "field": ".spec.replicas"});
    assert_eq!(error.details.unwrap()["causes"], json!([cause]));
}

#[test]
fn several_conflicts_are_listed_by_manager() {
    let first = apply_as("a", None, &object(json!({"replicas": 1, "paused": true}))).unwrap();
    let error = apply_as("b", Some(&first), &object(json!({"replicas": 2, "paused": false}))).unwrap_err();
    assert_eq!(error.message, "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.paused\n- .spec.replicas");
}

#[test]
fn force_takes_the_field() {
    let live = created("mgr", json!({"replicas": 1, "paused": true}));
    let forced = apply(&deployment(), Some(&live), &object(json!({"replicas": 2})), &options("me", true)).unwrap();
    assert_eq!(forced["spec"], json!({"replicas": 2, "paused": true}));
    assert_eq!(fields(&forced, "me"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(fields(&forced, "mgr"), json!({"f:spec": {".": {}, "f:paused": {}}}));
}

#[test]
fn equal_values_are_shared() {
    let first = apply_as("a", None, &object(json!({"replicas": 1, "paused": true}))).unwrap();
    let both = apply_as("b", Some(&first), &object(json!({"replicas": 1}))).unwrap();
    let left = apply_as("a", Some(&both), &object(json!({}))).unwrap();
    assert_eq!(left["spec"], json!({"replicas": 1}), "b still owns replicas, nobody owns paused");
    let gone = apply_as("b", Some(&left), &object(json!({}))).unwrap();
    assert!(gone["spec"].get("replicas").is_none());
}

#[test]
fn dropped_elements_go_and_foreign_ones_stay() {
    let container = |name: &str| json!({"name": name, "image": "i"});
    let spec = |containers: Value| json!({"template": {"spec": {"containers": containers}}});
    let first = apply_as("a", None, &object(spec(json!([container("x"), container("y")])))).unwrap();
    let both = apply_as("b", Some(&first), &object(spec(json!([container("side")])))).unwrap();
    let names = |object: &Value| -> Vec<String> {
        let list = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        list.iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&both), ["x", "y", "side"]);
    let less = apply_as("a", Some(&both), &object(spec(json!([container("y")])))).unwrap();
    assert_eq!(names(&less), ["y", "side"]);
}

#[test]
fn ports_take_their_default_protocol() {
    let spec = |port: Value| json!({"template": {"spec": {"containers": [{"name": "c", "ports": [port]}]}}});
    let first = apply_as("a", None, &object(spec(json!({"containerPort": 80})))).unwrap();
    let owned = fields(&first, "a").to_string();
    assert!(owned.contains(r#"k:{\"containerPort\":80,\"protocol\":\"TCP\"}"#), "{owned}");
    let again = apply_as("a", Some(&first), &object(spec(json!({"containerPort": 80, "protocol": "TCP"})))).unwrap();
    assert_eq!(again["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().unwrap().len(), 1);
}

#[test]
fn finalizers_are_a_set() {
    let with = |finalizers: Value| {
        let mut object = object(json!({}));
        object["metadata"]["finalizers"] = finalizers;
        object
    };
    let first = apply_as("a", None, &with(json!(["a/x"]))).unwrap();
    let both = apply_as("b", Some(&first), &with(json!(["b/y"]))).unwrap();
    assert_eq!(both["metadata"]["finalizers"], json!(["a/x", "b/y"]));
    let left = apply_as("a", Some(&both), &object(json!({}))).unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!(["b/y"]));
}

#[test]
fn labels_are_owned_one_by_one() {
    let with = |labels: Value| {
        let mut object = object(json!({}));
        object["metadata"]["labels"] = labels;
        object
    };
    let first = apply_as("a", None, &with(json!({"one": "1", "two": "2"}))).unwrap();
    assert_eq!(fields(&first, "a")["f:metadata"], json!({"f:labels": {"f:one": {}, "f:two": {}}}));
    let less = apply_as("a", Some(&first), &with(json!({"two": "2"}))).unwrap();
    assert_eq!(less["metadata"]["labels"], json!({"two": "2"}));
}

#[test]
fn null_is_a_value_that_is_owned() {
    let live = created("mgr", json!({"replicas": 1}));
    let forced = apply(&deployment(), Some(&live), &object(json!({"replicas": null})), &options("me", true)).unwrap();
    assert_eq!(forced["spec"].get("replicas"), Some(&Value::Null));
    let again = apply_as("me", Some(&forced), &object(json!({"replicas": null}))).unwrap();
    assert_eq!(again, forced);
}

#[test]
fn a_later_time_alone_is_no_change() {
    let object = created("mgr", json!({"replicas": 1}));
    let mut later = object.clone();
    later["metadata"]["managedFields"][0]["time"] = json!("2036-01-01T00:00:00Z");
    assert!(super::is_same_but_for_times(&object, &later));
    later["spec"]["replicas"] = json!(2);
    assert!(!super::is_same_but_for_times(&object, &later));
}

#[test]
fn the_servers_metadata_survives() {
    let mut live = apply_as("a", None, &object(json!({"replicas": 1}))).unwrap();
    live["metadata"]["uid"] = json!("u");
    live["metadata"]["resourceVersion"] = json!("7");
    let mut applied = object(json!({"replicas": 2}));
    applied["metadata"]["creationTimestamp"] = Value::Null;
    applied["metadata"]["resourceVersion"] = json!("3");
    let after = apply_as("a", Some(&live), &applied).unwrap();
    assert_eq!((&after["metadata"]["uid"], &after["metadata"]["resourceVersion"]), (&json!("u"), &json!("7")));
    assert!(after["metadata"].get("creationTimestamp").is_none());
}

#[test]
fn an_untracked_object_belongs_to_before_first_apply() {
    let error = apply_as("me", Some(&object(json!({"replicas": 1}))), &object(json!({"replicas": 2}))).unwrap_err();
    assert!(error.message.contains("conflict with \"before-first-apply\" using apps/v1"), "{}", error.message);
}

#[test]
fn status_is_a_manager_of_its_own() {
    let live = apply_as("me", None, &object(json!({"replicas": 1}))).unwrap();
    let mut applied = object(json!({"replicas": 9}));
    applied["status"] = json!({"readyReplicas": 1});
    let status = ApplyOptions { subresource: Some("status".into()), ..options("me", false) };
    let after = apply(&deployment(), Some(&live), &applied, &status).unwrap();
    assert_eq!((&after["spec"]["replicas"], &after["status"]["readyReplicas"]), (&json!(1), &json!(1)));
    let entries = after["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[1]["subresource"], "status");
}

#[test]
fn bad_lists_and_managed_fields_are_refused() {
    let nameless = object(json!({"template": {"spec": {"containers": [{"image": "i"}]}}}));
    let error = apply_as("me", None, &nameless).unwrap_err();
    assert!(error.message.contains(".spec.template.spec.containers: element 0"), "{}", error.message);
    let mut managed = object(json!({}));
    managed["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    assert_eq!(apply_as("me", None, &managed).unwrap_err().message, "metadata.managedFields must be nil");
}

#[test]
fn an_update_that_changes_nothing_records_nothing() {
    let live = created("mgr", json!({"replicas": 1}));
    let mut after = live.clone();
    track_update(&deployment(), Some(&live), &mut after, &update_options("other", "2026-01-02T00:00:00Z"));
    assert_eq!(after, live);
    let mut bare = without_managed_fields(&live);
    track_update(&deployment(), Some(&live), &mut bare, &update_options("mgr", "2026-01-02T00:00:00Z"));
    assert_eq!(bare, live);
}

#[test]
fn a_field_that_is_pruned_each_time_does_not_move_the_clock() {
    let applied = object(json!({"replicas": 1, "pruned": true}));
    let prune = |mut object: Value| {
        object["spec"].as_object_mut().unwrap().remove("pruned");
        object
    };
    let live = prune(apply_as("me", None, &applied).unwrap());
    let later = ApplyOptions { now: "2027-01-01T00:00:00Z".into(), ..options("me", false) };
    let mut again = prune(apply(&deployment(), Some(&live), &applied, &later).unwrap());
    assert_ne!(again, live);
    forget_idle_times(&live, &mut again);
    assert_eq!(again, live);
}

#[test]
fn an_update_takes_what_it_changes() {
    let live = apply_as("a", None, &object(json!({"replicas": 1, "paused": true}))).unwrap();
    let mut after = live.clone();
    after["spec"] = json!({"replicas": 3});
    track_update(&deployment(), Some(&live), &mut after, &update_options("hpa", "2026-01-02T00:00:00Z"));
    assert_eq!(fields(&after, "hpa"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(fields(&after, "a"), Value::Null, "a owned only what was changed or removed");
}

#[test]
fn empty_managed_fields_forget_all_owners() {
    let live = created("mgr", json!({"replicas": 1}));
    let mut after = live.clone();
    after["metadata"]["managedFields"] = json!([{}]);
    track_update(&deployment(), Some(&live), &mut after, &update_options("x", "2026-01-02T00:00:00Z"));
    assert!(after["metadata"].get("managedFields").is_none());
}

fn specs() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![Just(json!(1)), Just(json!("a")), Just(json!({}))];
    let map = prop::collection::btree_map("[a-c]", scalar, 0..3);
    // An empty list of elements with keys is owned by nobody, so it does not stay for anybody.
    let containers = prop::sample::subsequence(vec!["x", "y", "z"], 1..=3).prop_shuffle();
    let tolerations = prop::collection::vec("[a-b]", 0..2);
    (map, containers, "[a-c]", tolerations).prop_map(|(map, names, image, tolerations)| {
        let containers: Vec<Value> = names.iter().map(|n| json!({"name": n, "image": image})).collect();
        json!({"free": map, "template": {"metadata": {"labels": {"l": image}},
               "spec": {"containers": containers, "tolerations": tolerations}}})
    })
}

/// Whether every field of `part` is in `whole` with the same value.
fn includes(structure: &Structure, whole: &Value, part: &Value) -> bool {
    let removed_nothing = merge::merge(structure, Some(whole), part);
    compare::compare(structure, whole, &removed_nothing).set.is_empty()
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(live in specs(), first in specs(), other in specs()) {
        let live = created("mgr", live);
        let other = apply(&deployment(), Some(&live), &object(other), &options("other", true)).unwrap();
        let once = apply(&deployment(), Some(&other), &object(first.clone()), &options("me", true)).unwrap();
        let later = ApplyOptions { now: "2027-01-01T00:00:00Z".into(), ..options("me", false) };
        let twice = apply(&deployment(), Some(&once), &object(first), &later).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn forced_apply_wins(live in specs(), applied in specs()) {
        let live = created("mgr", live);
        let applied = object(applied);
        let after = apply(&deployment(), Some(&live), &applied, &options("me", true)).unwrap();
        prop_assert!(includes(&deployment(), &after, &applied));
    }

    #[test]
    fn the_last_manager_leaves_what_it_applied_last(first in specs(), second in specs()) {
        let one = apply_as("me", None, &object(first)).unwrap();
        let two = apply_as("me", Some(&one), &object(second.clone())).unwrap();
        let direct = apply_as("me", None, &object(second)).unwrap();
        let difference = compare::compare(&deployment(), &direct, &two);
        prop_assert!(difference.set.is_empty(), "{}", two);
        prop_assert!(difference.removed.is_empty(), "{}", two);
    }

    #[test]
    fn giving_up_leaves_others_alone(first in specs(), second in specs()) {
        let theirs = apply_as("them", None, &object(first.clone())).unwrap();
        let both = apply(&deployment(), Some(&theirs), &object(second), &options("me", true)).unwrap();
        let back = apply(&deployment(), Some(&both), &object(first.clone()), &options("them", true)).unwrap();
        let alone = apply_as("me", Some(&back), &object(json!({}))).unwrap();
        prop_assert!(includes(&deployment(), &alone, &object(first)));
    }
}
