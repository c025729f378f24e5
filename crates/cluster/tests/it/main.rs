//! Requests to the API server, recorded by a fake API server.

// Lints allow these only in test functions, not in test helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod deadlines;
mod supervision;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use cluster::{
    Applier, ApplyOutcome, Convergence, DesiredObject, Error, IDENTITY_ANNOTATION, Kind, ObjectOwner, StatusWriter,
    Stores,
};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

const SERVICE: Kind = Kind::namespaced("", "v1", "Service", "services");
const OWNER: Kind = Kind::namespaced("g", "v1", "Owner", "owners");
const MANAGED_KINDS: &[Kind] = &[SERVICE];
const MANAGER: &str = "us";

/// Recorded requests as `METHOD path?query` with their bodies.
type RequestLog = Arc<Mutex<Vec<(String, Value)>>>;

/// Returns the owner of objects that `MANAGER` must not modify.
fn other_owner() -> ObjectOwner {
    ObjectOwner::Controller { kind: "Owner".to_owned(), name: "o".to_owned() }
}

/// Returns a client whose writes are all answered with `code`; 200 returns the request body. The owner exists.
fn client(code: u16) -> (kube::Client, RequestLog) {
    client_with_owners(code, vec![owner()])
}

/// Returns a client like [`client`] to which the API server lists these owners.
fn client_with_owners(code: u16, owners: Vec<Value>) -> (kube::Client, RequestLog) {
    let owners = json!({"apiVersion": "g/v1", "kind": "OwnerList", "metadata": {}, "items": owners}).to_string();
    let requests = RequestLog::default();
    let recorded = requests.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (recorded, owners) = (recorded.clone(), owners.clone());
        async move {
            if request.method() == Method::GET {
                assert_eq!(request.uri(), "/apis/g/v1/namespaces/n/owners?&fieldSelector=metadata.name%3Do");
                return Ok(Response::new(Full::new(Bytes::from(owners))));
            }
            let request_line = format!("{} {}", request.method(), request.uri());
            let is_delete = request.method() == Method::DELETE;
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            recorded.lock().unwrap().push((request_line, body.clone()));
            let failure = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no such port", "reason": "Invalid", "code": code});
            let response = match code {
                200 if is_delete => json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
                200 => updated(body),
                _ => failure,
            };
            Ok::<_, kube::Error>(
                Response::builder().status(code).body(Full::new(Bytes::from(response.to_string()))).unwrap(),
            )
        }
    });
    (kube::Client::new(service, "default"), requests)
}

/// Returns the object with another resource version, as after an update.
fn updated(mut object: Value) -> Value {
    object["metadata"]["resourceVersion"] = json!("9");
    object
}

fn owner() -> Value {
    json!({"apiVersion": "g/v1", "kind": "Owner", "metadata": {"name": "o", "namespace": "n", "uid": "owner-uid"}})
}

fn desired(port: i64) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n"}, "spec": {"ports": [{"port": port}]}})
}

/// Returns the live object after an apply of `desired(80)`.
fn live_object() -> Value {
    json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "3",
        "annotations": {IDENTITY_ANNOTATION: "Service/n/a"},
        "ownerReferences": [{"apiVersion": "g/v1", "kind": "Owner", "name": "o", "uid": "owner-uid", "controller": true, "blockOwnerDeletion": true}],
        "managedFields": [{"manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsV1": {
            "f:metadata": {"f:annotations": {"f:ostler.io/identity": {}}, "f:ownerReferences": {"k:{\"uid\":\"owner-uid\"}": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}}}]},
        "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80, "protocol": "TCP"}]}})
}

fn stores(objects: Vec<Value>) -> Stores {
    let stores = Stores::new(MANAGER);
    let _ = stores.apply_event(SERVICE, Event::Init);
    for object in objects {
        let _ = stores.apply_event(SERVICE, Event::InitApply(object));
    }
    let _ = stores.apply_event(SERVICE, Event::InitDone);
    stores
}

