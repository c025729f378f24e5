//! The applier never changes or deletes an object of another client, whatever objects exist beforehand, whatever a user does
//! between two requests, and however outdated the caches are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use cluster::{Applier, Error, IDENTITY_ANNOTATION, Kind, Stores, is_managed_by};
use embedded::Server;
use kube::runtime::watcher::Event;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::test_cluster::server_with_crds;

const MANAGER: &str = operator::FIELD_MANAGER;
const SERVICE: Kind = Kind::namespaced("", "v1", "Service", "services");
/// A kind of which only the objects with a label are cached.
const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps").with_label_selector("app=ours");
/// A kind whose objects have no owner.
const CLASS: Kind = operator::kinds::ACCELERATOR_CLASS;
const MANAGED_KINDS: &[Kind] = &[SERVICE, CONFIG_MAP];
const KINDS: [Kind; 3] = [SERVICE, CONFIG_MAP, CLASS];
const NAMES: [&str; 2] = ["a", "b"];
/// Names of copies of our objects: desired ones, one that is not desired, and one in another namespace.
const COPY_NAMES: [&str; 4] = ["a", "b", "copy", COPY_IN_OTHER_NAMESPACE];
/// Names of copies that are not desired. An object of an earlier release with a desired name is adopted.
const OBSOLETE_COPY_NAMES: [&str; 2] = ["copy", COPY_IN_OTHER_NAMESPACE];
const COPY_IN_OTHER_NAMESPACE: &str = "copy-in-other-namespace";

/// Kind and name of an object.
type Target = (Kind, &'static str);

/// What a user creates.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// An object with other content.
    Different,
    /// A copy of our object without owner reference.
    Copy,
    /// A copy of our object with owner reference.
    CopyWithOwner,
    /// A copy of our object that another controller owns.
    OtherController,
}

/// What a user does with one object.
#[derive(Clone, Copy, Debug)]
enum UserAction {
    Create(Shape),
    Edit,
    Delete,
    Replace(Shape),
    /// Removes owner references and field managers.
    Detach,
    /// Makes another object the controller.
    ChangeController,
    /// Copies our object to another name with its field managers, annotations, labels and owner references.
    CopyTo(&'static str),
    /// Does the same, but without annotations.
    CopyWithoutAnnotationsTo(&'static str),
    /// Does the same with our object as an earlier release applied it, which recorded no identity.
    CopyOfEarlierReleaseTo(&'static str),
}

/// User actions before the request with this number.
type Interference = Vec<(usize, (Target, UserAction))>;

/// One step of a test.
#[derive(Clone, Debug)]
enum Step {
    User(Target, UserAction),
    /// Updates the cache of a kind.
    Sync(Kind),
    /// Copies the objects of all kinds with this name, and updates the caches.
    Copy(&'static str, UserAction),
    /// Applies the desired owned objects, and prunes the others.
    Converge {
        desired: BTreeSet<(usize, usize)>,
        variant: u8,
        interference: Interference,
    },
    /// Applies the desired classes, and deletes the others.
    ApplyClasses {
        desired: BTreeSet<usize>,
        variant: u8,
        interference: Interference,
    },
}

/// The API server, and the last version of every object that belongs to a user.
struct World {
    server: Server,
    foreign: BTreeMap<Target, Arc<Value>>,
    violations: Vec<String>,
    /// User actions before the next requests, and the number of requests so far.
    interference: Interference,
    requests: usize,
}

fn resource(kind: Kind) -> String {
    kind.group_resource()
}

fn namespace((kind, name): Target) -> &'static str {
    match name {
        _ if !kind.namespaced => "",
        COPY_IN_OTHER_NAMESPACE => "other",
        _ => "default",
    }
}

/// Returns the desired object.
fn desired(kind: Kind, name: &str, variant: u8) -> Value {
    let mut object = json!({"apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": {"name": name, "labels": {"app": "ours"}, "annotations": {"made-from": "test"}}});
    if kind.namespaced {
        object["metadata"]["namespace"] = json!("default");
    }
    match kind.kind {
        "Service" => {
            object["spec"] = json!({"selector": {"v": variant.to_string()}, "ports": [{"name": "p", "port": 80}]});
        }
        "ConfigMap" => object["data"] = json!({"v": variant.to_string()}),
        _ => object["spec"] = json!({"vendor": format!("ours-{variant}"), "discovery": {}, "capabilities": {}}),
    }
    object
}

/// Returns whether a class has the content that we generate.
fn is_generated(class: &Value) -> bool {
    let is_unmodified = class["spec"]["vendor"].as_str().is_some_and(|vendor| vendor.starts_with("ours-"));
    class["metadata"]["annotations"]["made-from"] == "test" && is_unmodified
}

fn owner(server: &Server, name: &str) -> Value {
    let mut owner = (*server.get("configmaps", "default", name).unwrap()).clone();
    owner["apiVersion"] = json!("v1");
    owner["kind"] = json!("ConfigMap");
    owner
}

fn controller_reference(server: &Server, name: &str) -> Value {
    let uid = &server.get("configmaps", "default", name).unwrap()["metadata"]["uid"];
    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": true}])
}

/// Returns the object as an earlier release applied it: without identity, also in the field managers.
pub(crate) fn as_earlier_release(live: &Value) -> Value {
    let mut object = live.clone();
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(IDENTITY_ANNOTATION);
    }
    for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        if let Some(fields) = entry["fieldsV1"]["f:metadata"]["f:annotations"].as_object_mut() {
            fields.remove(&format!("f:{IDENTITY_ANNOTATION}"));
        }
    }
    object
}

// === impl World ===

impl World {
    fn new() -> World {
        let is_class = |definition: &Value| definition["metadata"]["name"] == CLASS.group_resource().as_str();
        let server = server_with_crds(api::crds().into_iter().filter(is_class).collect());
        server.create("namespaces", json!({"metadata": {"name": "other"}})).unwrap();
        for name in ["owner", "other"] {
            let object = json!({"metadata": {"namespace": "default", "name": name}});
            server.create("configmaps", object).unwrap();
        }
        World { server, foreign: BTreeMap::new(), violations: Vec::new(), interference: Vec::new(), requests: 0 }
    }

