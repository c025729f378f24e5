//! Generators of requests to a small number of objects, so that the requests interact.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::objects::{self, Kind};

/// Generates a sequence of requests, followed by a watch from its beginning.
pub(super) fn sequence() -> impl Strategy<Value = Vec<Value>> {
    (prop::collection::vec(request(), 3..14), watch()).prop_map(|(mut requests, (kind, parameters))| {
        let collection = kind.collection();
        requests.insert(0, json!({"GET": collection, "save": {"start": "/metadata/resourceVersion"}}));
        let object = final_object(kind);
        requests.push(json!({"POST": collection, "body": object}));
        let watch = format!("{collection}?watch=true&resourceVersion={{start}}{parameters}");
        requests.push(json!({"GET": watch, "last": "zz-last"}));
        requests
    })
}

fn watch() -> impl Strategy<Value = (Kind, &'static str)> {
    let parameters =
        prop::sample::select(vec!["", "", "&labelSelector=app%3Dx", "&labelSelector=app", "&labelSelector=app!%3Dy"]);
    (prop::sample::select(vec![Kind::ConfigMap, Kind::Service, Kind::Lease, Kind::Widget]), parameters)
}

/// Returns the object that ends the watch; every selector matches it.
fn final_object(kind: Kind) -> Value {
    let (version, name, _) = kind.names();
    let spec = match kind {
        Kind::Widget => json!({"size": 1}),
        Kind::Service => json!({"ports": [{"port": 80}]}),
        _ => json!({}),
    };
    let mut object =
        json!({"apiVersion": version, "kind": name, "metadata": {"name": "zz-last", "labels": {"app": "x"}}});
    if kind != Kind::ConfigMap {
        object["spec"] = spec;
    }
    object
}

fn request() -> BoxedStrategy<Value> {
    let kind_and_name = (Kind::any(), prop_oneof![3 => Just("a"), 1 => Just("b")]);
    kind_and_name
        .prop_flat_map(|(kind, name)| {
            let writes = prop_oneof![
                4 => create(kind, name),
                3 => replace(kind, name),
                3 => patch(kind, name),
                5 => apply(kind, name),
            ];
            if kind == Kind::Deployment {
                return writes.boxed();
            }
            let all = prop_oneof![
                12 => writes,
                2 => delete(kind, name),
                1 => read(kind, name),
                1 => list(kind),
            ];
            if kind != Kind::Widget {
                return all.boxed();
            }
            prop_oneof![6 => all, 1 => status(name), 1 => scale(name)].boxed()
        })
        .boxed()
}

/// Generates the query of a write.
fn options(kind: Kind, managers: &'static [&'static str]) -> BoxedStrategy<String> {
    let validation = prop_oneof![
        5 => Just(""), 1 => Just("fieldValidation=Strict"), 1 => Just("fieldValidation=Ignore"),
    ];
    let dry_run_probability = if kind == Kind::Deployment { 1.0 } else { 0.08 };
    let manager =
        prop::sample::select(if managers.is_empty() { vec!["", "fieldManager=alice"] } else { managers.to_vec() });
    (validation, prop::bool::weighted(dry_run_probability), manager)
        .prop_map(|(validation, is_dry_run, manager)| {
            let parameters = [validation, if is_dry_run { "dryRun=All" } else { "" }, manager];
            let present_parameters: Vec<&str> =
                parameters.into_iter().filter(|parameter| !parameter.is_empty()).collect();
            if present_parameters.is_empty() { String::new() } else { format!("?{}", present_parameters.join("&")) }
        })
        .boxed()
}

fn create(kind: Kind, name: &'static str) -> BoxedStrategy<Value> {
    (objects::object(kind, name), options(kind, &[]))
        .prop_map(move |(object, options)| json!({"POST": format!("{}{options}", kind.collection()), "body": object}))
        .boxed()
}

fn replace(kind: Kind, name: &'static str) -> BoxedStrategy<Value> {
    let version = prop_oneof![2 => Just(None), 4 => Just(Some("{last}")), 1 => Just(Some("1"))];
    (objects::object(kind, name), options(kind, &[]), version)
        .prop_map(move |(mut object, options, version)| {
            if let Some(version) = version {
                object["metadata"]["resourceVersion"] = json!(version);
            }
            json!({"PUT": format!("{}/{name}{options}", kind.collection()), "body": object})
        })
        .boxed()
}

fn patch(kind: Kind, name: &'static str) -> BoxedStrategy<Value> {
    let patch_kinds = if kind == Kind::Widget { vec!["merge"] } else { vec!["merge", "strategic"] };
    let merge_patch = (objects::partial_object(kind), prop::sample::select(patch_kinds));
    let change = prop_oneof![
        3 => merge_patch.prop_map(|(partial, patch_kind)| (partial, patch_kind)),
        1 => operations().prop_map(|operations| (operations, "json")),
    ];
    (change, options(kind, &[]))
        .prop_map(move |((body, patch_kind), options)| {
            json!({"PATCH": format!("{}/{name}{options}", kind.collection()), "as": patch_kind, "body": body})
        })
        .boxed()
}