async fn converge(code: u16, cached: Vec<Value>, desired: Vec<Value>) -> (Convergence, Vec<(String, Value)>) {
    let (client, requests) = client(code);
    let result =
        Applier::new(client, stores(cached), MANAGED_KINDS, MANAGER).converge(OWNER, &owner(), desired).await.unwrap();
    let requests = requests.lock().unwrap().clone();
    (result, requests)
}

#[tokio::test]
async fn creates_missing_object_with_owner_reference() {
    let (result, requests) = converge(200, vec![], vec![desired(80)]).await;
    assert_eq!(result.results[0].outcome, ApplyOutcome::Created);
    let (request, body) = &requests[0];
    assert_eq!(request, "PATCH /api/v1/namespaces/n/services/a?&fieldManager=us");
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "owner-uid");
    assert_eq!(body["metadata"]["resourceVersion"], "1", "no object has this version");
}

/// The cache still contains an owner that was deleted, and perhaps created again.
#[rstest::rstest]
#[case::deleted(vec![])]
#[case::recreated(vec![json!({"apiVersion": "g/v1", "kind": "Owner", "metadata": {"name": "o", "namespace": "n", "uid": "new"}})])]
#[tokio::test]
async fn creates_nothing_for_a_deleted_owner(#[case] owners: Vec<Value>) {
    let (client, requests) = client_with_owners(200, owners);
    let applier = Applier::new(client, stores(vec![]), MANAGED_KINDS, MANAGER);
    let error = applier.converge(OWNER, &owner(), vec![desired(80)]).await.unwrap_err();
    assert!(matches!(&error, Error::Deleted { object } if object == "Owner n/o"), "{error}");
    assert!(error.is_conflict() && requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn up_to_date_object_causes_no_request() {
    let (result, requests) = converge(200, vec![live_object()], vec![desired(80)]).await;
    assert_eq!(result.results[0].outcome, ApplyOutcome::Unchanged);
    assert!(!result.has_changes() && requests.is_empty());
}

/// An additional field inside an atomic list is a server default or a removed field: the first apply shows which.
#[tokio::test]
async fn server_defaults_in_atomic_value_cause_one_apply() {
    let mut live = live_object();
    live["apiVersion"] = json!("v1");
    live["kind"] = json!("Service");
    live["spec"]["ports"][0]["weight"] = json!(1);
    live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:ports"] = json!({});
    let response = live.clone();
    let request_count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = Arc::clone(&request_count);
    let service = tower::service_fn(move |_: Request<Body>| {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let response = response.to_string();
        async move { Ok::<_, kube::Error>(Response::new(Full::new(Bytes::from(response)))) }
    });
    let applier = Applier::new(kube::Client::new(service, "default"), stores(vec![live]), MANAGED_KINDS, MANAGER);
    for port in [80, 80, 80] {
        let result = applier.converge(OWNER, &owner(), vec![desired(port)]).await.unwrap();
        assert_eq!(result.results[0].outcome, ApplyOutcome::Unchanged);
    }
    assert_eq!(request_count.load(std::sync::atomic::Ordering::Relaxed), 1);
    let mut changed = desired(80);
    changed["spec"]["ports"][0]["weight"] = json!(1);
    changed["spec"]["ports"][0]["name"] = json!("http");
    applier.converge(OWNER, &owner(), vec![changed]).await.unwrap();
    assert_eq!(request_count.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[tokio::test]
async fn updates_changed_object_and_prunes_old_one_with_preconditions() {
    let mut old = live_object();
    old["metadata"]["name"] = json!("old");
    old["metadata"]["annotations"][IDENTITY_ANNOTATION] = json!("Service/n/old");
    let (result, requests) = converge(200, vec![live_object(), old], vec![desired(81)]).await;
    assert_eq!(result.results[0].outcome, ApplyOutcome::Updated);
    assert_eq!(result.pruned, ["Service n/old"]);
    let (request, body) = &requests[0];
    assert_eq!(request, "PATCH /api/v1/namespaces/n/services/a?&force=true&fieldManager=us");
    assert_eq!((&body["metadata"]["uid"], &body["metadata"]["resourceVersion"]), (&json!("u"), &json!("3")));
    let (request, body) = &requests[1];
    assert!(request.starts_with("DELETE /api/v1/namespaces/n/services/old"), "{request}");
    assert_eq!(body["preconditions"], json!({"uid": "u", "resourceVersion": "3"}));
    assert_eq!(body["propagationPolicy"], "Background");
}

#[tokio::test]
async fn object_of_another_owner_is_not_modified() {
    let mut not_owned = live_object();
    not_owned["metadata"]["ownerReferences"][0]["uid"] = json!("other");
    let (result, requests) = converge(200, vec![not_owned], vec![desired(81)]).await;
    assert_eq!(result.results[0].outcome, ApplyOutcome::NotOwned(other_owner()));
    assert!(requests.is_empty());
}

/// A user's copy of one of our objects has our owner reference.
#[tokio::test]
async fn copy_of_an_owned_object_is_neither_modified_nor_pruned() {
    let (mut copy, mut other_copy) = (live_object(), live_object());
    for copy in [&mut copy, &mut other_copy] {
        copy["metadata"]["managedFields"] = json!([{"manager": "kubectl-create", "operation": "Update"}]);
    }
    other_copy["metadata"]["name"] = json!("b");
    let mut copy_with_managers = live_object();
    copy_with_managers["metadata"]["name"] = json!("c");
    let (result, requests) = converge(200, vec![copy, other_copy, copy_with_managers], vec![desired(81)]).await;
    assert_eq!(result.results[0].outcome, ApplyOutcome::NotOwned(ObjectOwner::FieldManager));
    assert!(result.pruned.is_empty() && requests.is_empty());
}

#[tokio::test]
async fn objects_after_apply_first_are_deferred_until_it_is_applied() {
    let (mut not_owned, mut second) = (live_object(), desired(81));
    not_owned["metadata"]["ownerReferences"][0]["uid"] = json!("other");
    second["metadata"]["name"] = json!("b");
    let (client, requests) = client(200);
    let applier = Applier::new(client, stores(vec![not_owned]), MANAGED_KINDS, MANAGER);
    let objects = vec![DesiredObject::ApplyFirst(desired(81)), DesiredObject::Apply(second)];
    let outcomes: Vec<ApplyOutcome> = applier
        .converge(OWNER, &owner(), objects)
        .await
        .unwrap()
        .results
        .into_iter()
        .map(|result| result.outcome)
        .collect();
    assert_eq!(outcomes, [ApplyOutcome::NotOwned(other_owner()), ApplyOutcome::Deferred]);
    assert!(requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn deferred_object_is_neither_changed_nor_pruned() {
    let (client, requests) = client(200);
    let applier = Applier::new(client, stores(vec![live_object()]), MANAGED_KINDS, MANAGER);
    let result = applier.converge(OWNER, &owner(), vec![DesiredObject::Defer(desired(81))]).await.unwrap();
    assert_eq!(result.results[0].outcome, ApplyOutcome::Deferred);
    assert!(result.pruned.is_empty() && requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn rejection_is_reported_with_api_server_message() {
    let (result, _) = converge(422, vec![], vec![desired(80)]).await;
    assert_eq!(result.results[0].outcome, ApplyOutcome::Rejected("no such port".to_owned()));
    assert!(result.rejection.is_some());
}

#[tokio::test]
async fn status_is_written_only_if_it_changed() {
    let (client, requests) = client(200);
    let writer = StatusWriter::new(client, stores(vec![]), MANAGER);
    let mut live = live_object();
    assert!(writer.publish(SERVICE, &live, &json!({"phase": "Up"})).await.unwrap());
    assert!(requests.lock().unwrap()[0].0.starts_with("PATCH /api/v1/namespaces/n/services/a/status?"));
    live["status"] = json!({"phase": "Up"});
    live["metadata"]["managedFields"] = json!([{"manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "subresource": "status",
        "fieldsV1": {"f:status": {"f:phase": {}}}}]);
    assert!(!writer.publish(SERVICE, &live, &json!({"phase": "Up"})).await.unwrap());
    assert_eq!(requests.lock().unwrap().len(), 1);
}