    fn live(&self, target: Target) -> Option<Arc<Value>> {
        self.server.get(&resource(target.0), namespace(target), target.1)
    }

    /// Records every user's object that was changed or deleted by someone else.
    fn check(&mut self) {
        for (target, version) in &self.foreign {
            let live = self.live(*target);
            if live.as_ref() != Some(version) {
                self.violations.push(format!("{} {} was {version}, is {live:?}", target.0.kind, target.1));
            }
        }
    }

    fn act(&mut self, target: Target, action: UserAction) {
        self.check();
        let live = self.live(target);
        match (action, live) {
            (UserAction::Create(shape), None) => self.create(target, shape),
            (UserAction::Replace(shape), live) => {
                if live.is_some() {
                    self.delete(target);
                }
                self.create(target, shape);
            }
            (UserAction::Delete, Some(_)) => self.delete(target),
            (UserAction::Edit, Some(live)) => {
                let was_foreign = self.foreign.contains_key(&target);
                let field = match target.0.kind {
                    "Service" => "/spec/selector/v",
                    "ConfigMap" => "/data/v",
                    _ => "/spec/vendor",
                };
                self.update(target, &live, |object| *object.pointer_mut(field).unwrap() = json!("edited"));
                // Drift of an owned object is reverted, but an edited class belongs to the user.
                if !was_foreign && target.0 != CLASS {
                    self.foreign.remove(&target);
                }
            }
            (UserAction::Detach, Some(live)) => self.update(target, &live, |object| {
                object["metadata"]["ownerReferences"] = json!([]);
                object["metadata"]["managedFields"] = json!([{}]);
            }),
            (UserAction::ChangeController, Some(live)) if target.0 != CLASS => {
                let references = controller_reference(&self.server, "other");
                self.update(target, &live, |object| object["metadata"]["ownerReferences"] = references.clone());
            }
            (UserAction::CopyTo(name), Some(live)) => self.copy(target, name, (*live).clone()),
            (UserAction::CopyWithoutAnnotationsTo(name), Some(live)) => {
                let mut source = (*live).clone();
                source["metadata"].as_object_mut().unwrap().remove("annotations");
                self.copy(target, name, source);
            }
            (UserAction::CopyOfEarlierReleaseTo(name), Some(live)) => {
                self.copy(target, name, as_earlier_release(&live));
            }
            _ => {}
        }
    }

