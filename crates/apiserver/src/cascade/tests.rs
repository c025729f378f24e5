//! Cascades through the public functions of the server.

use std::sync::atomic::{AtomicBool, Ordering};

use apimachinery::object::FOREGROUND_FINALIZER;
use rstest::rstest;
use serde_json::json;

use std::time::Duration;

use tokio::time::sleep;

use super::*;
use crate::deletion::{DeleteOptions, PropagationPolicy};
use crate::ports::{Admission, AdmissionRequest, AdmissionResponse, ServerPorts};
use crate::resources::definition;
use crate::server::Server;
use crate::store::READ_COUNT;

/// Number of objects of a large deletion.
const COUNT: usize = 300;

/// Creates a ConfigMap and returns its reference for `ownerReferences`.
fn create(server: &Server, name: &str, owner: Option<&Value>) -> Value {
    let owners: Vec<&Value> = owner.into_iter().collect();
    let metadata = json!({"namespace": "default", "name": name, "ownerReferences": owners});
    let created = server.create("configmaps", json!({"metadata": metadata})).unwrap();
    let uid = &created["metadata"]["uid"];
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true})
}

/// Each dependent is followed by its own dependents, before the next dependent.
#[rstest]
#[case::owners_first(PropagationPolicy::Background, ["a", "a1", "a11", "a2", "a21"])]
#[case::dependents_first(PropagationPolicy::Foreground, ["a11", "a1", "a21", "a2", "a"])]
#[tokio::test]
async fn dependents_are_deleted_depth_first(#[case] propagation: PropagationPolicy, #[case] expected: [&str; 5]) {
    let server = Server::new(&ServerPorts::default());
    let a = create(&server, "a", None);
    let (a1, a2) = (create(&server, "a1", Some(&a)), create(&server, "a2", Some(&a)));
    create(&server, "a11", Some(&a1));
    create(&server, "a21", Some(&a2));
    let mut changes = server.subscribe();
    let resource = server.registry().by_name("configmaps").unwrap();
    let options = DeleteOptions { propagation, ..DeleteOptions::default() };
    server.delete_object(&resource, "default", "a", &options).unwrap();
    let mut removed = Vec::new();
    while removed.len() < expected.len() {
        let change = changes.next().await.unwrap();
        removed.extend(change.new.is_none().then_some(change.name));
    }
    assert_eq!(removed, expected);
}

#[test]
fn released_name_is_accepted_for_another_definition() {
    let server = Server::new(&ServerPorts::default());
    let definition = |plural: &str, short_name: &str| {
        json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": format!("Kind{plural}"), "shortNames": [short_name]},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    };
    server.create(definition::STORAGE, definition("first", "x")).unwrap();
    server.create(definition::STORAGE, definition("second", "x")).unwrap();
    let is_served = || server.registry().by_name("second.example.com").is_some();
    assert!(!is_served());
    let mut renamed = Value::clone(&server.get(definition::STORAGE, "", "first.example.com").unwrap());
    renamed["spec"]["names"]["shortNames"] = json!(["y"]);
    server.update(definition::STORAGE, renamed).unwrap();
    assert!(is_served());
}

/// Creates a definition of Widgets and returns the storage name of the resource.
fn define_widgets(server: &Server) -> &'static str {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let spec = json!({"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]});
    let definition = json!({"metadata": {"name": "widgets.example.org"}, "spec": spec});
    server.create(definition::STORAGE, definition).unwrap();
    "widgets.example.org"
}

