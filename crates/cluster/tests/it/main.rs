//! What really goes over the wire: a recording service stands where the API server would.

// Helpers of tests are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use cluster::apply::{Convergence, Desired};
use cluster::status::StatusWriter;
use cluster::{Applier, Kind, Outcome, Stores};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

const SERVICE: Kind = Kind::namespaced("", "v1", "Service", "services");
const MADE: &[Kind] = &[SERVICE];
const MANAGER: &str = "us";

/// Requests as `METHOD path?query` with their bodies.
type Journal = Arc<Mutex<Vec<(String, Value)>>>;

/// Answers every request with `code`; 200 echoes what was sent.
fn client(code: u16) -> (kube::Client, Journal) {
    let journal = Journal::default();
    let seen = journal.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let seen = seen.clone();
        async move {
            let what = format!("{} {}", request.method(), request.uri());
            let deleting = request.method() == Method::DELETE;
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            seen.lock().unwrap().push((what, body.clone()));
            let failure = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no such port", "reason": "Invalid", "code": code});
            let answer = match code {
                200 if deleting => json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
                200 => body,
                _ => failure,
            };
            Ok::<_, kube::Error>(
                Response::builder().status(code).body(Full::new(Bytes::from(answer.to_string()))).unwrap(),
            )
        }
    });
    (kube::Client::new(service, "default"), journal)
}

fn owner() -> Value {
    json!({"apiVersion": "g/v1", "kind": "Owner", "metadata": {"name": "o", "namespace": "n", "uid": "owner-uid"}})
}

fn desired(port: i64) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n"}, "spec": {"ports": [{"port": port}]}})
}

/// As the server would hold it after we applied `desired(80)`.
fn applied() -> Value {
    json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "3",
        "ownerReferences": [{"apiVersion": "g/v1", "kind": "Owner", "name": "o", "uid": "owner-uid", "controller": true, "blockOwnerDeletion": true}],
        "managedFields": [{"manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsV1": {
            "f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"owner-uid\"}": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}}}]},
        "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80, "protocol": "TCP"}]}})
}

fn stores(objects: Vec<Value>) -> Stores {
    let stores = Stores::new(MANAGER);
    let _ = stores.accept(SERVICE, Event::Init);
    for object in objects {
        let _ = stores.accept(SERVICE, Event::InitApply(object));
    }
    let _ = stores.accept(SERVICE, Event::InitDone);
    stores
}

async fn converge(code: u16, held: Vec<Value>, wanted: Vec<Value>) -> (Convergence, Vec<(String, Value)>) {
    let (client, journal) = client(code);
    let result = Applier::new(client, stores(held), MADE, MANAGER).converge(&owner(), wanted).await.unwrap();
    let journal = journal.lock().unwrap().clone();
    (result, journal)
}

#[tokio::test]
async fn a_missing_object_is_applied_with_its_owner() {
    let (result, journal) = converge(200, vec![], vec![desired(80)]).await;
    assert_eq!(result.applied[0].outcome, Outcome::Created);
    let (request, body) = &journal[0];
    assert_eq!(request, "PATCH /api/v1/namespaces/n/services/a?&force=true&fieldManager=us");
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "owner-uid");
}

#[tokio::test]
async fn what_is_as_desired_costs_no_request() {
    let (result, journal) = converge(200, vec![applied()], vec![desired(80)]).await;
    assert_eq!(result.applied[0].outcome, Outcome::Unchanged);
    assert!(!result.changed() && journal.is_empty());
}

