//! `ostler plan` prints the objects that the operator then applies, no more and no less: for the shipped catalog, and for the
//! corpus of upstream manifests (`cargo xtask test --with corpus`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use api::Document;
use cluster::{Kind, is_spec_applied};
use embedded::Server;
use operator::FIELD_MANAGER;
use operator::kinds::{ACCELERATOR_CLASS, CONTROLLER_REVISION, FUSIONINFER_SERVICE, OME_SERVICE, OWNED};
use plan::{AutoscalerSupport, ServicePlan, Snapshot};
use serde_json::{Value, json};

use crate::preview::{changes, contains, listing, preview};
use crate::simulated_cluster::{disaggregated_service, role, service_with_roles};
use crate::test_cluster::{TestCluster, server_with_crds};

/// The classes that have nodes.
const CLASSES_WITH_NODES: [&str; 5] =
    ["nvidia-l40s", "nvidia-a100-80gb", "nvidia-h100-80gb", "nvidia-h200-141gb", "amd-mi300x"];
/// Nodes of each class. There are many, so that the claims of other services do not affect a decision: the operator decides
/// again about a service that was never ready, and then also considers the claims of later services.
const NODES_PER_CLASS: usize = 150;

/// Returns the documents of all YAML files below `directory`, in the order of their paths.
fn documents(directory: &Path) -> Vec<Document> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| match path.is_dir() {
        true => documents(&path),
        false if path.extension().is_some_and(|extension| extension == "yaml") => {
            api::parse_manifest(&path.to_string_lossy(), &std::fs::read_to_string(&path).unwrap()).unwrap()
        }
        false => Vec::new(),
    };
    paths.into_iter().flat_map(read).collect()
}

fn shipped_catalog() -> Vec<Document> {
    documents(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalog"))
}

fn document(value: Value) -> Document {
    Document { source: "test".to_owned(), index: 1, value }
}

/// Returns nodes of eight accelerators that belong to `class`; none if it selects nodes by other criteria than labels.
fn nodes(class: &Value) -> Vec<Document> {
    let discovery = &class["spec"]["discovery"];
    let mut labels = discovery["nodeSelector"].as_object().cloned().unwrap_or_default();
    for expression in discovery["nodeSelectorTerms"][0]["matchExpressions"].as_array().into_iter().flatten() {
        labels.insert(expression["key"].as_str().unwrap().to_owned(), expression["values"][0].clone());
    }
    let Some(resource) = class["spec"]["resources"][0]["name"].as_str().filter(|_| !labels.is_empty()) else {
        return Vec::new();
    };
    let allocatable = json!({resource: "8", "cpu": "192", "memory": "2Ti", "pods": "110"});
    let node = |index: usize| {
        let name = format!("{}-{index}", class["metadata"]["name"].as_str().unwrap());
        document(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": allocatable, "capacity": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}}))
    };
    (0..NODES_PER_CLASS).map(node).collect()
}

/// Returns a minimal service of each model of `supply`, and one that scales of each tenth.
fn services_of_models(supply: &[Document]) -> Vec<Document> {
    let models = supply.iter().filter(|document| document.kind() == "ClusterBaseModel").map(Document::name);
    let service = |model: &str, suffix: &str, engine: Value| {
        document(json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
            "metadata": {"name": format!("m-{model}-{suffix}"), "namespace": "default"},
            "spec": {"model": {"name": model}, "engine": engine}}))
    };
    let services = |(index, model)| {
        let scales = index % 10 == 0;
        let scaling = scales.then(|| service(model, "b", json!({"minReplicas": 1, "maxReplicas": 3})));
        [service(model, "a", json!({}))].into_iter().chain(scaling)
    };
    models.enumerate().flat_map(services).collect()
}

