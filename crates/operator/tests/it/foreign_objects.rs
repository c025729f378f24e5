//! The operator never changes or deletes objects of a user who puts them in place of its own right before it writes these.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use embedded::Server;
use http_body_util::BodyExt;
use kube::client::Body;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::accelerator_classes::{CLASSES, options_with_known_classes, user_class};
use crate::kueue::{FLAVORS, flavor, flavor_crd};
use crate::ownership::as_earlier_release;
use crate::simulated_cluster::{role, service_with_roles};
use crate::test_cluster::{
    CATALOG, FUSIONINFER_SERVICES, OME_SERVICES, PausedClock, TestCluster, minimal_service, server_with_crds,
};
use crate::workload_replacement::{cluster_with, small_engine};

const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const BASE_SET: &str = include_str!("../../../decide/src/inventory/base_set_seed.yaml");

/// Resource, namespace and name of an object.
type Target = (String, String, String);

/// The copy of an object that the user creates.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Copy {
    /// The copy replaces the object, and has the same content.
    Exact,
    /// The copy replaces the object, and has no owner reference and no annotations.
    Detached,
    /// The copy replaces the object, and has an additional label.
    Labeled,
    /// The copy has another name and the field managers of the object, which remains.
    OtherName,
    /// The same in another namespace, without owner reference, because Kubernetes deletes objects whose owner does not exist in
    /// their namespace.
    OtherNamespace,
    /// The copy has another name and the field managers of the object as an earlier release applied it, without identity.
    EarlierRelease,
}

/// A user who copies the objects of some write requests.
struct User {
    server: Server,
    /// Numbers of the write requests whose objects are copied.
    copied_writes: BTreeMap<usize, Copy>,
    writes: usize,
    /// The user's objects without what the API server and status writes change.
    objects: BTreeMap<Target, Value>,
}

// === impl User ===

impl User {
    /// Copies the object of a write request, or creates it if it does not exist.
    fn before_write(&mut self, path: &str, body: &Value) {
        let number = self.writes;
        self.writes += 1;
        let (Some(copy), Some(target)) = (self.copied_writes.get(&number), target(path)) else { return };
        let (resource, namespace, name) = &target;
        if name.ends_with("-copy") {
            return;
        }
        let live = self.server.get(resource, namespace, name);
        match (copy, &live) {
            (Copy::OtherName, Some(live)) => return self.copy_with_managers(resource, namespace, live),
            (Copy::EarlierRelease, Some(live)) => {
                return self.copy_with_managers(resource, namespace, &as_earlier_release(live));
            }
            (Copy::OtherNamespace, Some(live)) if !namespace.is_empty() => {
                return self.copy_with_managers(resource, "copies", live);
            }
            (Copy::OtherName | Copy::OtherNamespace | Copy::EarlierRelease, _) => return,
            (Copy::Exact | Copy::Detached | Copy::Labeled, _) => {}
        }
        let source = live.as_deref().unwrap_or(body);
        let Some(object) = copied(source, *copy) else { return };
        if live.is_some() {
            self.server.delete(resource, namespace, name, None).unwrap();
        }
        let created = self.server.create(resource, object).unwrap();
        self.objects.insert(target, user_fields(&created));
    }

