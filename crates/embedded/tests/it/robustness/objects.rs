//! Generators of requests that are mostly accepted: they create, change and delete objects that refer to each other.

use embedded::Server;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::request::{DEPLOYMENT, Request};
use super::values::leaf;

/// A kind of the generated objects.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// Path of the API version.
    root: &'static str,
    plural: &'static str,
    kind: &'static str,
    is_namespaced: bool,
}

const fn kind(root: &'static str, plural: &'static str, kind: &'static str, is_namespaced: bool) -> Kind {
    Kind { root, plural, kind, is_namespaced }
}

const CONFIG_MAPS: Kind = kind("/api/v1", "configmaps", "ConfigMap", true);
const SERVICES: Kind = kind("/api/v1", "services", "Service", true);
const PODS: Kind = kind("/api/v1", "pods", "Pod", true);
const NAMESPACES: Kind = kind("/api/v1", "namespaces", "Namespace", false);
const WIDGETS: Kind = kind("/apis/example.com/v1", "widgets", "Widget", true);
const BUDGETS: Kind = kind("/apis/policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", true);
const PRIORITY_CLASSES: Kind = kind("/apis/scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", false);
const DEFINITIONS: Kind =
    kind("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", false);

/// Returns the UID of the object that was created after `number` others.
pub(super) fn uid(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// Creates objects that the requests refer to.
pub(super) fn create_initial(server: &Server) {
    let containers = json!([{"name": "main", "image": "i"}]);
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}});
    let spec = json!({"selector": {"matchLabels": {"app": "x"}}, "template": template});
    server
        .create("deployments.apps", json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec}))
        .unwrap();
    server.create("namespaces", json!({"metadata": {"name": "n1"}})).unwrap();
    let definition = definition("widgets", "w", "object");
    server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
}

fn definition(plural: &str, short_name: &str, spec_type: &str) -> Value {
    let spec =
        json!({"type": spec_type, "x-kubernetes-preserve-unknown-fields": (spec_type == "object").then_some(true)});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let kind = if plural == "widgets" { "Widget" } else { "Wheel" };
    json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": plural, "kind": kind, "shortNames": [short_name]},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}}}]}})
}

/// Generates requests to all kinds.
pub(super) fn requests() -> impl Strategy<Value = Request> {
    let kind = prop::sample::select(vec![
        CONFIG_MAPS,
        CONFIG_MAPS,
        SERVICES,
        SERVICES,
        PODS,
        NAMESPACES,
        WIDGETS,
        WIDGETS,
        BUDGETS,
        PRIORITY_CLASSES,
        DEFINITIONS,
    ]);
    prop_oneof![
        6 => kind.clone().prop_flat_map(create),
        3 => kind.clone().prop_flat_map(patch),
        2 => kind.clone().prop_flat_map(apply),
        3 => kind.prop_flat_map(delete),
        1 => (namespace(), name()).prop_map(|(namespace, name)| evict(namespace, name)),
        1 => (namespace(), name(), leaf()).prop_map(|(namespace, name, phase)| pod_status(namespace, name, &phase)),
        1 => leaf().prop_map(|replicas| scale(&replicas)),
    ]
}

fn name() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        12 => prop::sample::select(vec!["a", "b", "c1", "0", "x-9"]),
        1 => prop::sample::select(vec!["", "A", "-", "a.b", "a/b", "é", "a b"]),
    ]
}

fn namespace() -> impl Strategy<Value = &'static str> {
    prop_oneof![5 => Just("default"), 5 => Just("n1"), 1 => prop::sample::select(vec!["a", "b", "kube-system", "none"])]
}

fn metadata() -> impl Strategy<Value = Value> {
    let finalizers = prop_oneof![
        6 => Just(Value::Null),
        1 => Just(json!([])),
        1 => Just(json!(["example.com/hold"])),
        1 => Just(json!(["foregroundDeletion"])),
        1 => Just(json!(["orphan"])),
    ];
    let owner_kind = prop::sample::select(vec![CONFIG_MAPS, SERVICES, NAMESPACES, WIDGETS]);
    let owner = (owner_kind, 0..40_u32, any::<bool>()).prop_map(|(kind, number, blocks)| {
        let api_version = kind.root.trim_start_matches("/apis/").trim_start_matches("/api/");
        json!({"apiVersion": api_version, "kind": kind.kind, "name": "a", "uid": uid(number), "blockOwnerDeletion": blocks})
    });
    let owners = prop_oneof![
        3 => Just(Value::Null),
        2 => prop::collection::vec(owner, 0..3).prop_map(Value::from),
    ];
    let labels = prop::sample::select(vec![json!({"app": "x"}), json!({"app": "y", "n": "1"}), Value::Null]);
    (labels, finalizers, owners).prop_map(|(labels, finalizers, owners)| {
        let mut metadata = json!({"labels": labels, "finalizers": finalizers, "ownerReferences": owners});
        metadata.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        metadata
    })
}

