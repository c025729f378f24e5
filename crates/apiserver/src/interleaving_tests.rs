//! Writes that other writes overtake between their checks and their commit.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use apimachinery::{Status, object};
use axum::body::Body;
use http_body_util::BodyExt;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::ports::{Admission, AdmissionRequest, AdmissionResponse, ServerPorts};
use crate::resources::definition;
use crate::server::Server;
use crate::store::CollectionKey;

const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";
const BUDGETS: &str = "poddisruptionbudgets.policy";

/// A server whose writes can be interleaved. Admission is the last stage before the commit, so a write that admission
/// carries out is committed after every check of the reviewed write.
struct InterleavedServer {
    server: Server,
    admission: Arc<InterleavedAdmission>,
}

/// Carries out another write during the review of a write.
#[derive(Default)]
struct InterleavedAdmission {
    server: OnceLock<Server>,
    pending: Mutex<Vec<PendingWrite>>,
}

/// A write that is carried out during the first review of another write.
struct PendingWrite {
    /// Operation, resource and name of the reviewed write.
    reviewed: [&'static str; 3],
    write: Box<dyn FnOnce(&Server) + Send>,
}

// === impl InterleavedServer ===

impl InterleavedServer {
    fn new() -> Self {
        let admission = Arc::new(InterleavedAdmission::default());
        let server = Server::new(&ServerPorts { admission: admission.clone(), ..ServerPorts::default() });
        assert!(admission.server.set(server.clone()).is_ok());
        Self { server, admission }
    }

    /// Carries out `write` between the checks and the commit of the next write with this operation, resource and name.
    fn before_commit(&self, reviewed: [&'static str; 3], write: impl FnOnce(&Server) + Send + 'static) {
        self.admission.pending.lock().unwrap().push(PendingWrite { reviewed, write: Box::new(write) });
    }

    /// Asserts that every interleaved write was carried out.
    fn assert_interleaved(&self) {
        assert!(self.admission.pending.lock().unwrap().is_empty(), "a write was not interleaved");
    }
}

// === impl InterleavedAdmission ===

impl Admission for InterleavedAdmission {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        let reviewed = [request.operation, request.resource, request.name];
        let pending_write = {
            let mut pending = self.pending.lock().unwrap();
            let index = pending.iter().position(|pending| pending.reviewed == reviewed);
            index.map(|index| pending.remove(index))
        };
        if let (Some(pending_write), Some(server)) = (pending_write, self.server.get()) {
            (pending_write.write)(server);
        }
        AdmissionResponse { allowed: true, ..AdmissionResponse::default() }
    }
}

/// Sends a request and returns status code and body of the response.
fn send(server: &Server, method: &str, uri: &str, content_type: &str, body: &Value) -> (u16, Value) {
    let request = http::Request::builder().method(method).uri(uri).header("content-type", content_type);
    let request = request.body(Body::from(body.to_string())).unwrap();
    let response = async {
        let response = crate::router(server).oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    };
    // An interleaved request is sent while another one is being handled, and executors cannot be nested.
    thread::scope(|scope| scope.spawn(|| futures::executor::block_on(response)).join().unwrap())
}

fn config_map(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}})
}

