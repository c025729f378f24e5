//! Apply and update combined, as in an API server.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::merge_schema::builtin_merge_schema;

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
        empty_object: json!({}),
    }
}

fn deployment() -> MergeSchema {
    builtin_merge_schema("apps", "Deployment")
}

fn apply_as(manager: &str, live: Option<&Value>, applied: &Value) -> Result<Value, Status> {
    server_side_apply(&deployment(), live, applied, &options(manager, false))
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

/// `versions` of a definition is an atomic list, whose schemas contain numbers: an encoder may write `0` as `0.0`.
#[test]
fn equal_numbers_do_not_conflict() {
    let schema = builtin_merge_schema("apiextensions.k8s.io", "CustomResourceDefinition");
    let definition = |minimum: Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "d"},
            "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"minimum": minimum}}}]}})
    };
    let apply = |manager: &str, live: Option<&Value>, minimum: Value| {
        server_side_apply(&schema, live, &definition(minimum), &options(manager, false))
    };
    let live = apply("installer", None, json!(0.0)).unwrap();
    let shared = apply("user", Some(&live), json!(0)).unwrap();
    assert_eq!(fields(&shared, "user"), fields(&shared, "installer"));
    assert_eq!(shared["spec"], live["spec"], "an equal value changes nothing");
    assert_eq!(apply("installer", Some(&shared), json!(0.0)).unwrap(), shared);
    let error = apply("user", Some(&live), json!(1)).unwrap_err();
    assert!(error.message.contains("conflict with \"installer\": .spec.versions"), "{}", error.message);
    assert!(!compare::equal_values(&json!([1]), &json!([1, 2])) && !compare::equal_values(&json!(1), &json!("1")));
}

