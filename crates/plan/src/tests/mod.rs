//! Whole services, from manifests to objects.

mod catalog;
mod claims;
mod components;
mod gangs;
mod launch_lines;
mod leader_worker;
mod merging;
mod ome;
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

/// The services of `given` with the runtimes, models and classes of `supply.yaml`.
fn snapshot_of(given: &str) -> Snapshot {
    let given = parse_manifest("given.yaml", given).unwrap();
    let supply = parse_manifest("supply.yaml", SUPPLY).unwrap();
    Snapshot::from_documents(&given, &supply).unwrap()
}

fn plan_all(given: &str) -> Plan {
    crate::plan(&snapshot_of(given))
}

fn plan_one(given: &str) -> ServicePlan {
    let mut plan = plan_all(given);
    assert_eq!(plan.services.len(), 1);
    plan.services.remove(0)
}

/// What a snapshot holds: the outcome and the objects, as JSON.
fn shown(plan: &ServicePlan) -> String {
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

/// Everything of `parts` in one snapshot.
fn snapshot(parts: &[&str]) -> Snapshot {
    let documents = parts.iter().flat_map(|part| parse_manifest("given.yaml", part).unwrap()).collect::<Vec<_>>();
    Snapshot::from_documents(&documents, &[]).unwrap()
}

/// The only service of `parts`.
fn only(parts: &[&str]) -> ServicePlan {
    let mut plan = crate::plan(&snapshot(parts));
    assert_eq!(plan.services.len(), 1);
    plan.services.remove(0)
}

/// The pod template of the Deployment whose name ends so.
fn template<'a>(plan: &'a ServicePlan, end: &str) -> &'a Value {
    let is_it =
        |object: &&Value| object["kind"] == "Deployment" && object["metadata"]["name"].as_str().unwrap().ends_with(end);
    let found = plan.objects.iter().find(is_it);
    &found.unwrap_or_else(|| panic!("no {end} among {:?}: {} {}", kinds(plan), plan.reason, plan.message))["spec"]["template"]
}

fn container<'a>(plan: &'a ServicePlan, end: &str) -> &'a Value {
    &template(plan, end)["spec"]["containers"][0]
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|word| word.as_str().unwrap().to_owned()).collect()
}

fn args(plan: &ServicePlan) -> String {
    strings(&container(plan, "-engine")["args"]).join(" ")
}

/// `NAME=value`s that were not injected, in their order.
fn env(plan: &ServicePlan, end: &str) -> String {
    const INJECTED: [&str; 5] =
        ["MODEL_PATH", "INFERENCESERVICE_NAME", "NAMESPACE", "PARALLELISM_SIZE", "SERVED_MODEL_NAME"];
    let all = container(plan, end)["env"].as_array().unwrap().iter();
    let own = all.filter(|entry| !INJECTED.contains(&entry["name"].as_str().unwrap()));
    own.map(|entry| format!("{}={}", entry["name"].as_str().unwrap(), entry["value"].as_str().unwrap()))
        .collect::<Vec<_>>()
        .join(" ")
}

fn variable<'a>(plan: &'a ServicePlan, name: &str) -> &'a str {
    let all = container(plan, "-engine")["env"].as_array().unwrap();
    all.iter().find(|entry| entry["name"] == name).and_then(|entry| entry["value"].as_str()).unwrap_or_default()
}

fn class(plan: &ServicePlan) -> Option<&str> {
    plan.components["engine"].accelerator_class.as_deref()
}

fn codes(plan: &ServicePlan) -> Vec<&str> {
    plan.warnings.iter().map(|warning| warning.code.as_str()).collect()
}

/// `field` of the engine's settings: value, origin, and what was overridden.
fn setting(plan: &ServicePlan, field: &str) -> (String, &'static str, Vec<String>) {
    let all = &plan.settings["engine"];
    let one = all.iter().find(|setting| setting.field == field).unwrap_or_else(|| panic!("no {field} in {all:?}"));
    (one.value.clone(), one.origin.as_str(), one.overridden.iter().map(|said| said.value.clone()).collect())
}

/// A node with eight accelerators.
fn node(name: &str, product: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{nvidia.com/gpu.product: {product}}}}}, \
         status: {{allocatable: {{nvidia.com/gpu: \"8\"}}}}}}"
    )
}

/// A service of `ome.io` in the namespace `default`.
fn service(name: &str, spec: &str) -> String {
    format!("{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: {name}}}, spec: {spec}}}")
}

/// Verdicts of the selected or nearest runtime by class.
fn verdicts(plan: &ServicePlan) -> BTreeMap<&str, &str> {
    let accelerators = &plan.candidates[0].accelerators;
    accelerators.iter().map(|one| (one.class.as_str(), one.evaluation.code())).collect()
}