fn node_port_service(name: &str, fields: &Value) -> Value {
    let mut service = json!({"metadata": {"namespace": "default", "name": name},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    object::members(&mut service["spec"]).extend(fields.as_object().cloned().unwrap_or_default());
    service
}

/// Returns a definition of the kind Widget whose `spec` has the type `spec_type`.
fn widget_definition(spec_type: &str) -> Value {
    let spec =
        json!({"type": spec_type, "x-kubernetes-preserve-unknown-fields": (spec_type == "object").then_some(true)});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

fn update(server: &Server, resource: &str, namespace: &str, name: &str, edit: impl Fn(&mut Value)) {
    let mut object = Value::clone(&server.get(resource, namespace, name).unwrap());
    edit(&mut object);
    server.update(resource, object).unwrap();
}

/// Returns the code and the first cause or message of an error.
fn code(result: Result<Arc<Value>, Status>) -> u16 {
    result.map_or_else(|status| status.code, |_| 201)
}

#[rstest]
#[case::removed(None, 404)]
#[case::terminating(Some("example.com/hold"), 403)]
fn namespace_is_deleted_during_creation(#[case] finalizer: Option<&'static str>, #[case] expected: u16) {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    server.create("namespaces", json!({"metadata": {"name": "n"}})).unwrap();
    if let Some(finalizer) = finalizer {
        let mut held = config_map("n", "held");
        held["metadata"]["finalizers"] = json!([finalizer]);
        server.create("configmaps", held).unwrap();
    }
    interleaved.before_commit(["CREATE", "configmaps", "late"], |server| {
        server.delete("namespaces", "", "n", None).unwrap();
    });
    assert_eq!(code(server.create("configmaps", config_map("n", "late"))), expected);
    interleaved.assert_interleaved();
    assert!(server.get("configmaps", "n", "late").is_none());
    assert_eq!(server.get("namespaces", "", "n").is_some(), finalizer.is_some());
}

/// The cascade of an earlier deletion does not touch a namespace that was recreated with the same name.
#[test]
fn namespace_is_recreated_during_its_finalization() {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    server.create("namespaces", json!({"metadata": {"name": "n"}})).unwrap();
    interleaved.before_commit(["UPDATE", "namespaces", "n"], |server| {
        update(server, "namespaces", "", "n", |namespace| {
            object::members(&mut namespace["spec"]).remove("finalizers");
        });
        server.create("namespaces", json!({"metadata": {"name": "n"}})).unwrap();
    });
    server.delete("namespaces", "", "n", None).unwrap();
    interleaved.assert_interleaved();
    let namespace = server.get("namespaces", "", "n").unwrap();
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
}

#[test]
fn services_get_different_node_ports() {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    interleaved.before_commit(["CREATE", "services", "a"], |server| {
        server.create("services", node_port_service("b", &Value::Null)).unwrap();
    });
    server.create("services", node_port_service("a", &Value::Null)).unwrap();
    interleaved.assert_interleaved();
    let port = |name: &str| server.get("services", "default", name).unwrap()["spec"]["ports"][0]["nodePort"].clone();
    assert_eq!((port("b"), port("a")), (json!(30000), json!(30001)));

    interleaved.before_commit(["UPDATE", "services", "cluster-ip"], |server| {
        server.create("services", node_port_service("c", &Value::Null)).unwrap();
    });
    server.create("services", node_port_service("cluster-ip", &json!({"type": "ClusterIP"}))).unwrap();
    update(server, "services", "default", "cluster-ip", |service| service["spec"]["type"] = json!("NodePort"));
    interleaved.assert_interleaved();
    assert_eq!((port("c"), port("cluster-ip")), (json!(30002), json!(30003)));
}

#[rstest]
#[case::node_port(json!({"ports": [{"port": 80, "nodePort": 31000}]}))]
#[case::cluster_ip(json!({"clusterIP": "127.12.9.9"}))]
fn requested_port_or_address_is_allocated_during_creation(#[case] fields: Value) {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    let other = node_port_service("b", &fields);
    interleaved.before_commit(["CREATE", "services", "a"], move |server| {
        server.create("services", other).unwrap();
    });
    assert_eq!(code(server.create("services", node_port_service("a", &fields))), 422);
    interleaved.assert_interleaved();
}

#[test]
fn concurrent_evictions_respect_disruption_budget() {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    for name in ["a", "b"] {
        let pod = json!({"metadata": {"namespace": "default", "name": name, "labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let mut pod = Value::clone(&server.create("pods", pod).unwrap());
        pod["status"]["phase"] = json!("Running");
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        server.update_status("pods", pod).unwrap();
    }
    let budget = json!({"metadata": {"namespace": "default", "name": "x"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    server.create(BUDGETS, budget).unwrap();
    interleaved.before_commit(["DELETE", "pods", "a"], |server| assert_eq!(evict(server, "b"), 201));
    assert_eq!(evict(server, "a"), 429);
    interleaved.assert_interleaved();
    assert!(server.get("pods", "default", "a").is_some());
}

/// A budget that is created during an eviction applies to it.
#[test]
fn disruption_budget_is_created_during_eviction() {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    let pod = json!({"metadata": {"namespace": "default", "name": "a", "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut pod = Value::clone(&server.create("pods", pod).unwrap());
    pod["status"]["phase"] = json!("Running");
    pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    server.update_status("pods", pod).unwrap();
    interleaved.before_commit(["DELETE", "pods", "a"], |server| {
        let budget = json!({"metadata": {"namespace": "default", "name": "x"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
        server.create(BUDGETS, budget).unwrap();
    });
    assert_eq!(evict(server, "a"), 429);
    interleaved.assert_interleaved();
}

/// Evicts a Pod and returns the status code of the response.
fn evict(server: &Server, name: &str) -> u16 {
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    send(server, "POST", &format!("/api/v1/namespaces/default/pods/{name}/eviction"), "application/json", &body).0
}

#[test]
fn two_priority_classes_become_the_default() {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    let class = |name: &str| json!({"metadata": {"name": name}, "value": 1, "globalDefault": true});
    let other = class("b");
    interleaved.before_commit(["CREATE", PRIORITY_CLASSES, "a"], move |server| {
        server.create(PRIORITY_CLASSES, other).unwrap();
    });
    assert_eq!(code(server.create(PRIORITY_CLASSES, class("a"))), 403);
    interleaved.assert_interleaved();
}

#[test]
fn definition_is_deleted_during_creation_of_custom_resource() {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    server.create(definition::STORAGE, widget_definition("object")).unwrap();
    interleaved.before_commit(["CREATE", "widgets.example.com", "late"], |server| {
        server.delete(definition::STORAGE, "", "widgets.example.com", None).unwrap();
    });
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "late"}});
    let uri = "/apis/example.com/v1/namespaces/default/widgets";
    assert_eq!(send(server, "POST", uri, "application/json", &widget).0, 404);
    interleaved.assert_interleaved();
    let widgets = CollectionKey { resource: "widgets.example.com".to_owned(), namespace: None };
    assert!(server.store().list(&widgets).objects.is_empty());

    // The same kind can be defined again.
    server.create(definition::STORAGE, widget_definition("object")).unwrap();
    assert_eq!(send(server, "POST", uri, "application/json", &widget).0, 201);
}

#[test]
fn custom_resource_is_not_created_while_its_definition_is_terminating() {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    server.create(definition::STORAGE, widget_definition("object")).unwrap();
    let widget = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
    let uri = "/apis/example.com/v1/namespaces/default/widgets";
    let mut held = widget("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    assert_eq!(send(server, "POST", uri, "application/json", &held).0, 201);
    interleaved.before_commit(["CREATE", "widgets.example.com", "late"], |server| {
        server.delete(definition::STORAGE, "", "widgets.example.com", None).unwrap();
    });
    let (code, body) = send(server, "POST", uri, "application/json", &widget("late"));
    interleaved.assert_interleaved();
    assert_eq!((code, &body["reason"]), (405, &json!("MethodNotAllowed")));
    assert_eq!(body["message"], "create not allowed while custom resource definition is terminating");

    // Updates are allowed, and the definition is removed with its last custom resource.
    let (_, mut held) = send(server, "GET", &format!("{uri}/held"), "application/json", &Value::Null);
    held["metadata"]["finalizers"] = json!([]);
    assert_eq!(send(server, "PUT", &format!("{uri}/held"), "application/json", &held).0, 200);
    assert!(server.get(definition::STORAGE, "", "widgets.example.com").is_none());
}

/// A custom resource is validated with the schema that is in force when it is stored.
#[rstest]
#[case::creation("POST", "")]
#[case::update("PATCH", "/existing")]
fn schema_changes_during_write_of_custom_resource(#[case] method: &str, #[case] path: &str) {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    server.create(definition::STORAGE, widget_definition("object")).unwrap();
    let uri = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = |name: &str| {
        let metadata = json!({"name": name});
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": 1}})
    };
    assert_eq!(send(server, "POST", uri, "application/json", &widget("existing")).0, 201);
    let change_schema = |server: &Server| {
        update(server, definition::STORAGE, "", "widgets.example.com", |definition| {
            let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            schema["properties"]["spec"]["required"] = json!(["color"]);
        });
    };
    let (content_type, body, operation, name) = match method {
        "POST" => ("application/json", widget("late"), "CREATE", "late"),
        _ => ("application/merge-patch+json", json!({"spec": {"size": 2}}), "UPDATE", "existing"),
    };
    interleaved.before_commit([operation, "widgets.example.com", name], change_schema);
    let (code, body) = send(server, method, &format!("{uri}{path}"), content_type, &body);
    interleaved.assert_interleaved();
    assert_eq!(code, 422, "{body}");
}

#[test]
fn definitions_do_not_share_a_short_name() {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    let definition = |plural: &str, kind: &str| {
        let mut definition = widget_definition("object");
        definition["metadata"]["name"] = json!(format!("{plural}.example.com"));
        definition["spec"]["names"] = json!({"plural": plural, "kind": kind, "shortNames": ["w"]});
        definition
    };
    let other = definition("wheels", "Wheel");
    interleaved.before_commit(["UPDATE", definition::STORAGE, "widgets.example.com"], move |server| {
        server.create(definition::STORAGE, other).unwrap();
    });
    server.create(definition::STORAGE, definition("widgets", "Widget")).unwrap();
    interleaved.assert_interleaved();
    let short_names = |name: &str| {
        let definition = server.get(definition::STORAGE, "", name).unwrap();
        definition["status"]["acceptedNames"]["shortNames"].clone()
    };
    assert_eq!((short_names("wheels.example.com"), short_names("widgets.example.com")), (json!(["w"]), Value::Null));
}

/// The served schema is that of the last stored definition, whatever the order in which the writers finish.
#[test]
fn concurrent_definition_updates_serve_the_last_one() {
    let server = Server::new(&ServerPorts::default());
    server.create(definition::STORAGE, widget_definition("object")).unwrap();
    for _ in 0..50 {
        thread::scope(|scope| {
            for column in ["a", "b", "c", "d"] {
                let server = &server;
                scope.spawn(move || {
                    let mut definition =
                        Value::clone(&server.get(definition::STORAGE, "", "widgets.example.com").unwrap());
                    object::set_metadata_field(&mut definition, "resourceVersion", None);
                    let columns = json!([{"name": column, "type": "string", "jsonPath": ".spec.x"}]);
                    definition["spec"]["versions"][0]["additionalPrinterColumns"] = columns;
                    // A conflict means that another update was stored first.
                    let _ = send(
                        server,
                        "PATCH",
                        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
                        "application/merge-patch+json",
                        &json!({"spec": {"versions": definition["spec"]["versions"]}}),
                    );
                });
            }
        });
        let stored = server.get(definition::STORAGE, "", "widgets.example.com").unwrap();
        let served = server.registry().by_name("widgets.example.com").unwrap();
        let stored_column = &stored["spec"]["versions"][0]["additionalPrinterColumns"][0]["name"];
        assert_eq!(served.printer_columns[0].name, *stored_column);
    }
}

#[test]
fn object_is_created_during_server_side_apply() {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    interleaved.before_commit(["CREATE", "configmaps", "a"], |server| {
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "a"},
            "data": {"other": "1"}});
        server.create("configmaps", other).unwrap();
    });
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"mine": "2"}});
    let uri = "/api/v1/namespaces/default/configmaps/a?fieldManager=m";
    let (code, body) = send(server, "PATCH", uri, "application/apply-patch+yaml", &applied);
    interleaved.assert_interleaved();
    assert_eq!((code, &body["data"]), (200, &json!({"mine": "2", "other": "1"})));
}

#[test]
fn object_gets_an_owner_during_garbage_collection() {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    let reference = |name: &str| {
        let owner = server.create("configmaps", config_map("default", name)).unwrap();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner["metadata"]["uid"]})
    };
    let (old_owner, new_owner) = (reference("old"), reference("new"));
    let mut dependent = config_map("default", "dependent");
    dependent["metadata"]["ownerReferences"] = json!([old_owner]);
    server.create("configmaps", dependent).unwrap();
    interleaved.before_commit(["DELETE", "configmaps", "dependent"], move |server| {
        update(server, "configmaps", "default", "dependent", |dependent| {
            dependent["metadata"]["ownerReferences"] = json!([new_owner]);
        });
    });
    server.delete("configmaps", "default", "old", None).unwrap();
    interleaved.assert_interleaved();
    assert!(server.get("configmaps", "default", "dependent").is_some());
}

#[test]
fn object_leaves_the_selector_during_deletion_of_its_collection() {
    let interleaved = InterleavedServer::new();
    let server = &interleaved.server;
    for name in ["a", "b"] {
        let mut labeled = config_map("default", name);
        labeled["metadata"]["labels"] = json!({"app": "x"});
        server.create("configmaps", labeled).unwrap();
    }
    interleaved.before_commit(["DELETE", "configmaps", "a"], |server| {
        update(server, "configmaps", "default", "b", |object| object["metadata"]["labels"] = json!({"app": "y"}));
    });
    let uri = "/api/v1/namespaces/default/configmaps?labelSelector=app%3Dx";
    assert_eq!(send(server, "DELETE", uri, "application/json", &json!({})).0, 200);
    interleaved.assert_interleaved();
    let remaining = server.list("configmaps");
    let names: Vec<&str> = remaining.iter().map(|object| object::name(object)).collect();
    assert_eq!(names, ["b"]);
}
