//! Plans of complete services, from manifests to objects.

mod catalog;
mod claims;
mod commands;
mod components;
mod dual_pods;
mod gangs;
mod leader_worker;
mod merging;
mod model_paths;
mod numbers;
mod ome;
mod printed_stories;
mod roles;
mod router;
mod scaling;
mod selection;
mod stories;
mod topologies;

use std::collections::BTreeMap;

use api::parse_manifest;
use serde_json::Value;

use crate::{Plan, ServicePlan, Snapshot};

const SUPPLY: &str = include_str!("supply.yaml");

/// Returns a snapshot of the services in `manifests` with the runtimes, models and classes of `supply.yaml`.
fn snapshot_with_supply(manifests: &str) -> Snapshot {
    let documents = parse_manifest("manifests.yaml", manifests).unwrap();
    let supply = parse_manifest("supply.yaml", SUPPLY).unwrap();
    Snapshot::from_documents(&documents, &supply).unwrap()
}

fn plan_all_with_supply(manifests: &str) -> Plan {
    crate::plan(&snapshot_with_supply(manifests))
}

fn plan_with_supply(manifests: &str) -> ServicePlan {
    let mut plan = plan_all_with_supply(manifests);
    assert_eq!(plan.services.len(), 1);
    plan.services.remove(0)
}

/// Returns a plan's outcome and objects as text for snapshot tests.
fn plan_text(plan: &ServicePlan) -> String {
    let codes: Vec<&str> = plan.warnings.iter().map(|warning| warning.code.as_str()).collect();
    let objects = serde_json::to_string_pretty(&plan.objects).unwrap();
    let components = serde_json::to_string_pretty(&plan.components).unwrap();
    format!("{}\ncomponents {components}\nwarnings {codes:?}\nobjects {objects}", plan.reason)
}

fn kinds(plan: &ServicePlan) -> Vec<String> {
    let name = |object: &Value| {
        format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
    };
    plan.objects.iter().map(name).collect()
}

fn code(plan: &ServicePlan) -> (bool, &str) {
    (plan.feasible, &plan.reason)
}

/// Returns a snapshot of all `manifests`.
fn snapshot(manifests: &[&str]) -> Snapshot {
    let documents =
        manifests.iter().flat_map(|text| parse_manifest("manifests.yaml", text).unwrap()).collect::<Vec<_>>();
    Snapshot::from_documents(&documents, &[]).unwrap()
}

/// Plans the only service of `manifests`.
fn plan_manifests(manifests: &[&str]) -> ServicePlan {
    let mut plan = crate::plan(&snapshot(manifests));
    assert_eq!(plan.services.len(), 1);
    plan.services.remove(0)
}

/// Returns the Pod template of the Deployment whose name ends with `suffix`.
fn template<'a>(plan: &'a ServicePlan, suffix: &str) -> &'a Value {
    let is_match = |object: &&Value| {
        object["kind"] == "Deployment" && object["metadata"]["name"].as_str().unwrap().ends_with(suffix)
    };
    let deployment = plan.objects.iter().find(is_match);
    &deployment
        .unwrap_or_else(|| panic!("no Deployment *{suffix} in {:?}: {} {}", kinds(plan), plan.reason, plan.message))["spec"]
        ["template"]
}

fn container<'a>(plan: &'a ServicePlan, suffix: &str) -> &'a Value {
    &template(plan, suffix)["spec"]["containers"][0]
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|word| word.as_str().unwrap().to_owned()).collect()
}

fn args(plan: &ServicePlan) -> String {
    strings(&container(plan, "-engine")["args"]).join(" ")
}

/// Returns the environment variables `NAME=value` in order, except the standard ones.
fn env(plan: &ServicePlan, suffix: &str) -> String {
    const STANDARD: [&str; 5] =
        ["MODEL_PATH", "INFERENCESERVICE_NAME", "NAMESPACE", "PARALLELISM_SIZE", "SERVED_MODEL_NAME"];
    let variables = container(plan, suffix)["env"].as_array().unwrap().iter();
    let custom = variables.filter(|entry| !STANDARD.contains(&entry["name"].as_str().unwrap()));
    custom
        .map(|entry| format!("{}={}", entry["name"].as_str().unwrap(), entry["value"].as_str().unwrap()))
        .collect::<Vec<_>>()
        .join(" ")
}

fn variable<'a>(plan: &'a ServicePlan, name: &str) -> &'a str {
    let variables = container(plan, "-engine")["env"].as_array().unwrap();
    variables.iter().find(|entry| entry["name"] == name).and_then(|entry| entry["value"].as_str()).unwrap_or_default()
}

fn class(plan: &ServicePlan) -> Option<&str> {
    plan.components["engine"].accelerator_class.as_deref()
}

fn codes(plan: &ServicePlan) -> Vec<&str> {
    plan.warnings.iter().map(|warning| warning.code.as_str()).collect()
}

/// Returns value, origin and overridden values of a setting of the engine.
fn setting(plan: &ServicePlan, field: &str) -> (String, &'static str, Vec<String>) {
    let settings = &plan.settings["engine"];
    let setting = settings
        .iter()
        .find(|setting| setting.field.to_string() == field)
        .unwrap_or_else(|| panic!("no {field} in {settings:?}"));
    (
        setting.value.clone(),
        setting.origin.as_str(),
        setting.overridden.iter().map(|overridden| overridden.value.clone()).collect(),
    )
}

/// Returns a Node with eight accelerators.
fn node(name: &str, product: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{nvidia.com/gpu.product: {product}}}}}, \
         status: {{allocatable: {{nvidia.com/gpu: \"8\"}}}}}}"
    )
}

/// Returns a service of `ome.io` in the namespace `default`.
fn service(name: &str, spec: &str) -> String {
    format!("{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: {name}}}, spec: {spec}}}")
}

/// Returns the evaluation code of each class for the selected or closest runtime.
fn verdicts(plan: &ServicePlan) -> BTreeMap<&str, &str> {
    let accelerators = &plan.candidates[0].accelerators;
    accelerators.iter().map(|evaluation| (evaluation.class.as_str(), evaluation.evaluation.code())).collect()
}