/// A deletion reads each of the removed objects a few times, instead of all objects for each of them.
#[rstest]
#[case::namespace("namespaces", "full", PropagationPolicy::Background, 0)]
#[case::definition(definition::STORAGE, "widgets.example.org", PropagationPolicy::Background, 0)]
#[case::owner("configmaps", "owner", PropagationPolicy::Background, 0)]
#[case::owner_in_foreground("configmaps", "owner", PropagationPolicy::Foreground, 0)]
#[case::orphans("configmaps", "owner", PropagationPolicy::Orphan, COUNT)]
fn deletion_reads_each_object_a_few_times(
    #[case] resource: &str,
    #[case] name: &str,
    #[case] propagation: PropagationPolicy,
    #[case] remaining: usize,
) {
    let server = Server::new(&ServerPorts::default());
    let widgets = define_widgets(&server);
    server.create("namespaces", json!({"metadata": {"name": "full"}})).unwrap();
    let owner = create(&server, "owner", None);
    for number in 0..COUNT {
        let name = number.to_string();
        match resource {
            "namespaces" => {
                server.create("configmaps", json!({"metadata": {"namespace": "full", "name": name}})).unwrap();
            }
            "configmaps" => drop(create(&server, &name, Some(&owner))),
            _ => {
                let metadata = json!({"namespace": "default", "name": name});
                server.create(widgets, json!({"metadata": metadata})).unwrap();
            }
        }
    }
    let reads_before = READ_COUNT.get();
    let options = DeleteOptions { propagation, ..DeleteOptions::default() };
    let resource = server.registry().by_name(resource).unwrap();
    let namespace = if resource.namespaced { "default" } else { "" };
    server.delete_object(&resource, namespace, name, &options).unwrap();
    let reads = READ_COUNT.get() - reads_before;
    assert!(reads <= 30 * COUNT, "{reads} reads");
    assert!(server.get(&resource.storage, namespace, name).is_none());
    assert_eq!(server.list("configmaps").len() + server.list(widgets).len(), remaining + usize::from(name != "owner"));
}

/// Replaces the owners of a ConfigMap.
fn set_owners(server: &Server, name: &str, owners: &[&Value]) {
    let mut object = Value::clone(&server.get("configmaps", "default", name).unwrap());
    object["metadata"]["ownerReferences"] = json!(owners);
    server.update("configmaps", object).unwrap();
}

fn delete_in_foreground(server: &Server, name: &str) {
    let resource = server.registry().by_name("configmaps").unwrap();
    let options = DeleteOptions { propagation: PropagationPolicy::Foreground, ..DeleteOptions::default() };
    server.delete_object(&resource, "default", name, &options).unwrap();
}

fn names(server: &Server) -> Vec<String> {
    server.list("configmaps").iter().map(|object| object::name(object).to_owned()).collect()
}

/// Each object of the cycle blocks the deletion of the next one.
#[rstest]
#[case::owner_of_itself(1)]
#[case::two(2)]
#[case::many(300)]
fn cycle_of_owners_is_deleted_in_the_foreground(#[case] length: usize) {
    let server = Server::new(&ServerPorts::default());
    let owners: Vec<Value> = (0..length).map(|index| create(&server, &index.to_string(), None)).collect();
    for (index, owner) in owners.iter().enumerate() {
        set_owners(&server, &((index + 1) % length).to_string(), &[owner]);
    }
    delete_in_foreground(&server, "0");
    assert_eq!(names(&server), [""; 0]);
}

/// Namespaces and definitions wait for their dependents as well as for their contents.
#[rstest]
#[case::namespace("namespaces", "Namespace", "v1", "full")]
#[case::definition(definition::STORAGE, "CustomResourceDefinition", "apiextensions.k8s.io/v1", "widgets.example.org")]
fn owner_with_contents_is_deleted_in_the_foreground(
    #[case] resource: &str,
    #[case] kind: &str,
    #[case] api_version: &str,
    #[case] name: &str,
) {
    let server = Server::new(&ServerPorts::default());
    let widgets = define_widgets(&server);
    server.create("namespaces", json!({"metadata": {"name": "full"}})).unwrap();
    server.create(widgets, json!({"metadata": {"namespace": "full", "name": "w"}})).unwrap();
    let uid = server.get(resource, "", name).unwrap()["metadata"]["uid"].clone();
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": true});
    create(&server, "dependent", Some(&owner));
    let options = DeleteOptions { propagation: PropagationPolicy::Foreground, ..DeleteOptions::default() };
    let resource = server.registry().by_name(resource).unwrap();
    server.delete_object(&resource, "", name, &options).unwrap();
    assert_eq!(names(&server), [""; 0]);
    assert!(server.list(widgets).is_empty() && server.get(&resource.storage, "", name).is_none());
}