/// A field more inside a list that is ours as a whole: ours and dropped, or the server's own. The answer tells, once.
#[tokio::test]
async fn what_the_server_fills_in_is_asked_for_once() {
    let mut held = applied();
    held["apiVersion"] = json!("v1");
    held["kind"] = json!("Service");
    held["spec"]["ports"][0]["weight"] = json!(1);
    held["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:ports"] = json!({});
    let answer = held.clone();
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let service = tower::service_fn(move |_: Request<Body>| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let answer = answer.to_string();
        async move { Ok::<_, kube::Error>(Response::new(Full::new(Bytes::from(answer)))) }
    });
    let applier = Applier::new(kube::Client::new(service, "default"), stores(vec![held]), MADE, MANAGER);
    for wish in [80, 80, 80] {
        let result = applier.converge(&owner(), vec![desired(wish)]).await.unwrap();
        assert_eq!(result.applied[0].outcome, Outcome::Unchanged);
    }
    assert_eq!(sent.load(std::sync::atomic::Ordering::Relaxed), 1);
    let mut other = desired(80);
    other["spec"]["ports"][0]["weight"] = json!(1);
    other["spec"]["ports"][0]["name"] = json!("http");
    applier.converge(&owner(), vec![other]).await.unwrap();
    assert_eq!(sent.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_difference_is_sent_and_the_old_pruned_with_preconditions() {
    let mut old = applied();
    old["metadata"]["name"] = json!("old");
    let (result, journal) = converge(200, vec![applied(), old], vec![desired(81)]).await;
    assert_eq!(result.applied[0].outcome, Outcome::Updated);
    assert_eq!(result.pruned, ["Service n/old"]);
    let (request, body) = &journal[1];
    assert!(request.starts_with("DELETE /api/v1/namespaces/n/services/old"), "{request}");
    assert_eq!(body["preconditions"], json!({"uid": "u", "resourceVersion": "3"}));
    assert_eq!(body["propagationPolicy"], "Background");
}

#[tokio::test]
async fn somebody_elses_object_is_left_alone() {
    let mut theirs = applied();
    theirs["metadata"]["ownerReferences"][0]["uid"] = json!("other");
    let (result, journal) = converge(200, vec![theirs], vec![desired(81)]).await;
    assert_eq!(result.applied[0].outcome, Outcome::Foreign("Owner o".to_owned()));
    assert!(journal.is_empty());
}

#[tokio::test]
async fn what_comes_after_the_first_waits_for_it() {
    let (mut theirs, mut second) = (applied(), desired(81));
    theirs["metadata"]["ownerReferences"][0]["uid"] = json!("other");
    second["metadata"]["name"] = json!("b");
    let (client, journal) = client(200);
    let applier = Applier::new(client, stores(vec![theirs]), MADE, MANAGER);
    let wanted = vec![Desired::First(desired(81)), Desired::Exactly(second)];
    let outcomes: Vec<Outcome> =
        applier.converge(&owner(), wanted).await.unwrap().applied.into_iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [Outcome::Foreign("Owner o".to_owned()), Outcome::Held]);
    assert!(journal.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_has_its_turn_later_is_neither_changed_nor_pruned() {
    let (client, journal) = client(200);
    let applier = Applier::new(client, stores(vec![applied()]), MADE, MANAGER);
    let result = applier.converge(&owner(), vec![Desired::Later(desired(81))]).await.unwrap();
    assert_eq!(result.applied[0].outcome, Outcome::Held);
    assert!(result.pruned.is_empty() && journal.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_refusal_is_an_outcome_with_the_servers_words() {
    let (result, _) = converge(422, vec![], vec![desired(80)]).await;
    assert_eq!(result.applied[0].outcome, Outcome::Refused("no such port".to_owned()));
    assert!(result.refusal.is_some());
}

#[tokio::test]
async fn a_status_is_written_only_if_it_says_something_new() {
    let (client, journal) = client(200);
    let writer = StatusWriter::new(client, stores(vec![]), MANAGER);
    let mut live = applied();
    assert!(writer.publish(SERVICE, &live, &json!({"phase": "Up"})).await.unwrap());
    assert!(journal.lock().unwrap()[0].0.starts_with("PATCH /api/v1/namespaces/n/services/a/status?"));
    live["status"] = json!({"phase": "Up"});
    live["metadata"]["managedFields"] = json!([{"manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "subresource": "status",
        "fieldsV1": {"f:status": {"f:phase": {}}}}]);
    assert!(!writer.publish(SERVICE, &live, &json!({"phase": "Up"})).await.unwrap());
    assert_eq!(journal.lock().unwrap().len(), 1);
}
