//! Fixture that computes decisions from manifests: each test defines its runtimes, classes, models, nodes and service.

use std::sync::LazyLock;

use serde_json::Value;

use crate::inventory;
use crate::*;

/// The example classes of seed 000, and a T4.
pub(super) const CLASSES: &str = include_str!("classes.yaml");

#[derive(Clone, Debug)]
pub(super) struct Fixture {
    pub(super) supply: Supply,
    pub(super) demand: Demand,
}

/// Parses every document; without nodes, availability is unknown.
pub(super) fn fixture(texts: &[&str]) -> Fixture {
    let objects: Vec<Value> = texts.iter().flat_map(|text| documents(text)).collect();
    let objects_of_kind = |kind: &str| objects.iter().filter(|value| value["kind"] == kind).collect::<Vec<_>>();
    let nodes: Vec<Value> = objects_of_kind("Node").into_iter().cloned().collect();
    let pods: Vec<Value> = objects_of_kind("Pod").into_iter().cloned().collect();
    let infos = inventory::node_infos(&nodes, &pods);
    let runtimes = [objects_of_kind("ServingRuntime"), objects_of_kind("ClusterServingRuntime")].concat();
    let classes = objects_of_kind("AcceleratorClass")
        .into_iter()
        .map(|value| class(value, (!nodes.is_empty()).then_some(&infos)));
    let supply = Supply {
        runtimes: runtimes.into_iter().map(|value| runtime(value).into()).collect(),
        classes: classes.map(Into::into).collect(),
        nodes: (!nodes.is_empty()).then(|| std::sync::Arc::new(inventory_of(&nodes)) as _),
        accelerator_aware: true,
    };
    let services = objects_of_kind("InferenceService");
    let service = services
        .first()
        .copied()
        .cloned()
        .unwrap_or_else(|| serde_json::json!({"metadata": {"name": "s"}, "spec": {"model": {"name": "m"}}}));
    let models = [objects_of_kind("BaseModel"), objects_of_kind("ClusterBaseModel")].concat();
    let model = models.iter().find(|model| model["metadata"]["name"] == service["spec"]["model"]["name"]);
    let spec = model.map(|model| serde_json::from_value(model["spec"].clone()).unwrap());
    let service: api::ome::InferenceService = serde_json::from_value(service).unwrap();
    let name = model.map(|model| model["metadata"]["name"].as_str().unwrap());
    Fixture { supply, demand: Demand::from_api(&service, name.zip(spec.as_ref())).unwrap() }
}

fn inventory_of(nodes: &[Value]) -> Inventory {
    let mut inventory = Inventory::default();
    for node in nodes {
        // In YAML, the name `n` is a boolean.
        inventory.set_node(node["metadata"]["name"].as_str().unwrap_or("n"), Some(node));
    }
    inventory
}

/// Parses manifests; the default classes are cached.
fn documents(text: &str) -> Vec<Value> {
    static PARSED_CLASSES: LazyLock<Vec<Value>> = LazyLock::new(|| parse_documents(CLASSES));
    if text == CLASSES { PARSED_CLASSES.clone() } else { parse_documents(text) }
}

fn parse_documents(text: &str) -> Vec<Value> {
    match serde_json::from_str(text) {
        Ok(Value::Array(objects)) => objects,
        _ => api::parse_manifest("test", text).unwrap().into_iter().map(|document| document.value).collect(),
    }
}

impl Fixture {
    pub(super) fn decide(&self) -> Decision {
        decide(&self.demand, &self.supply, None)
    }
}

fn runtime(value: &Value) -> Runtime {
    let is_cluster_scoped = value["kind"] == "ClusterServingRuntime";
    let (scope, namespace) = if is_cluster_scoped { (Scope::Cluster, "") } else { (Scope::Namespace, "default") };
    let namespace = value["metadata"]["namespace"].as_str().unwrap_or(namespace);
    let created = value["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
    let spec = serde_json::from_value(value["spec"].clone()).unwrap();
    Runtime::from_api(value["metadata"]["name"].as_str().unwrap(), scope, namespace, created, &spec).unwrap()
}

fn class(value: &Value, nodes: Option<&Vec<inventory::NodeInfo>>) -> Class {
    let mut class = Class::from_api(&serde_json::from_value(value.clone()).unwrap(), None).unwrap();
    class.availability = nodes.map(|nodes| inventory::class_availability(&class, nodes));
    class
}

/// Returns the engine's runtime, class, accelerators per node and number of nodes.
pub(super) fn selection(decision: &Decision) -> (String, String, u32, u32) {
    let runtime = decision.runtime.as_ref().map(|runtime| runtime.name.clone()).unwrap_or_default();
    let engine = decision.components.get("engine").cloned().unwrap_or_default();
    (runtime, engine.accelerator_class.unwrap_or_default(), engine.accelerators_per_node, engine.nodes)
}

pub(super) fn warning_codes(decision: &Decision) -> Vec<&str> {
    decision.warnings.iter().map(|warning| warning.code.as_str()).collect()
}

/// A runtime for models of any size.
pub(super) const RUNTIME: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {name: srt}, spec: {supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true}], acceleratorRequirements: {requiredCapabilities: {features: [tensor-cores]}}, engineConfig: {runner: {image: i}}}}";

/// Returns a model of this size and quantization.
pub(super) fn model(size: &str, quantization: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {{name: m}}, spec: {{modelFormat: {{name: safetensors}}, modelParameterSize: {size}, quantization: \"{quantization}\"}}}}"
    )
}

/// Returns a service of the model with these further fields of its spec, and annotations.
pub(super) fn service(spec: &str, annotations: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: s, annotations: {{{annotations}}}}}, spec: {{model: {{name: m}}, {spec}}}}}"
    )
}

/// Returns the documents and the classes of the specification.
pub(super) fn fixture_with_classes(documents: &[&str]) -> Fixture {
    fixture(&[CLASSES, &documents.join("\n---\n")])
}
