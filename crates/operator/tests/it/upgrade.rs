//! Upgrade from an earlier operator, whose definitions, objects and statuses are recorded in `upgrade/`: Pod templates of engines
//! do not change, no engine restarts, and services retain their selection. Endpoint pickers run the image of the operator, so every
//! upgrade replaces them, by a rolling update.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::cluster::is_managed_by;
use api::parse_manifest;
use embedded::{Server, Subscription};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use plan::Snapshot;
use serde_json::{Value, json};

use crate::preview::{listing, preview};
use crate::simulated_cluster::{CRDS, SimulatedCluster};
use crate::test_cluster::{FUSIONINFER_SERVICES, OME_SERVICES};

pub(crate) const SERVICES: &str = include_str!("upgrade/services.yaml");
pub(crate) const SUPPLY: &str = include_str!("upgrade/supply.yaml");
const OBJECTS: &str = include_str!("upgrade/objects.yaml");
const DEFINITIONS: &str = include_str!("upgrade/definitions.yaml");
const STATUSES: &str = include_str!("upgrade/statuses.yaml");
/// Namespace of the recorded services.
const RECORDED_NAMESPACE: &str = "team-a";
/// Each namespace contains ten services.
const NAMESPACES: [&str; 5] = [RECORDED_NAMESPACE, "team-b", "team-c", "team-d", "team-e"];
/// Deployment of the endpoint picker in each namespace.
const PICKER: &str = "qwen-routed-epp";
const WORKLOADS: [&str; 2] = ["deployments.apps", "leaderworkersets.leaderworkerset.x-k8s.io"];

pub(crate) fn documents(text: &str) -> Vec<Value> {
    parse_manifest("test", text).unwrap().into_iter().map(|document| document.value).collect()
}

/// Returns the documents of `text` with another namespace.
fn documents_in(namespace: &str, text: &str) -> Vec<Value> {
    documents(&text.replace(RECORDED_NAMESPACE, namespace))
}