/// Returns a model with the properties of the first format of each runtime, and a service that sets this runtime.
fn models_and_services_of_runtimes(supply: &[Document]) -> Vec<[Document; 2]> {
    let runtimes = supply.iter().filter(|document| document.kind() == "ClusterServingRuntime");
    let model_and_service = |runtime: &Document| {
        let (name, spec) = (format!("r-{}", runtime.name()), &runtime.value["spec"]);
        let format = &spec["supportedModelFormats"][0];
        let named = |field: &str| json!({"name": format[field]["name"], "version": format[field]["version"]});
        let model_spec = json!({"modelFormat": named("modelFormat"), "modelFramework": named("modelFramework"),
            "modelArchitecture": format["modelArchitecture"], "quantization": format["quantization"],
            "modelParameterSize": spec["modelSizeRange"]["max"]});
        [
            json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel", "metadata": {"name": name}, "spec": model_spec}),
            json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": name, "namespace": "default"},
                "spec": {"model": {"name": name}, "runtime": {"name": runtime.name()}, "engine": {}}}),
        ]
        .map(|value| document(without_nulls(value)))
    };
    runtimes.map(model_and_service).collect()
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, without_nulls(value)));
            fields.filter(|(_, value)| !value.is_null() && *value != json!({})).collect()
        }
        value => value,
    }
}

fn role_based_services() -> Vec<Document> {
    let router = json!({"name": "entry", "componentType": "router", "strategy": "prefix-cache",
        "httproute": {"parentRefs": [{"name": "gateway"}]}});
    let routed = service_with_roles("routed", vec![role("w", "worker", 2, 1, 8), router]);
    [disaggregated_service(), routed].map(document).into()
}

/// Drops documents that a later one of the same kind and name replaces: the corpus contains runtimes twice.
fn without_replaced(documents: Vec<Document>) -> Vec<Document> {
    let id = |document: &Document| {
        let namespace = document.namespace().unwrap_or_default().to_owned();
        (document.kind().to_owned(), namespace, document.name().to_owned())
    };
    let last: BTreeMap<_, usize> = documents.iter().map(id).zip(0..).collect();
    let is_last = |(index, document): &(usize, Document)| last[&id(document)] == *index;
    documents.into_iter().enumerate().filter(is_last).map(|(_, document)| document).collect()
}

fn resource(kind: &str, api_version: &str) -> String {
    let matches = |known: &&Kind| known.kind == kind && known.api_version() == api_version;
    OWNED.iter().find(matches).unwrap_or_else(|| panic!("{api_version} {kind}")).group_resource()
}

/// Applies supply and services to a cluster, and checks that its objects are those of the plan. Returns how many services
/// are feasible, and the number of their objects.
async fn check_plan(supply: Vec<Document>, mut services: Vec<Document>) -> (usize, usize) {
    // The operator decides in this order, since all services are created at the same time.
    services.sort_by_key(|service| (service.value["metadata"]["namespace"].to_string(), service.name().to_owned()));
    let classes = supply
        .iter()
        .filter(|document| document.kind() == ACCELERATOR_CLASS.kind && CLASSES_WITH_NODES.contains(&document.name()));
    let nodes: Vec<Document> = classes.flat_map(|class| nodes(&class.value)).collect();

    // Without admission, which rejects runtimes of the corpus that match the same models.
    let server = server_with_crds([api::crds(), api::integrations::crds()].concat());
    let namespaces: BTreeSet<&str> = services.iter().filter_map(Document::namespace).collect();
    for namespace in namespaces.into_iter().filter(|namespace| *namespace != "default") {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        server.create("namespaces", namespace).unwrap();
    }
    for document in nodes.iter().chain(&supply).chain(&services) {
        let resource = match (document.api_version(), document.kind()) {
            ("v1", "Node") => "nodes".to_owned(),
            ("fusioninfer.io/v1alpha1", _) => FUSIONINFER_SERVICE.group_resource(),
            (_, kind) => format!("{}.ome.io", plural(kind)),
        };
        server.create(&resource, document.value.clone()).unwrap_or_else(|error| panic!("{}: {error}", document.source));
    }
    let test_cluster = TestCluster::with_server(server.clone(), operator::Options::default());
    test_cluster.wait_until_idle().await;

    let mut snapshot = Snapshot::from_documents(&services, &[supply, nodes].concat()).unwrap();
    snapshot.autoscaler_support = AutoscalerSupport::HpaAndKeda;
    let plans = plan::plan(&snapshot).services;
    plans.iter().for_each(|plan| check_service(&server, plan));
    for preview in preview(&listing(&server)).await {
        assert_eq!(changes(&preview), [""; 0], "{}", preview.key);
    }
    let feasible = plans.iter().filter(|plan| plan.feasible).count();
    (feasible, plans.iter().map(|plan| plan.objects.len()).sum())
}

fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    if kind.ends_with("class") { format!("{kind}es") } else { format!("{kind}s") }
}

fn check_service(server: &Server, plan: &ServicePlan) {
    let kind = if plan.api_version == "ome.io/v1beta1" { OME_SERVICE } else { FUSIONINFER_SERVICE };
    let service = server.get(&kind.group_resource(), &plan.namespace, &plan.name).unwrap();
    let name = format!("{}/{}", plan.namespace, plan.name);
    let mut planned_names = BTreeSet::new();
    for planned in &plan.objects {
        let (kind, object_name) = (planned["kind"].as_str().unwrap(), planned["metadata"]["name"].as_str().unwrap());
        let resource = resource(kind, planned["apiVersion"].as_str().unwrap());
        let live = server.get(&resource, &plan.namespace, object_name);
        let live =
            live.unwrap_or_else(|| panic!("{name}: {kind} {object_name} does not exist: {:#}", service["status"]));
        assert!(contains(&live, planned), "{name}: {kind} {object_name}: planned {planned:#}, live {live:#}");
        let is_exact = planned["spec"].is_null() || is_spec_applied(&live, planned, FIELD_MANAGER);
        assert!(is_exact, "{name}: {kind} {object_name}: planned {planned:#}, live {live:#}");
        planned_names.insert(format!("{kind} {object_name}"));
    }
    let owned = OWNED.iter().filter(|kind| **kind != CONTROLLER_REVISION).flat_map(|kind| {
        let objects = server.list_namespace(&kind.group_resource(), &plan.namespace).into_iter();
        let uid = service["metadata"]["uid"].clone();
        let owned = objects.filter(move |object| object["metadata"]["ownerReferences"][0]["uid"] == uid);
        owned.map(|object| format!("{} {}", kind.kind, object["metadata"]["name"].as_str().unwrap()))
    });
    assert_eq!(owned.collect::<BTreeSet<_>>(), planned_names, "{name}");
}

// spec: ACC-97
#[tokio::test(start_paused = true)]
async fn plan_of_the_shipped_catalog_equals_the_cluster() {
    let supply = shipped_catalog();
    let services = [services_of_models(&supply), role_based_services()].concat();
    let count = services.len();
    let (feasible, objects) = check_plan(supply, services).await;
    assert!(feasible * 10 > count * 9 && objects > feasible * 3, "{feasible} of {count} services, {objects} objects");
}

/// The runtimes, models and services of the upstream project OME, with the shipped classes.
#[tokio::test(start_paused = true)]
#[ignore = "needs the corpus: cargo xtask test --with corpus"]
async fn plan_of_the_corpus_equals_the_cluster() {
    let corpus = std::env::var_os("OSTLER_CORPUS").expect("OSTLER_CORPUS must be the directory of the corpus");
    let corpus = documents(&Path::new(&corpus).join("ome"));
    let is_service = |document: &&Document| document.is_kind("ome.io/v1beta1", "InferenceService");
    let mut services: Vec<Document> = corpus.iter().filter(is_service).cloned().collect();
    for service in services.iter_mut().filter(|service| service.namespace().is_none()) {
        service.value["metadata"]["namespace"] = json!("default");
    }
    let supply_kinds = ["ClusterServingRuntime", "ServingRuntime", "ClusterBaseModel", "BaseModel"];
    let is_supply = |document: &Document| supply_kinds.contains(&document.kind());
    let classes = shipped_catalog().into_iter().filter(|document| document.kind() == ACCELERATOR_CLASS.kind);
    let supply: Vec<Document> = corpus.into_iter().filter(is_supply).chain(classes).collect();
    let mut services = [services, services_of_models(&supply)].concat();
    let mut supply = without_replaced(supply);
    for [model, service] in models_and_services_of_runtimes(&supply) {
        supply.push(model);
        services.push(service);
    }
    let (feasible, objects) = check_plan(supply, without_replaced(services)).await;
    assert!(feasible > 80 && objects > feasible * 3, "{feasible} services, {objects} objects");
}