/// Generates the fields of an object besides its name.
fn content(kind: Kind) -> BoxedStrategy<Value> {
    let spec = match kind.plural {
        "configmaps" => prop_oneof![3 => "[a-z0-9]{0,5}".prop_map(Value::from), 1 => leaf()]
            .prop_map(|value| json!({"data": {"k1": value}}))
            .boxed(),
        "services" => {
            let service_type = prop::sample::select(vec!["ClusterIP", "NodePort", "NodePort", "LoadBalancer"]);
            let node_port = prop::option::of(30_000..30_004);
            let cluster_ip = prop::option::of(prop::sample::select(vec!["127.12.0.9", "127.12.0.1", "None", ""]));
            (service_type, node_port, cluster_ip)
                .prop_map(|(service_type, node_port, cluster_ip)| {
                    let mut spec = json!({"type": service_type, "ports": [{"port": 80}]});
                    if let Some(node_port) = node_port {
                        spec["ports"][0]["nodePort"] = json!(node_port);
                    }
                    if let Some(cluster_ip) = cluster_ip {
                        spec["clusterIP"] = json!(cluster_ip);
                    }
                    json!({"spec": spec})
                })
                .boxed()
        }
        "pods" => prop::option::weighted(0.2, leaf())
            .prop_map(|grace| {
                let mut spec = json!({"containers": [{"name": "c1", "image": "i"}]});
                if let Some(grace) = grace {
                    spec["terminationGracePeriodSeconds"] = grace;
                }
                json!({"spec": spec})
            })
            .boxed(),
        "widgets" => {
            prop_oneof![1 => leaf(), 4 => Just(json!({"size": 1}))].prop_map(|spec| json!({"spec": spec})).boxed()
        }
        "poddisruptionbudgets" => prop_oneof![4 => (0..3_i64).prop_map(Value::from), 1 => leaf()]
            .prop_map(|count| json!({"spec": {"minAvailable": count, "selector": {"matchLabels": {"app": "x"}}}}))
            .boxed(),
        "priorityclasses" => (any::<i16>(), any::<bool>())
            .prop_map(|(value, default)| json!({"value": value, "globalDefault": default}))
            .boxed(),
        _ => Just(json!({})).boxed(),
    };
    (spec, metadata())
        .prop_map(|(mut object, metadata)| {
            object["metadata"] = metadata;
            object
        })
        .boxed()
}

/// Generates an object with a name.
fn object(kind: Kind) -> BoxedStrategy<(&'static str, &'static str, Value)> {
    if kind.plural == "customresourcedefinitions" {
        let plural = prop::sample::select(vec!["widgets", "wheels"]);
        let short_name = prop::sample::select(vec!["w", "w1"]);
        let spec_type = prop::sample::select(vec!["object", "string"]);
        return (plural, short_name, spec_type)
            .prop_map(move |(plural, short_name, spec_type)| {
                let name = if plural == "widgets" { "widgets.example.com" } else { "wheels.example.com" };
                let mut object = definition(plural, short_name, spec_type);
                object["apiVersion"] = json!("apiextensions.k8s.io/v1");
                object["kind"] = json!(kind.kind);
                ("", name, object)
            })
            .boxed();
    }
    (namespace(), name(), content(kind))
        .prop_map(move |(namespace, name, mut object)| {
            object["apiVersion"] = json!(kind.root.trim_start_matches("/apis/").trim_start_matches("/api/"));
            object["kind"] = json!(kind.kind);
            object["metadata"]["name"] = json!(name);
            (namespace, name, object)
        })
        .boxed()
}

fn collection(kind: Kind, namespace: &str) -> String {
    match kind.is_namespaced {
        true => format!("{}/namespaces/{namespace}/{}", kind.root, kind.plural),
        false => format!("{}/{}", kind.root, kind.plural),
    }
}

fn create(kind: Kind) -> BoxedStrategy<Request> {
    (object(kind), prop::bool::weighted(0.1))
        .prop_map(move |((namespace, _, mut object), is_generated)| {
            if is_generated {
                object["metadata"].as_object_mut().unwrap().remove("name");
                object["metadata"]["generateName"] = json!("g-");
            }
            Request::json("POST", collection(kind, namespace), &object)
        })
        .boxed()
}

fn patch(kind: Kind) -> BoxedStrategy<Request> {
    (object(kind), any::<bool>())
        .prop_map(move |((namespace, name, mut patch), removes_finalizers)| {
            if removes_finalizers {
                patch["metadata"]["finalizers"] = Value::Null;
            }
            let uri = format!("{}/{name}", collection(kind, namespace));
            Request::new("PATCH", uri, "application/merge-patch+json", patch.to_string())
        })
        .boxed()
}

fn apply(kind: Kind) -> BoxedStrategy<Request> {
    object(kind)
        .prop_map(move |(namespace, name, object)| {
            let uri = format!("{}/{name}?fieldManager=m1&force=true", collection(kind, namespace));
            Request::new("PATCH", uri, "application/apply-patch+yaml", object.to_string())
        })
        .boxed()
}

fn delete(kind: Kind) -> BoxedStrategy<Request> {
    let policy = prop::sample::select(vec!["Background", "Foreground", "Orphan", "9"]);
    let target = prop_oneof![8 => Just(true), 1 => Just(false)];
    (object(kind), policy, target)
        .prop_map(move |((namespace, name, _), policy, is_single)| {
            let options = json!({"propagationPolicy": policy});
            let name = if is_single { format!("/{name}") } else { String::new() };
            Request::json("DELETE", format!("{}{name}", collection(kind, namespace)), &options)
        })
        .boxed()
}

fn evict(namespace: &str, name: &str) -> Request {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    Request::json("POST", format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction"), &eviction)
}

fn pod_status(namespace: &str, name: &str, phase: &Value) -> Request {
    let phase = if phase.is_string() { phase.clone() } else { json!("Running") };
    let patch = json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}});
    let uri = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
    Request::new("PATCH", uri, "application/merge-patch+json", patch.to_string())
}

fn scale(replicas: &Value) -> Request {
    let patch = json!({"spec": {"replicas": replicas}});
    Request::new("PATCH", format!("{DEPLOYMENT}/scale"), "application/merge-patch+json", patch.to_string())
}