/// Returns the resource of an object, such as `deployments.apps`.
pub(crate) fn resource(server: &Server, object: &Value) -> String {
    server.group_resource(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).unwrap()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Returns the Pod templates of a workload, or null for other kinds.
fn templates(object: &Value) -> &Value {
    match &object["spec"]["leaderWorkerTemplate"] {
        Value::Null if object["kind"] == "Deployment" => &object["spec"]["template"],
        template => template,
    }
}

/// Returns a node with eight accelerators of `product`.
pub(crate) fn node(name: &str, product: &str) -> Value {
    let resources = json!({"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}},
        "status": {"allocatable": resources, "capacity": resources}})
}

pub(crate) fn create_node(server: &Server, node: &Value) {
    let mut stored = (*server.create("nodes", node.clone()).unwrap()).clone();
    stored["status"] = node["status"].clone();
    server.update_status("nodes", stored).unwrap();
}

pub(crate) fn h100_nodes() -> impl Iterator<Item = Value> {
    (0..60).map(|index| node(&format!("h100-{index:02}"), "NVIDIA-H100-80GB-HBM3"))
}

/// Returns a cluster with these definitions and without a running operator, in which the recorded operator has made the services
/// of `namespaces` Ready.
async fn recorded_cluster(definitions: Vec<Value>, namespaces: &[&str], nodes: Vec<Value>) -> SimulatedCluster {
    let cluster = SimulatedCluster::without_operator([definitions, api::integrations::crds()].concat());
    let server = &cluster.server;
    nodes.iter().for_each(|node| create_node(server, node));
    for object in documents(SUPPLY) {
        server.create(&resource(server, &object), object).unwrap();
    }
    for &namespace in namespaces {
        server.create("namespaces", json!({"metadata": {"name": namespace}})).unwrap();
        for service in documents_in(namespace, SERVICES) {
            server.create(&resource(server, &service), service).unwrap();
        }
        for object in documents_in(namespace, OBJECTS) {
            apply_as_operator(&cluster, object).await;
        }
        for recorded in documents_in(namespace, STATUSES) {
            let resource = resource(server, &recorded);
            let mut service = (*server.get(&resource, namespace, name(&recorded)).unwrap()).clone();
            service["status"] = recorded["status"].clone();
            server.update_status(&resource, service).unwrap();
        }
    }
    cluster.test_cluster.wait_until_idle().await;
    for pod in pods(server) {
        let ready = ::cluster::find_condition(&pod["status"]["conditions"], "Ready");
        assert!(ready.is_some_and(|ready| ready["status"] == "True"), "{pod:#}");
    }
    cluster
}

/// Applies a recorded object of a service as the operator did.
async fn apply_as_operator(cluster: &SimulatedCluster, mut object: Value) {
    let namespace = object["metadata"]["namespace"].as_str().unwrap().to_owned();
    let owner = &object["metadata"]["ownerReferences"][0];
    let live_owner = cluster.server.get(&resource(&cluster.server, owner), &namespace, owner["name"].as_str().unwrap());
    let uid = live_owner.unwrap()["metadata"]["uid"].clone();
    let reference = &mut object["metadata"]["ownerReferences"][0];
    reference["uid"] = uid;
    reference["controller"] = json!(true);
    reference["blockOwnerDeletion"] = json!(true);
    let (kind, api_version) = (object["kind"].as_str().unwrap(), object["apiVersion"].as_str().unwrap());
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api = Api::<DynamicObject>::namespaced_with(cluster.test_cluster.user_client(), &namespace, &resource);
    let params = PatchParams::apply(operator::FIELD_MANAGER);
    api.patch(name(&object), &params, &Patch::Apply(&object)).await.unwrap();
}

fn pods(server: &Server) -> Vec<Arc<Value>> {
    server.list("pods")
}

fn engine_pods(server: &Server) -> Vec<Arc<Value>> {
    pods(server).into_iter().filter(|pod| !name(pod).starts_with(PICKER)).collect()
}

fn services(server: &Server) -> Vec<Arc<Value>> {
    [OME_SERVICES, FUSIONINFER_SERVICES].into_iter().flat_map(|resource| server.list(resource)).collect()
}

/// Returns the objects that the operator applied.
fn owned_objects(server: &Server) -> Vec<Value> {
    let objects_of_kind = |kind: &::cluster::Kind| {
        let objects = server.list(&kind.group_resource()).into_iter();
        objects.map(|object| Value::clone(&object)).filter(|object| is_managed_by(object, operator::FIELD_MANAGER))
    };
    let objects: Vec<Value> = operator::kinds::OWNED.iter().flat_map(objects_of_kind).collect();
    assert!(objects.len() > 200, "{}", objects.len());
    objects
}

/// Returns the Pod templates of all engines, by namespace, kind and name.
fn engine_templates(server: &Server) -> BTreeMap<String, Value> {
    let workloads = WORKLOADS.into_iter().flat_map(|resource| server.list(resource));
    let workloads = workloads.filter(|object| name(object) != PICKER);
    let key = |object: &Value| format!("{} {} {}", object["metadata"]["namespace"], object["kind"], name(object));
    workloads.map(|object| (key(&object), templates(&object).clone())).collect()
}

/// Returns the selected runtime and class of each service.
fn selections(server: &Server) -> Vec<(String, Value, Value)> {
    let selection = |service: Arc<Value>| {
        let key = format!("{} {}", service["metadata"]["namespace"], name(&service));
        let decision = &service["status"]["decision"];
        (key, decision["runtime"]["name"].clone(), decision["components"]["engine"]["acceleratorClass"].clone())
    };
    services(server).into_iter().map(selection).collect()
}

/// Returns whether the current operator does not create the object: a service with a router has an InferencePool only. The recorded
/// operator recorded no identities, so that its object is reported and not deleted.
fn is_obsolete(object: &Value) -> bool {
    name(object) == "qwen-routed" && ["BackendPool", "LLMUseCaseSet"].iter().any(|kind| object["kind"] == *kind)
}

#[test]
fn planned_pod_templates_equal_the_recorded_ones() {
    let nodes = h100_nodes().map(|node| format!("---\n{node}\n")).collect::<String>();
    let supply = parse_manifest("supply.yaml", &format!("{SUPPLY}{nodes}")).unwrap();
    let services = parse_manifest("services.yaml", SERVICES).unwrap();
    let plan = plan::plan(&Snapshot::from_documents(&services, &supply).unwrap());
    let planned: Vec<&Value> = plan.services.iter().flat_map(|service| &service.objects).collect();
    let recorded = documents(OBJECTS);
    assert_eq!(recorded.iter().filter(|object| !templates(object).is_null()).count(), 18);
    // Revisions are not part of a plan.
    let is_planned =
        |object: &&Value| object["kind"] != "ControllerRevision" && name(object) != PICKER && !is_obsolete(object);
    for recorded in recorded.iter().filter(is_planned) {
        let planned =
            planned.iter().find(|planned| planned["kind"] == recorded["kind"] && name(planned) == name(recorded));
        let planned = planned.unwrap_or_else(|| panic!("{} {} is not planned", recorded["kind"], name(recorded)));
        assert_eq!(templates(planned), templates(recorded), "{} {}", recorded["kind"], name(recorded));
    }
}

/// With 50 Ready services of the recorded operator, and nodes of a class that a new decision would prefer, the start of the
/// current operator changes no Pod template, restarts no engine, and every service remains Ready with its selection.
#[tokio::test(start_paused = true)]
async fn start_with_ready_services_restarts_no_engine() {
    let cluster = recorded_cluster(api::crds(), &NAMESPACES, h100_nodes().collect()).await;
    let pods = engine_pods(&cluster.server);
    (0..8).for_each(|index| create_node(&cluster.server, &node(&format!("l40s-{index}"), "NVIDIA-L40S")));
    let (templates, selections) = (engine_templates(&cluster.server), selections(&cluster.server));
    assert_eq!((pods.len(), templates.len(), selections.len()), (5 * 21, 5 * 17, 50));

    let announced = preview(&listing(&cluster.server)).await;
    let restarts = announced.iter().flat_map(|service| &service.restarts);
    assert_eq!(restarts.map(|restart| restart.key.name.as_str()).collect::<Vec<_>>(), [PICKER; 5]);

    let mut changes = cluster.server.subscribe();
    cluster.test_cluster.start_operator(operator::Options::default());
    assert_eq!(changed_engine_pods(&mut changes).await, Vec::<String>::new());
    assert_eq!(engine_pods(&cluster.server), pods);
    assert_eq!(engine_templates(&cluster.server), templates);
    assert_eq!(self::selections(&cluster.server), selections);
    assert_all_ready(&cluster.server);
    for object in owned_objects(&cluster.server).into_iter().filter(|object| !is_obsolete(object)) {
        let (kind, namespace) = (object["kind"].as_str().unwrap(), object["metadata"]["namespace"].as_str().unwrap());
        let identity = &object["metadata"]["annotations"][::cluster::IDENTITY_ANNOTATION];
        assert_eq!(*identity, format!("{kind}/{namespace}/{}", name(&object)), "the object is adopted");
    }
}

/// The definitions are replaced while an operator runs, as `ostler crds | kubectl apply --server-side -f -` does: no object is
/// lost or changed, no engine restarts, and the operator continues and uses new fields: `nodes` of components.
#[tokio::test(start_paused = true)]
async fn replaced_definitions_retain_all_objects() {
    let cluster =
        recorded_cluster(documents(DEFINITIONS), &[RECORDED_NAMESPACE], h100_nodes().take(16).collect()).await;
    let server = &cluster.server;
    let mut changes = server.subscribe();
    cluster.test_cluster.start_operator(operator::Options::default());
    assert_eq!(changed_engine_pods(&mut changes).await, Vec::<String>::new());
    let custom_objects = || -> Vec<Arc<Value>> {
        let resources: Vec<String> = api::crds().iter().map(|definition| name(definition).to_owned()).collect();
        resources.iter().flat_map(|resource| server.list(resource)).collect()
    };
    let engine_nodes = |server: &Server, name: &str| {
        let service = server.get(OME_SERVICES, RECORDED_NAMESPACE, name).unwrap();
        service["status"]["components"]["engine"]["nodes"].clone()
    };
    assert_eq!(engine_nodes(server, "deepseek-r1"), Value::Null);
    let objects_before = custom_objects();
    replace_definitions(server);
    assert_eq!(custom_objects(), objects_before);
    assert_eq!(changed_engine_pods(&mut changes).await, Vec::<String>::new());
    assert_all_ready(server);
    assert_eq!(content(&custom_objects()), content(&objects_before));

    let mut service = documents(SERVICES).into_iter().find(|service| name(service) == "deepseek-r1").unwrap();
    service["metadata"]["name"] = json!("later");
    server.create(OME_SERVICES, service).unwrap();
    let is_ready = |server: &Server| {
        let service = server.get(OME_SERVICES, RECORDED_NAMESPACE, "later")?;
        let ready = ::cluster::find_condition(&service["status"]["conditions"], "Ready")?;
        (ready["status"] == "True").then_some(())
    };
    cluster.wait_for("the new service", &is_ready).await;
    assert_eq!(engine_nodes(server, "later"), 2);
}

/// While the definitions of an earlier operator are installed, statuses lack the fields that these do not declare. They contain
/// them once the definitions are replaced, without another change.
#[tokio::test(start_paused = true)]
async fn statuses_lack_undeclared_fields_until_definitions_are_replaced() {
    let cluster =
        recorded_cluster(documents(DEFINITIONS), &[RECORDED_NAMESPACE], h100_nodes().take(16).collect()).await;
    cluster.test_cluster.start_operator(operator::Options::default());
    let mut service = documents(SERVICES).into_iter().find(|service| name(service) == "deepseek-r1").unwrap();
    service["metadata"]["name"] = json!("later");
    cluster.server.create(OME_SERVICES, service).unwrap();
    let ready_service = |server: &Server| {
        let service = server.get(OME_SERVICES, RECORDED_NAMESPACE, "later")?;
        let ready = ::cluster::find_condition(&service["status"]["conditions"], "Ready")?;
        (ready["status"] == "True").then(|| (*service).clone())
    };
    let service = cluster.wait_for("the service with undeclared fields", &ready_service).await;
    assert_eq!(service["status"]["components"]["engine"]["nodes"], Value::Null);
    assert_eq!(service["status"]["observedGeneration"], service["metadata"]["generation"]);

    replace_definitions(&cluster.server);
    let nodes = |server: &Server| ready_service(server)?["status"]["components"]["engine"]["nodes"].as_u64();
    assert_eq!(cluster.wait_for("the complete status", &nodes).await, 2);
}

/// Replaces the specs of the definitions by the current ones.
fn replace_definitions(server: &Server) {
    for definition in api::crds() {
        let mut live = (*server.get(CRDS, "", name(&definition)).unwrap()).clone();
        live["spec"] = definition["spec"].clone();
        server.update(CRDS, live).unwrap();
    }
}

/// Returns UID and spec of the objects.
fn content(objects: &[Arc<Value>]) -> Vec<(Value, Value)> {
    objects.iter().map(|object| (object["metadata"]["uid"].clone(), object["spec"].clone())).collect()
}

/// Returns the Pods of engines that change until nothing changes for two minutes.
async fn changed_engine_pods(changes: &mut Subscription) -> Vec<String> {
    let mut pods = Vec::new();
    while let Ok(change) = tokio::time::timeout(Duration::from_secs(120), changes.next()).await {
        pods.extend(change.ok().filter(|change| change.resource == "pods").map(|change| change.name));
    }
    pods.retain(|pod| !pod.starts_with(PICKER));
    pods
}

fn assert_all_ready(server: &Server) {
    for service in services(server) {
        let ready = ::cluster::find_condition(&service["status"]["conditions"], "Ready").unwrap();
        assert_eq!(ready["status"], "True", "{}: {ready}", name(&service));
    }
}

/// The recorded operator rendered another template for one engine. `ostler plan --diff` announces the Pods that the start of the
/// current operator restarts, and no others.
#[tokio::test(start_paused = true)]
async fn restarts_of_an_upgrade_are_announced() {
    let cluster = recorded_cluster(api::crds(), &[RECORDED_NAMESPACE], h100_nodes().collect()).await;
    let mut old = documents(OBJECTS).into_iter().find(|object| object["kind"] == "Deployment").unwrap();
    old["spec"]["template"]["metadata"]["annotations"]["example.com/format"] = json!("1");
    apply_as_operator(&cluster, old.clone()).await;
    cluster.test_cluster.wait_until_idle().await;
    let uid = |pod: &Arc<Value>| pod["metadata"]["uid"].to_string();
    let (templates, old_pods) = (engine_templates(&cluster.server), pods(&cluster.server));
    let announced = preview(&listing(&cluster.server)).await;
    let restarts: Vec<_> = announced.into_iter().flat_map(|service| service.restarts).collect();
    let names: Vec<&str> = restarts.iter().map(|restart| restart.key.name.as_str()).collect();
    assert_eq!(names, [name(&old), PICKER]);

    cluster.test_cluster.start_operator(operator::Options::default());
    cluster.test_cluster.wait_until_idle().await;
    let mut changed = engine_templates(&cluster.server);
    changed.retain(|key, template| templates[key] != *template);
    assert_eq!(
        changed.keys().collect::<Vec<_>>(),
        [&format!("\"{RECORDED_NAMESPACE}\" \"Deployment\" {}", name(&old))]
    );
    let old_uids: Vec<String> = old_pods.iter().map(uid).collect();
    let new_pods = pods(&cluster.server).iter().filter(|pod| !old_uids.contains(&uid(pod))).count();
    assert_eq!(u64::try_from(new_pods).unwrap(), restarts.iter().map(|restart| restart.pods).sum::<u64>());
}