    /// Creates a copy of `live`, and restores its field managers with an update, because the creation makes the user the
    /// manager of all fields.
    fn copy_with_managers(&mut self, resource: &str, namespace: &str, live: &Value) {
        let copy_name = format!("{}-copy", live["metadata"]["name"].as_str().unwrap());
        let target = (resource.to_owned(), namespace.to_owned(), copy_name.clone());
        if self.server.get(resource, namespace, &copy_name).is_some() {
            return;
        }
        let mut object = copied(live, Copy::Exact).unwrap();
        object["metadata"]["name"] = json!(copy_name);
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        if namespace == "copies" {
            object["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        }
        if resource == "services" {
            ["clusterIP", "clusterIPs"]
                .iter()
                .for_each(|field| drop(object["spec"].as_object_mut().unwrap().remove(*field)));
        }
        let mut created = (*self.server.create(resource, object).unwrap()).clone();
        created["metadata"]["managedFields"] = live["metadata"]["managedFields"].clone();
        let updated = self.server.update(resource, created).unwrap();
        self.objects.insert(target, user_fields(&updated));
    }

    /// Returns the objects that someone else changed or deleted.
    fn violations(&self) -> Vec<String> {
        let is_intact = |(resource, namespace, name): &Target, object: &Value| {
            self.server.get(resource, namespace, name).is_some_and(|live| user_fields(&live) == *object)
        };
        let violated = self.objects.iter().filter(|(target, object)| !is_intact(target, object));
        violated
            .map(|(target, object)| {
                format!("{target:?} was {object}, is {:?}", self.server.get(&target.0, &target.1, &target.2))
            })
            .collect()
    }
}

/// Returns the copy of an object that a user creates; `None` for a request without object, such as the deletion of a missing
/// one.
fn copied(source: &Value, copy: Copy) -> Option<Value> {
    let mut object = source.clone();
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"] {
        metadata.remove(field);
    }
    match copy {
        Copy::Exact | Copy::OtherName | Copy::OtherNamespace | Copy::EarlierRelease => {}
        Copy::Detached => ["ownerReferences", "annotations"].iter().for_each(|field| drop(metadata.remove(*field))),
        Copy::Labeled => metadata.entry("labels").or_insert_with(|| json!({}))["example.com/mine"] = json!("yes"),
    }
    object.as_object_mut()?.remove("status");
    Some(object)
}

fn user_fields(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    ["resourceVersion", "managedFields"].iter().for_each(|field| drop(metadata.remove(*field)));
    object.as_object_mut().unwrap().remove("status");
    object
}

/// Returns the object that a request path names; `None` for subresources and lists.
fn target(path: &str) -> Option<Target> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, rest) = match segments.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let (namespace, plural, name) = match rest {
        ["namespaces", namespace, plural, name] => (*namespace, *plural, *name),
        [plural, name] => ("", *plural, *name),
        _ => return None,
    };
    let resource = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    Some((resource, namespace.to_owned(), name.to_owned()))
}

/// Returns a client whose writes the user precedes.
fn client(user: &Arc<Mutex<User>>) -> kube::Client {
    let router = embedded::router(&user.lock().unwrap().server);
    let user = Arc::clone(user);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (router, user) = (router.clone(), Arc::clone(&user));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            if [http::Method::PATCH, http::Method::DELETE].contains(&head.method) {
                let object = serde_json::from_slice(&body).unwrap_or_default();
                user.lock().unwrap().before_write(head.uri.path(), &object);
            }
            tower::ServiceExt::oneshot(router, http::Request::from_parts(head, axum::body::Body::from(body))).await
        }
    });
    kube::Client::new(service, "default")
}

fn server() -> Server {
    let server = server_with_crds([api::crds(), api::integrations::crds()].concat());
    server.create(CRDS, flavor_crd(&["v1beta1", "v1beta2"])).unwrap();
    for namespace in ["ome-system", "copies"] {
        server.create("namespaces", json!({"metadata": {"name": namespace}})).unwrap();
    }
    server
}

fn update(server: &Server, resource: &str, namespace: &str, name: &str, update: impl Fn(&mut Value)) {
    let mut object = (*server.get(resource, namespace, name).unwrap()).clone();
    update(&mut object);
    server.update(resource, object).unwrap();
}

