//! Generators of arbitrary JSON and of JSON patches.

use proptest::prelude::*;
use serde_json::{Value, json};

/// Generates arbitrarily nested JSON with the field names of Deployments.
pub(super) fn value() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        prop::sample::select(vec![
            "metadata",
            "name",
            "namespace",
            "labels",
            "annotations",
            "spec",
            "template",
            "containers",
            "replicas",
            "selector",
            "matchLabels",
            "finalizers",
            "ownerReferences",
            "uid",
            "managedFields",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "env",
            "ports",
            "apiVersion",
            "kind",
            "status",
            "conditions",
        ])
        .prop_map(str::to_owned),
        "[a-z0-9]{1,3}",
    ];
    leaf().prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Generates a value without members or items, often at the limits of its type.
pub(super) fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3..40_i64).prop_map(Value::from),
        prop::sample::select(vec![i64::MAX, i64::MIN, i64::from(i32::MAX) + 1, 999_999_999_999]).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z0-9/$.:%\\-]{0,8}".prop_map(Value::from),
        "[0-9]{1,20}(m|Mi|e9|%|s)?".prop_map(Value::from),
    ]
}

/// Generates a JSON patch of a Deployment.
pub(super) fn json_patch() -> impl Strategy<Value = Value> {
    let path = prop::sample::select(vec![
        "",
        "/",
        "/spec",
        "/spec/replicas",
        "/spec/template/spec/containers/0",
        "/spec/template/spec/containers/-",
        "/spec/template/spec/containers/9",
        "/metadata/labels",
        "/metadata/labels/a~1b",
        "/metadata/annotations",
        "/metadata/finalizers",
        "/metadata/ownerReferences",
        "/metadata/~2",
        "spec",
        "/status",
        "/kind",
    ]);
    let op = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test", "other"]);
    let operation = (op, path.clone(), path, value())
        .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}));
    prop::collection::vec(operation, 0..4).prop_map(Value::from)
}