    /// Copies `source`, the content of our object `target`, if no object has the name. Like a controller that copies objects,
    /// the user creates the copy and updates it later. The creation makes the user the manager of all fields, but the update
    /// restores the managers of the source.
    fn copy(&mut self, target: Target, name: &'static str, mut source: Value) {
        let copy = (target.0, name);
        if self.foreign.contains_key(&target) || self.live(copy).is_some() {
            return;
        }
        let metadata = source["metadata"].as_object_mut().unwrap();
        ["uid", "resourceVersion", "creationTimestamp"].iter().for_each(|field| drop(metadata.remove(*field)));
        metadata["name"] = json!(name);
        if target.0.namespaced {
            metadata["namespace"] = json!(namespace(copy));
        }
        // Kubernetes deletes an object whose owner does not exist in its namespace.
        if name == COPY_IN_OTHER_NAMESPACE {
            metadata.remove("ownerReferences");
        }
        if let Some(spec) = source["spec"].as_object_mut() {
            ["clusterIP", "clusterIPs"].iter().for_each(|field| drop(spec.remove(*field)));
        }
        let managers = source["metadata"]["managedFields"].clone();
        let created = self.server.create(&resource(target.0), source).unwrap();
        self.update(copy, &created, |object| object["metadata"]["managedFields"] = managers.clone());
        assert_eq!(self.live(copy).unwrap()["metadata"]["managedFields"], managers);
    }

    fn create(&mut self, (kind, name): Target, shape: Shape) {
        let mut object = desired(kind, name, 0);
        match shape {
            Shape::Different => {
                object["metadata"]["labels"] = json!({"app": "theirs"});
                object["metadata"]["annotations"] = json!({});
                match kind.kind {
                    "Service" => object["spec"] = json!({"selector": {"v": "theirs"}, "ports": [{"port": 8080}]}),
                    "ConfigMap" => object["data"] = json!({"v": "theirs"}),
                    _ => object["spec"]["vendor"] = json!("theirs"),
                }
            }
            Shape::CopyWithOwner if kind != CLASS => {
                object["metadata"]["ownerReferences"] = controller_reference(&self.server, "owner");
            }
            Shape::OtherController if kind != CLASS => {
                object["metadata"]["ownerReferences"] = controller_reference(&self.server, "other");
            }
            Shape::Copy | Shape::CopyWithOwner | Shape::OtherController => {}
        }
        let created = self.server.create(&resource(kind), object).unwrap();
        self.foreign.insert((kind, name), created);
    }

    fn delete(&mut self, target: Target) {
        self.server.delete(&resource(target.0), namespace(target), target.1, None).unwrap();
        self.foreign.remove(&target);
    }

    fn update(&mut self, target: Target, live: &Value, update: impl Fn(&mut Value)) {
        let mut object = live.clone();
        update(&mut object);
        self.server.update(&resource(target.0), object).unwrap();
        self.foreign.insert(target, self.live(target).unwrap());
    }

    /// Performs the user actions that precede the next request.
    fn before_request(&mut self) {
        let number = self.requests;
        self.requests += 1;
        let due: Vec<_> = self.interference.iter().filter(|(at, _)| *at == number).map(|(_, act)| *act).collect();
        due.into_iter().for_each(|(target, action)| self.act(target, action));
    }