fn operations() -> impl Strategy<Value = Value> {
    let operation = prop::sample::select(vec![
        json!({"op": "add", "path": "/metadata/labels", "value": {"app": "y"}}),
        json!({"op": "remove", "path": "/metadata/labels"}),
        json!({"op": "replace", "path": "/metadata/labels/app", "value": "x"}),
        json!({"op": "test", "path": "/metadata/name", "value": "a"}),
        json!({"op": "remove", "path": "/metadata/finalizers"}),
        json!({"op": "add", "path": "/data", "value": {"k": "json"}}),
        json!({"op": "add", "path": "/spec/size", "value": 9}),
        json!({"op": "replace", "path": "/spec/parts/0/weight", "value": 5}),
        json!({"op": "move", "from": "/data/k", "path": "/data/l"}),
        json!({"op": "copy", "from": "/metadata/name", "path": "/metadata/annotations"}),
        json!({"op": "replace", "path": "/metadata/managedFields", "value": [{}]}),
    ]);
    prop::collection::vec(operation, 1..3).prop_map(Value::from)
}

fn apply(kind: Kind, name: &'static str) -> BoxedStrategy<Value> {
    const MANAGERS: [&str; 6] = [
        "fieldManager=alice",
        "fieldManager=bob",
        "fieldManager=carol",
        "fieldManager=alice&force=true",
        "fieldManager=bob&force=true",
        "force=true",
    ];
    (objects::object(kind, name), options(kind, &MANAGERS))
        .prop_map(move |(mut object, options)| {
            objects::remove_nulls(&mut object);
            json!({"PATCH": format!("{}/{name}{options}", kind.collection()), "as": "apply", "body": object})
        })
        .boxed()
}

fn delete(kind: Kind, name: &'static str) -> BoxedStrategy<Value> {
    let body = prop::sample::select(vec![
        None,
        None,
        Some(json!({"preconditions": {"resourceVersion": "{last}"}})),
        Some(json!({"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}})),
        Some(json!({"gracePeriodSeconds": 0})),
        Some(json!({"propagationPolicy": "Nowhere"})),
        Some(json!({"dryRun": ["All"]})),
    ]);
    let path = prop_oneof![5 => Just(format!("{}/{name}", kind.collection())), 1 => Just(kind.collection())];
    let selector = prop_oneof![3 => Just(""), 1 => Just("?labelSelector=app%3Dx")];
    (path, selector, body)
        .prop_map(|(path, selector, body)| {
            let mut request = json!({"DELETE": format!("{path}{selector}")});
            if let Some(body) = body {
                request["body"] = body;
            }
            request
        })
        .boxed()
}

fn accept() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["object", "table", "metadata", "metadatalist"])
}

fn read(kind: Kind, name: &'static str) -> BoxedStrategy<Value> {
    accept().prop_map(move |accept| json!({"GET": format!("{}/{name}", kind.collection()), "accept": accept})).boxed()
}

fn list(kind: Kind) -> BoxedStrategy<Value> {
    let parameters = prop::sample::select(vec![
        "",
        "limit=1",
        "limit=1&continue={continue}",
        "labelSelector=app%20in%20(x,y)",
        "labelSelector=!app",
        "labelSelector=app%3D%3D%3Dx",
        "fieldSelector=metadata.name%3Da",
        "fieldSelector=metadata.name!%3Da,metadata.namespace%3D{ns}",
        "fieldSelector=spec.color%3Dred",
        "resourceVersion=0",
        "resourceVersion={last}&resourceVersionMatch=Exact",
        "resourceVersion={last}&resourceVersionMatch=NotOlderThan",
    ]);
    (parameters, accept())
        .prop_map(
            move |(parameters, accept)| json!({"GET": format!("{}?{parameters}", kind.collection()), "accept": accept}),
        )
        .boxed()
}

fn status(name: &'static str) -> BoxedStrategy<Value> {
    let path = format!("{}/{name}/status", Kind::Widget.collection());
    (objects::status(), prop::sample::select(vec!["merge", "apply", "put"]))
        .prop_map(move |(status, patch_kind)| {
            let (version, kind, _) = Kind::Widget.names();
            let complete = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "status": status});
            match patch_kind {
                "merge" => json!({"PATCH": path, "as": patch_kind, "body": {"status": status, "spec": {"size": 99}}}),
                "apply" => json!({"PATCH": format!("{path}?fieldManager=alice"), "as": patch_kind, "body": complete}),
                _ => {
                    let mut complete = complete;
                    complete["metadata"]["resourceVersion"] = json!("{last}");
                    json!({"PUT": path, "body": complete})
                }
            }
        })
        .boxed()
}

fn scale(name: &'static str) -> BoxedStrategy<Value> {
    let path = format!("{}/{name}/scale", Kind::Widget.collection());
    (-1..5_i64, prop::sample::select(vec!["GET", "PUT", "PATCH"]))
        .prop_map(move |(replicas, method)| {
            let body = json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {"name": name, "namespace": "{ns}"}, "spec": {"replicas": replicas}});
            match method {
                "GET" => json!({"GET": path}),
                "PUT" => json!({"PUT": path, "body": body}),
                _ => json!({"PATCH": path, "as": "merge", "body": {"spec": {"replicas": replicas}}}),
            }
        })
        .boxed()
}