#[test]
fn conflict_has_the_message_of_kube_apiserver() {
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
fn force_takes_ownership_of_conflicting_fields() {
    let live = created("mgr", json!({"replicas": 1, "paused": true}));
    let forced =
        server_side_apply(&deployment(), Some(&live), &object(json!({"replicas": 2})), &options("me", true)).unwrap();
    assert_eq!(forced["spec"], json!({"replicas": 2, "paused": true}));
    assert_eq!(fields(&forced, "me"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(fields(&forced, "mgr"), json!({"f:spec": {".": {}, "f:paused": {}}}));
}

#[test]
fn managers_share_fields_with_equal_values() {
    let first = apply_as("a", None, &object(json!({"replicas": 1, "paused": true}))).unwrap();
    let merged = apply_as("b", Some(&first), &object(json!({"replicas": 1}))).unwrap();
    let released_by_a = apply_as("a", Some(&merged), &object(json!({}))).unwrap();
    assert_eq!(released_by_a["spec"], json!({"replicas": 1}), "b still owns replicas, and paused has no owner");
    let released_by_both = apply_as("b", Some(&released_by_a), &object(json!({}))).unwrap();
    assert!(released_by_both["spec"].get("replicas").is_none());
}

#[test]
fn removes_elements_no_longer_applied_and_keeps_those_of_others() {
    let container = |name: &str| json!({"name": name, "image": "i"});
    let spec = |containers: Value| json!({"template": {"spec": {"containers": containers}}});
    let first = apply_as("a", None, &object(spec(json!([container("x"), container("y")])))).unwrap();
    let merged = apply_as("b", Some(&first), &object(spec(json!([container("side")])))).unwrap();
    let names = |object: &Value| -> Vec<String> {
        let list = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        list.iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&merged), ["x", "y", "side"]);
    let reduced = apply_as("a", Some(&merged), &object(spec(json!([container("y")])))).unwrap();
    assert_eq!(names(&reduced), ["y", "side"]);
}

#[test]
fn ports_are_keyed_with_the_default_protocol() {
    let spec = |port: Value| json!({"template": {"spec": {"containers": [{"name": "c", "ports": [port]}]}}});
    let first = apply_as("a", None, &object(spec(json!({"containerPort": 80})))).unwrap();
    let owned = fields(&first, "a").to_string();
    assert!(owned.contains(r#"k:{\"containerPort\":80,\"protocol\":\"TCP\"}"#), "{owned}");
    let reapplied =
        apply_as("a", Some(&first), &object(spec(json!({"containerPort": 80, "protocol": "TCP"})))).unwrap();
    assert_eq!(reapplied["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().unwrap().len(), 1);
}

#[test]
fn finalizers_are_a_set() {
    let with_finalizers = |finalizers: Value| {
        let mut object = object(json!({}));
        object["metadata"]["finalizers"] = finalizers;
        object
    };
    let first = apply_as("a", None, &with_finalizers(json!(["a/x"]))).unwrap();
    let merged = apply_as("b", Some(&first), &with_finalizers(json!(["b/y"]))).unwrap();
    assert_eq!(merged["metadata"]["finalizers"], json!(["a/x", "b/y"]));
    let released = apply_as("a", Some(&merged), &object(json!({}))).unwrap();
    assert_eq!(released["metadata"]["finalizers"], json!(["b/y"]));
}

#[test]
fn labels_are_owned_individually() {
    let with_labels = |labels: Value| {
        let mut object = object(json!({}));
        object["metadata"]["labels"] = labels;
        object
    };
    let first = apply_as("a", None, &with_labels(json!({"one": "1", "two": "2"}))).unwrap();
    assert_eq!(fields(&first, "a")["f:metadata"], json!({"f:labels": {"f:one": {}, "f:two": {}}}));
    let reduced = apply_as("a", Some(&first), &with_labels(json!({"two": "2"}))).unwrap();
    assert_eq!(reduced["metadata"]["labels"], json!({"two": "2"}));
}

#[test]
fn applied_null_is_an_owned_value() {
    let live = created("mgr", json!({"replicas": 1}));
    let forced =
        server_side_apply(&deployment(), Some(&live), &object(json!({"replicas": null})), &options("me", true))
            .unwrap();
    assert_eq!(forced["spec"].get("replicas"), Some(&Value::Null));
    let reapplied = apply_as("me", Some(&forced), &object(json!({"replicas": null}))).unwrap();
    assert_eq!(reapplied, forced);
}

#[test]
fn ignores_timestamps_in_comparison() {
    let object = created("mgr", json!({"replicas": 1}));
    let mut later = object.clone();
    later["metadata"]["managedFields"][0]["time"] = json!("2036-01-01T00:00:00Z");
    assert!(equal_ignoring_timestamps(&object, &later));
    later["spec"]["replicas"] = json!(2);
    assert!(!equal_ignoring_timestamps(&object, &later));
}

#[test]
fn keeps_server_managed_metadata() {
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
fn object_without_managed_fields_is_owned_by_before_first_apply() {
    let error = apply_as("me", Some(&object(json!({"replicas": 1}))), &object(json!({"replicas": 2}))).unwrap_err();
    assert!(error.message.contains("conflict with \"before-first-apply\" using apps/v1"), "{}", error.message);
}

#[test]
fn status_has_a_separate_managed_fields_entry() {
    let live = apply_as("me", None, &object(json!({"replicas": 1}))).unwrap();
    let mut applied = object(json!({"replicas": 9}));
    applied["status"] = json!({"readyReplicas": 1});
    let status = ApplyOptions { subresource: Some("status".into()), ..options("me", false) };
    let after = server_side_apply(&deployment(), Some(&live), &applied, &status).unwrap();
    assert_eq!((&after["spec"]["replicas"], &after["status"]["readyReplicas"]), (&json!(1), &json!(1)));
    let entries = after["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[1]["subresource"], "status");
}

#[test]
fn rejects_elements_without_keys_and_managed_fields() {
    let nameless = object(json!({"template": {"spec": {"containers": [{"image": "i"}]}}}));
    let error = apply_as("me", None, &nameless).unwrap_err();
    assert!(error.message.contains(".spec.template.spec.containers: element 0"), "{}", error.message);
    let mut managed = object(json!({}));
    managed["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    assert_eq!(apply_as("me", None, &managed).unwrap_err().message, "metadata.managedFields must be nil");
}

#[test]
fn update_without_changes_keeps_managed_fields() {
    let live = created("mgr", json!({"replicas": 1}));
    let mut after = live.clone();
    track_update(&deployment(), Some(&live), &mut after, &update_options("other", "2026-01-02T00:00:00Z"));
    assert_eq!(after, live);
    let mut without_managers = without_managed_fields(&live);
    track_update(&deployment(), Some(&live), &mut without_managers, &update_options("mgr", "2026-01-02T00:00:00Z"));
    assert_eq!(without_managers, live);
}

#[test]
fn reapplying_a_pruned_field_changes_only_timestamps() {
    let applied = object(json!({"replicas": 1, "pruned": true}));
    let prune = |mut object: Value| {
        object["spec"].as_object_mut().unwrap().remove("pruned");
        object
    };
    let live = prune(apply_as("me", None, &applied).unwrap());
    let later_options = ApplyOptions { now: "2027-01-01T00:00:00Z".into(), ..options("me", false) };
    let reapplied = prune(server_side_apply(&deployment(), Some(&live), &applied, &later_options).unwrap());
    assert_ne!(reapplied, live);
    assert!(equal_ignoring_timestamps(&live, &reapplied));
}

#[test]
fn update_takes_ownership_of_changed_fields() {
    let live = apply_as("a", None, &object(json!({"replicas": 1, "paused": true}))).unwrap();
    let mut after = live.clone();
    after["spec"] = json!({"replicas": 3});
    track_update(&deployment(), Some(&live), &mut after, &update_options("hpa", "2026-01-02T00:00:00Z"));
    assert_eq!(fields(&after, "hpa"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(fields(&after, "a"), Value::Null, "all fields of a were changed or removed");
}

#[test]
fn empty_managed_fields_remove_all_owners() {
    let live = created("mgr", json!({"replicas": 1}));
    let mut after = live.clone();
    after["metadata"]["managedFields"] = json!([{}]);
    track_update(&deployment(), Some(&live), &mut after, &update_options("x", "2026-01-02T00:00:00Z"));
    assert!(after["metadata"].get("managedFields").is_none());
}

fn specs() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![Just(json!(1)), Just(json!("a")), Just(json!({}))];
    let map = prop::collection::btree_map("[a-c]", scalar, 0..3);
    // At least one container: an empty associative list has no owner and would be removed.
    let containers = prop::sample::subsequence(vec!["x", "y", "z"], 1..=3).prop_shuffle();
    let tolerations = prop::collection::vec("[a-b]", 0..2);
    (map, containers, "[a-c]", tolerations).prop_map(|(map, names, image, tolerations)| {
        let containers: Vec<Value> = names.iter().map(|n| json!({"name": n, "image": image})).collect();
        json!({"free": map, "template": {"metadata": {"labels": {"l": image}},
               "spec": {"containers": containers, "tolerations": tolerations}}})
    })
}

/// Reports whether `object` has every field of `subset` with the same value.
fn includes(schema: &MergeSchema, object: &Value, subset: &Value) -> bool {
    let merged = merge::merge(schema, Some(object), subset);
    compare::compare(schema, object, &merged).set.is_empty()
}

proptest! {
    #[test]
    fn apply_is_idempotent(live in specs(), first in specs(), other in specs()) {
        let live = created("mgr", live);
        let other = server_side_apply(&deployment(), Some(&live), &object(other), &options("other", true)).unwrap();
        let applied = server_side_apply(&deployment(), Some(&other), &object(first.clone()), &options("me", true)).unwrap();
        let later_options = ApplyOptions { now: "2027-01-01T00:00:00Z".into(), ..options("me", false) };
        let reapplied = server_side_apply(&deployment(), Some(&applied), &object(first), &later_options).unwrap();
        prop_assert_eq!(applied, reapplied);
    }

    #[test]
    fn forced_apply_wins(live in specs(), applied in specs()) {
        let live = created("mgr", live);
        let applied = object(applied);
        let after = server_side_apply(&deployment(), Some(&live), &applied, &options("me", true)).unwrap();
        prop_assert!(includes(&deployment(), &after, &applied));
    }

    #[test]
    fn sole_manager_results_in_its_last_configuration(first in specs(), second in specs()) {
        let initial = apply_as("me", None, &object(first)).unwrap();
        let reapplied = apply_as("me", Some(&initial), &object(second.clone())).unwrap();
        let created = apply_as("me", None, &object(second)).unwrap();
        let difference = compare::compare(&deployment(), &created, &reapplied);
        prop_assert!(difference.set.is_empty(), "{}", reapplied);
        prop_assert!(difference.removed.is_empty(), "{}", reapplied);
    }

    #[test]
    fn releasing_fields_keeps_those_of_others(first in specs(), second in specs()) {
        let other = apply_as("other", None, &object(first.clone())).unwrap();
        let merged = server_side_apply(&deployment(), Some(&other), &object(second), &options("me", true)).unwrap();
        let restored = server_side_apply(&deployment(), Some(&merged), &object(first.clone()), &options("other", true)).unwrap();
        let released = apply_as("me", Some(&restored), &object(json!({}))).unwrap();
        prop_assert!(includes(&deployment(), &released, &object(first)));
    }
}