    fn prepare(&mut self, interference: &Interference) {
        self.interference.clone_from(interference);
        self.requests = 0;
    }
}

/// Returns a client whose requests the user's actions precede.
fn client(world: &Arc<Mutex<World>>) -> kube::Client {
    let router = embedded::router(&world.lock().unwrap().server);
    let world = Arc::clone(world);
    let service = tower::util::MapRequest::new(router, move |request: http::Request<kube::client::Body>| {
        world.lock().unwrap().before_request();
        request.map(axum::body::Body::new)
    });
    kube::Client::new(service, "default")
}

fn sync(stores: &Stores, server: &Server, kind: Kind) {
    let _ = stores.apply_event(kind, Event::Init);
    for object in server.list(&resource(kind)) {
        if kind.label_selector.is_empty() || object["metadata"]["labels"]["app"] == "ours" {
            let _ = stores.apply_event(kind, Event::InitApply((*object).clone()));
        }
    }
    let _ = stores.apply_event(kind, Event::InitDone);
}

async fn apply_classes(applier: &Applier, stores: &Stores, desired_names: &BTreeSet<usize>, variant: u8) {
    let is_desired = |name: &str| desired_names.iter().any(|index| NAMES[*index] == name);
    for index in desired_names {
        let class = desired(CLASS, NAMES[*index], variant);
        ignore_conflict(applier.apply_unowned(CLASS, &class, is_generated).await.map(drop));
    }
    for class in stores.list(CLASS) {
        if is_generated(&class) && !is_desired(class["metadata"]["name"].as_str().unwrap()) {
            ignore_conflict(applier.delete_unowned(CLASS, &class).await);
        }
    }
}

fn ignore_conflict(result: Result<(), Error>) {
    assert!(result.is_ok() || result.as_ref().is_err_and(Error::is_conflict), "{result:?}");
}

async fn converge(applier: &Applier, owner: &Value, desired_objects: &BTreeSet<(usize, usize)>, variant: u8) {
    let objects = desired_objects.iter().map(|(kind, name)| desired(MANAGED_KINDS[*kind], NAMES[*name], variant));
    ignore_conflict(applier.converge(CONFIG_MAP, owner, objects.collect()).await.map(drop));
}

/// Runs the steps, and then checks that the applier still works once the user's objects are gone.
async fn run(steps: Vec<Step>) -> Vec<String> {
    let world = Arc::new(Mutex::new(World::new()));
    let server = world.lock().unwrap().server.clone();
    let stores = Stores::new(MANAGER);
    KINDS.iter().for_each(|kind| sync(&stores, &server, *kind));
    let applier = Applier::new(client(&world), stores.clone(), MANAGED_KINDS, MANAGER);
    let owner = owner(&server, "owner");
    for step in steps {
        match step {
            Step::User(target, action) => world.lock().unwrap().act(target, action),
            Step::Sync(kind) => sync(&stores, &server, kind),
            Step::Copy(name, action) => {
                KINDS.iter().for_each(|kind| world.lock().unwrap().act((*kind, name), action));
                KINDS.iter().for_each(|kind| sync(&stores, &server, *kind));
            }
            Step::Converge { desired, variant, interference } => {
                world.lock().unwrap().prepare(&interference);
                converge(&applier, &owner, &desired, variant).await;
            }
            Step::ApplyClasses { desired, variant, interference } => {
                world.lock().unwrap().prepare(&interference);
                apply_classes(&applier, &stores, &desired, variant).await;
            }
        }
        world.lock().unwrap().check();
    }
    let violations = std::mem::take(&mut world.lock().unwrap().violations);
    if violations.is_empty() {
        check_liveness(&world, &stores, &applier, &owner).await;
    }
    violations
}

/// Without objects of users, all desired objects are created, and then all are deleted.
async fn check_liveness(world: &Arc<Mutex<World>>, stores: &Stores, applier: &Applier, owner: &Value) {
    let server = world.lock().unwrap().server.clone();
    {
        let mut world = world.lock().unwrap();
        world.prepare(&Vec::new());
        let foreign: Vec<Target> = world.foreign.keys().copied().collect();
        foreign.into_iter().for_each(|target| world.delete(target));
    }
    KINDS.iter().for_each(|kind| sync(stores, &server, *kind));
    let all_owned: BTreeSet<_> =
        (0..MANAGED_KINDS.len()).flat_map(|kind| (0..NAMES.len()).map(move |name| (kind, name))).collect();
    converge(applier, owner, &all_owned, 1).await;
    apply_classes(applier, stores, &(0..NAMES.len()).collect(), 1).await;
    let live = || {
        KINDS.into_iter().flat_map(|kind| NAMES.map(|name| server.get(&resource(kind), namespace((kind, name)), name)))
    };
    assert!(live().all(|object| object.is_some_and(|object| is_managed_by(&object, MANAGER))));
    KINDS.iter().for_each(|kind| sync(stores, &server, *kind));
    converge(applier, owner, &BTreeSet::new(), 1).await;
    apply_classes(applier, stores, &BTreeSet::new(), 1).await;
    assert!(live().all(|object| object.is_none()));
}

fn targets() -> impl Strategy<Value = Target> {
    (prop::sample::select(KINDS.to_vec()), prop::sample::select(NAMES.to_vec()))
}

fn user_actions() -> impl Strategy<Value = UserAction> {
    use Shape::{Copy, CopyWithOwner, Different, OtherController};
    let shapes = prop::sample::select(vec![Different, Copy, CopyWithOwner, OtherController]);
    prop_oneof![
        3 => shapes.clone().prop_map(UserAction::Create),
        3 => shapes.prop_map(UserAction::Replace),
        1 => Just(UserAction::Edit),
        1 => Just(UserAction::Delete),
        1 => Just(UserAction::Detach),
        1 => Just(UserAction::ChangeController),
        2 => copies(),
    ]
}

fn copies() -> impl Strategy<Value = UserAction> {
    let copy_names = prop::sample::select(COPY_NAMES.to_vec());
    prop_oneof![
        2 => copy_names.clone().prop_map(UserAction::CopyTo),
        1 => copy_names.clone().prop_map(UserAction::CopyWithoutAnnotationsTo),
        1 => prop::sample::select(OBSOLETE_COPY_NAMES.to_vec()).prop_map(UserAction::CopyOfEarlierReleaseTo),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let interference = || prop::collection::vec((0..8_usize, (targets(), user_actions())), 0..4);
    let owned = prop::collection::btree_set((0..MANAGED_KINDS.len(), 0..NAMES.len()), 0..=4);
    let classes = prop::collection::btree_set(0..NAMES.len(), 0..=2);
    prop_oneof![
        2 => (targets(), user_actions()).prop_map(|(target, action)| Step::User(target, action)),
        2 => prop::sample::select(KINDS.to_vec()).prop_map(Step::Sync),
        3 => (prop::sample::select(NAMES.to_vec()), copies()).prop_map(|(name, copy)| Step::Copy(name, copy)),
        4 => (owned, 0..2_u8, interference())
            .prop_map(|(desired, variant, interference)| Step::Converge { desired, variant, interference }),
        2 => (classes, 0..2_u8, interference())
            .prop_map(|(desired, variant, interference)| Step::ApplyClasses { desired, variant, interference }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn foreign_objects_are_never_changed_or_deleted(steps in prop::collection::vec(steps(), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let violations = runtime.block_on(run(steps));
        prop_assert!(violations.is_empty(), "{violations:#?}");
    }
}

/// A user creates a Service that the cache does not contain yet. The service must report it, not adopt it.
#[tokio::test]
async fn stale_cache_does_not_adopt_a_users_service() {
    let world = Arc::new(Mutex::new(World::new()));
    let server = world.lock().unwrap().server.clone();
    let stores = Stores::new(MANAGER);
    KINDS.iter().for_each(|kind| sync(&stores, &server, *kind));
    world.lock().unwrap().act((SERVICE, "a"), UserAction::Create(Shape::Different));
    let applier = Applier::new(client(&world), stores, MANAGED_KINDS, MANAGER);
    let owner = owner(&server, "owner");
    let convergence =
        applier.converge(CONFIG_MAP, &owner, vec![desired(SERVICE, "a", 0), desired(SERVICE, "b", 0)]).await.unwrap();
    let outcomes: Vec<_> = convergence.results.into_iter().map(|result| result.outcome).collect();
    let not_owned = cluster::ApplyOutcome::NotOwned(cluster::ObjectOwner::FieldManager);
    assert_eq!(outcomes, [not_owned, cluster::ApplyOutcome::Created]);
    world.lock().unwrap().check();
    assert!(world.lock().unwrap().violations.is_empty());
    // The first write is an apply, so that later ones remove fields.
    let created = server.get("services", "default", "b").unwrap();
    let entries = created["metadata"]["managedFields"].as_array().unwrap();
    assert!(entries.iter().all(|entry| (&entry["manager"], &entry["operation"]) == (&json!(MANAGER), &json!("Apply"))));
}
