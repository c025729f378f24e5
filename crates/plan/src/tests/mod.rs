//! Whole services, from manifests to objects.

mod gangs;
mod launch_lines;
mod ome;
mod roles;

use api::manifest;
use serde_json::Value;

use crate::{Plan, ServicePlan, Snapshot};

const SUPPLY: &str = include_str!("supply.yaml");

/// The services of `given` with the runtimes, models and classes of `supply.yaml`.
fn snapshot_of(given: &str) -> Snapshot {
    let given = manifest::read("given.yaml", given).unwrap();
    let supply = manifest::read("supply.yaml", SUPPLY).unwrap();
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