/// Whether an owner exists is known only once its kind is served.
#[test]
fn definition_that_becomes_served_shows_that_owners_are_absent() {
    let server = Server::new(&ServerPorts::default());
    let owner = json!({"apiVersion": "example.org/v1", "kind": "Widget", "name": "w", "uid": "absent"});
    create(&server, "dependent", Some(&owner));
    assert_eq!(names(&server), ["dependent"]);
    define_widgets(&server);
    assert_eq!(names(&server), [""; 0]);
}

/// The removal of a finalizer changes no field that the definition restricts.
#[test]
fn object_that_became_invalid_is_deleted_in_the_foreground() {
    let server = Server::new(&ServerPorts::default());
    let widgets = define_widgets(&server);
    server.create(widgets, json!({"metadata": {"namespace": "default", "name": "w"}, "spec": {"size": 1}})).unwrap();
    let mut definition = Value::clone(&server.get(definition::STORAGE, "", "widgets.example.org").unwrap());
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!({"spec": {"type": "string"}});
    server.update(definition::STORAGE, definition).unwrap();
    let options = DeleteOptions { propagation: PropagationPolicy::Foreground, ..DeleteOptions::default() };
    let resource = server.registry().by_name(widgets).unwrap();
    server.delete_object(&resource, "default", "w", &options).unwrap();
    assert!(server.list(widgets).is_empty());
}

/// Stores a terminating object without the consequences of its deletion, as after an interruption.
fn store_waiting(server: &Server, name: &str, owner: Option<&str>, finalizers: &[&str]) {
    let reference = |owner| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner, "blockOwnerDeletion": true});
    let owners: Vec<Value> = owner.map(reference).into_iter().collect();
    let metadata = json!({
        "namespace": "default", "name": name, "uid": name, "deletionTimestamp": "2026-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 0, "finalizers": finalizers, "ownerReferences": owners
    });
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let key = ObjectKey { resource: "configmaps".to_owned(), namespace: "default".to_owned(), name: name.to_owned() };
    server.store().commit(&key, None, Some(object)).unwrap();
}

#[test]
fn interrupted_deletion_of_a_cycle_is_resumed() {
    let server = Server::new(&ServerPorts::default());
    for index in 0..COUNT {
        let owner = ((index + 1) % COUNT).to_string();
        store_waiting(&server, &index.to_string(), Some(&owner), &[FOREGROUND_FINALIZER]);
    }
    server.resume();
    assert_eq!(names(&server), [""; 0]);
}

/// All objects wait for the first one, directly or through others.
#[test]
fn resumption_reads_each_waiting_object_a_few_times() {
    let server = Server::new(&ServerPorts::default());
    let name = |index: usize| format!("{index:04}");
    store_waiting(&server, &name(0), Some(&name(1)), &[FOREGROUND_FINALIZER, "example.com/wait"]);
    for index in 1..COUNT {
        let owner = Some(name(index + 1)).filter(|_| index + 1 < COUNT);
        store_waiting(&server, &name(index), owner.as_deref(), &[FOREGROUND_FINALIZER]);
    }
    let reads_before = READ_COUNT.get();
    server.resume();
    let reads = READ_COUNT.get() - reads_before;
    assert!(reads <= 10 * COUNT, "{reads} reads");
    assert_eq!(names(&server).len(), COUNT);
    release(&server, &name(0));
    assert_eq!(names(&server), [""; 0]);
}

/// An object that has no dependents is removed at once, instead of being marked first.
#[test]
fn dependent_without_dependents_is_removed_in_one_write() {
    let server = Server::new(&ServerPorts::default());
    let owner = create(&server, "owner", None);
    create(&server, "dependent", Some(&owner));
    let revision = server.store().revision();
    delete_in_foreground(&server, "owner");
    assert_eq!(names(&server), [""; 0]);
    assert_eq!(server.store().revision() - revision, 3, "the owner is marked, and both are removed");
}