/// Creates what the operator writes objects for, and then changes and removes it.
async fn run(copied_writes: BTreeMap<usize, Copy>) -> (Vec<String>, usize) {
    let test_cluster = TestCluster::without_operator(server());
    let server = test_cluster.server.clone();
    let user = User { server: server.clone(), copied_writes, writes: 0, objects: BTreeMap::new() };
    let user = Arc::new(Mutex::new(user));
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let options = operator::Options { clock: Arc::new(PausedClock::start()), ..options_with_known_classes() };
    tokio::spawn(operator::run(client(&user), options, stop));

    CATALOG.iter().skip(1).for_each(|(resource, text)| test_cluster.create_all(resource, text));
    let base_set = json!({"metadata": {"namespace": "ome-system", "name": "accelerator-classes-base"},
        "data": {"accelerator-classes.yaml": BASE_SET}});
    server.create("configmaps", base_set).unwrap();
    server.create("nodes", crate::test_cluster::node()).unwrap();
    server.create(FLAVORS, flavor("pool", json!({"nvidia.com/gpu.product": "A100-SXM4-40GB"}))).unwrap();
    let mut linked = user_class("linked", json!({"gpu": "l4"}));
    linked["spec"]["integration"] = json!({"kueueResourceFlavor": "linked-flavor"});
    server.create(CLASSES, linked).unwrap();
    server.create(OME_SERVICES, minimal_service("chat", "llama-3-2-3b-instruct")).unwrap();
    let router = json!({"name": "entry", "componentType": "router", "strategy": "prefix-cache"});
    let roles = || vec![role("w", "worker", 2, 1, 1), router.clone()];
    server.create(FUSIONINFER_SERVICES, service_with_roles("roles", roles())).unwrap();
    test_cluster.wait_until_idle().await;

    update(&server, FUSIONINFER_SERVICES, "default", "roles", |service| {
        service["spec"]["roles"].as_array_mut().unwrap().truncate(1);
        service["spec"]["roles"][0]["replicas"] = json!(1);
    });
    update(&server, OME_SERVICES, "default", "chat", |service| {
        service["spec"]["engine"] = json!({"runner": {"image": "example.com/engine:2"}});
    });
    server.delete(FLAVORS, "", "pool", None).ok();
    server.delete(CLASSES, "", "linked", None).ok();
    server.delete("configmaps", "ome-system", "accelerator-classes-base", None).unwrap();
    test_cluster.wait_until_idle().await;
    let user = user.lock().unwrap();
    (user.violations(), user.writes)
}

fn run_paused(copied_writes: BTreeMap<usize, Copy>) -> (Vec<String>, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(run(copied_writes))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replaced_objects_are_never_changed_or_deleted(
        copied in prop::collection::btree_map(
            0..90_usize,
            prop::sample::select(vec![
                Copy::Exact, Copy::Detached, Copy::Labeled, Copy::OtherName, Copy::OtherNamespace, Copy::EarlierRelease,
            ]),
            1..8,
        )
    ) {
        let (violations, _) = run_paused(copied);
        prop_assert!(violations.is_empty(), "{violations:#?}");
    }
}

/// Every write of the operator is replaced once; the second attempt must notice the user's object.
#[test]
fn every_written_object_may_be_replaced() {
    let (violations, writes) = run_paused(BTreeMap::new());
    assert_eq!(violations, [""; 0]);
    assert!(writes >= 50, "the scenario is large enough for the generated numbers: {writes}");
    let (violations, _) = run_paused((0..2 * writes).map(|number| (number, Copy::Exact)).collect());
    assert_eq!(violations, [""; 0]);
}

/// Every object that the operator updates or deletes has a copy with its field managers; the operator must not delete it.
#[rstest]
fn every_written_object_may_have_copies(
    #[values(Copy::OtherName, Copy::OtherNamespace, Copy::EarlierRelease)] copy: Copy,
) {
    let (violations, _) = run_paused((0..400).map(|number| (number, copy)).collect());
    assert_eq!(violations, [""; 0]);
}

/// Services of both kinds have a BackendPool of their name.
#[tokio::test(start_paused = true)]
async fn blocked_service_continues_once_the_owner_of_the_object_is_deleted() {
    let cluster = cluster_with(24, small_engine("small:1")).await;
    let blocked = service_with_roles("chat", vec![role("w", "worker", 1, 1, 8)]);
    cluster.server.create(FUSIONINFER_SERVICES, blocked).unwrap();
    cluster.wait_for_condition("chat", "Ready", "ObjectNotOurs").await;
    cluster.test_cluster.wait_until_idle().await;
    cluster.server.delete(OME_SERVICES, "default", "chat", None).unwrap();
    cluster.wait_until_ready("chat").await;
}