#[test]
fn dependent_of_another_owner_does_not_block_a_deletion() {
    let server = Server::new(&ServerPorts::default());
    let (a, b) = (create(&server, "a", None), create(&server, "b", None));
    create(&server, "c", None);
    set_owners(&server, "c", &[&a, &b]);
    delete_in_foreground(&server, "a");
    assert_eq!(names(&server), ["b", "c"]);
    let dependent = server.get("configmaps", "default", "c").unwrap();
    assert_eq!(dependent["metadata"]["ownerReferences"], json!([b]));
    delete_in_foreground(&server, "b");
    assert_eq!(names(&server), [""; 0]);
}

/// Creates a dependent that exists until [`release`] is called.
fn create_with_finalizer(server: &Server, name: &str, owner: &Value) {
    create(server, name, Some(owner));
    let mut object = Value::clone(&server.get("configmaps", "default", name).unwrap());
    object["metadata"]["finalizers"] = json!(["example.com/wait"]);
    server.update("configmaps", object).unwrap();
}

fn release(server: &Server, name: &str) {
    let mut object = Value::clone(&server.get("configmaps", "default", name).unwrap());
    object["metadata"]["finalizers"] = json!([]);
    server.update("configmaps", object).unwrap();
}

/// A dependent of terminating owners is deleted as soon as it is created.
#[test]
fn dependent_of_two_terminating_owners_is_deleted() {
    let server = Server::new(&ServerPorts::default());
    let owners = ["a", "b"].map(|name| create(&server, name, None));
    for (name, owner) in ["a1", "b1"].iter().zip(&owners) {
        create_with_finalizer(&server, name, owner);
    }
    delete_in_foreground(&server, "a");
    delete_in_foreground(&server, "b");
    create(&server, "c", None);
    set_owners(&server, "c", &[&owners[0], &owners[1]]);
    assert_eq!(names(&server), ["a", "a1", "b", "b1"]);
    ["a1", "b1"].iter().for_each(|name| release(&server, name));
    assert_eq!(names(&server), [""; 0]);
}

/// An object that waits for its own dependents still blocks an owner outside of a cycle.
#[test]
fn dependents_are_removed_first_after_a_restart() {
    let server = Server::new(&ServerPorts::default());
    let a = create(&server, "a", None);
    let b = create(&server, "b", Some(&a));
    create_with_finalizer(&server, "c", &b);
    delete_in_foreground(&server, "a");
    server.resume();
    assert_eq!(names(&server), ["a", "b", "c"]);
    release(&server, "c");
    assert_eq!(names(&server), [""; 0]);
}

/// The depth of a chain of owners is limited by memory, not by the stack.
#[test]
fn a_long_chain_of_owners_is_deleted() {
    const LENGTH: usize = 5_000;
    let server = Server::new(&ServerPorts::default());
    let mut owner = create(&server, "0", None);
    for index in 1..LENGTH {
        owner = create(&server, &index.to_string(), Some(&owner));
    }
    assert_eq!(server.list("configmaps").len(), LENGTH);
    server.delete("configmaps", "default", "0", None).unwrap();
    assert_eq!(server.list("configmaps").len(), 0);
}

/// Panics for objects whose names start with `broken`, except when they are created.
struct BrokenAdmission {
    is_broken: AtomicBool,
}

impl Admission for BrokenAdmission {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        let is_broken = self.is_broken.load(Ordering::Relaxed);
        let matches = request.operation != "CREATE" && request.name.starts_with("broken");
        assert!(!(is_broken && matches), "broken admission");
        AdmissionResponse { allowed: true, ..AdmissionResponse::default() }
    }
}

#[rstest]
#[case::owner("configmaps", "default", "owner")]
#[case::namespace("namespaces", "", "full")]
fn object_that_panics_does_not_stop_the_others(#[case] resource: &str, #[case] namespace: &str, #[case] name: &str) {
    let admission = Arc::new(BrokenAdmission { is_broken: AtomicBool::new(true) });
    let ports = ServerPorts { admission: Arc::<BrokenAdmission>::clone(&admission), ..ServerPorts::default() };
    let server = Server::new(&ports);
    server.create("namespaces", json!({"metadata": {"name": "full"}})).unwrap();
    let owner = create(&server, "owner", None);
    for dependent in ["a", "broken", "c"] {
        create(&server, dependent, Some(&owner));
        server.create("configmaps", json!({"metadata": {"namespace": "full", "name": dependent}})).unwrap();
    }
    server.delete(resource, namespace, name, None).unwrap();
    let contents = if namespace.is_empty() { name } else { namespace };
    let names = |server: &Server| -> Vec<String> {
        let objects = server.list_namespace("configmaps", contents);
        objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&server), ["broken"]);
    let events = server.list("events");
    let is_reported =
        |event: &Arc<Value>| event["reason"] == "InternalError" && event["involvedObject"]["name"] == "broken";
    assert!(contents == "full" || events.iter().any(is_reported), "no Event in a terminating namespace");
    server.resume();
    assert_eq!(names(&server), ["broken"], "a start survives the object");
    admission.is_broken.store(false, Ordering::Relaxed);
    server.resume();
    assert!(names(&server).is_empty());
    assert!(server.get(resource, namespace, name).is_none());
}

/// The delays of the retries are 5 s and 10 s.
#[tokio::test(start_paused = true)]
async fn step_that_panicked_is_repeated_with_increasing_delays() {
    let admission = Arc::new(BrokenAdmission { is_broken: AtomicBool::new(true) });
    let ports = ServerPorts { admission: Arc::<BrokenAdmission>::clone(&admission), ..ServerPorts::default() };
    let (server, stop) = (Server::new(&ports), CancellationToken::new());
    let (cloned_server, cloned_stop) = (server.clone(), stop.clone());
    let retries = tokio::spawn(async move { cloned_server.retry_deletions(cloned_stop).await });
    let owner = create(&server, "owner", None);
    create(&server, "broken", Some(&owner));
    let remains = || server.get("configmaps", "default", "broken").is_some();
    for round in 0..2 {
        admission.is_broken.store(true, Ordering::Relaxed);
        if round == 1 {
            let owner = create(&server, "owner", None);
            create(&server, "broken", Some(&owner));
        }
        server.delete("configmaps", "default", "owner", None).unwrap();
        sleep(Duration::from_millis(5_100)).await;
        assert!(remains(), "the first retry panics");
        admission.is_broken.store(false, Ordering::Relaxed);
        sleep(Duration::from_millis(9_800)).await;
        assert!(remains(), "the second retry waits longer");
        sleep(Duration::from_millis(200)).await;
        assert!(!remains());
    }
    stop.cancel();
    retries.await.unwrap();
}

/// Waits for another task of the runtime during each deletion of an object whose name starts with `dependent`.
struct WaitingAdmission(tokio::runtime::Handle);

impl Admission for WaitingAdmission {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        if request.operation == "DELETE" && request.name.starts_with("dependent") {
            let (sender, receiver) = std::sync::mpsc::channel();
            self.0.spawn(async move { sender.send(()) });
            // Without another thread for the tasks of the worker, nothing is received.
            receiver.recv_timeout(Duration::from_secs(20)).expect("the async worker is blocked");
        }
        AdmissionResponse { allowed: true, ..AdmissionResponse::default() }
    }
}

/// A controller of this process deletes an owner on the only async worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn long_cascade_of_a_controller_leaves_the_async_worker() {
    let admission = Arc::new(WaitingAdmission(tokio::runtime::Handle::current()));
    let server = Server::new(&ServerPorts { admission, ..ServerPorts::default() });
    let owner = create(&server, "owner", None);
    for index in 0..10 {
        create(&server, &format!("a{index}"), Some(&owner));
    }
    create(&server, "dependent", Some(&owner));
    let controller = server.clone();
    tokio::spawn(async move { controller.delete("configmaps", "default", "owner", None) }).await.unwrap().unwrap();
    assert!(server.list("configmaps").is_empty());
}
