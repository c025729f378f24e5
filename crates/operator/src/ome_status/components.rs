//! Computes `status.components` of an `ome.io` InferenceService.

use std::collections::BTreeSet;

use cluster::metadata_field;
use decide::ComponentDecision;
use plan::labels::COMPONENT;
use serde_json::{Map, Value, json};

use super::observations::OmeObservations;
use crate::readiness::Progress;
use crate::workloads::PlannedWorkload;

/// Returns the components with counts from the workloads, the accelerator class from the plan and the URL from the
/// Service. With an infeasible plan, they are those of the existing workloads.
pub(super) fn components(observations: &OmeObservations<'_>) -> Map<String, Value> {
    if !observations.plan.feasible {
        let names: BTreeSet<&str> = observations.workloads.iter().filter_map(component_name).collect();
        return names.into_iter().map(|name| (name.to_owned(), retained_component(observations, name))).collect();
    }
    let planned = observations.plan.components.iter();
    planned.map(|(name, decision)| (name.clone(), component(observations, name, decision))).collect()
}

fn component_name(workload: &PlannedWorkload) -> Option<&str> {
    workload.planned["metadata"]["labels"][COMPONENT].as_str()
}

/// Returns the recorded component with the current counts of its workloads.
fn retained_component(observations: &OmeObservations<'_>, name: &str) -> Value {
    let mut component = match &observations.service["status"]["components"][name] {
        Value::Object(recorded) => Value::Object(recorded.clone()),
        _ => json!({}),
    };
    let progress = component_progress(observations, name);
    component["replicas"] = sum(progress.iter().map(|replicas| replicas.desired)).into();
    component["readyReplicas"] = sum(progress.iter().map(|replicas| replicas.ready)).into();
    if let Some(url) = component_url(observations, name) {
        component["url"] = url.into();
    }
    component
}

/// Adds counts of live objects, in which users may have written any number.
fn sum(counts: impl Iterator<Item = i64>) -> i64 {
    counts.fold(0, i64::saturating_add)
}

/// Returns the progress of each existing workload of a component.
fn component_progress(observations: &OmeObservations<'_>, name: &str) -> Vec<Progress> {
    let workloads = observations.workloads.iter().filter(|workload| component_name(workload) == Some(name));
    let live = workloads.filter_map(|workload| workload.live.as_ref());
    live.map(|workload| Progress::from_workload(&workload.object)).collect()
}

fn component_url(observations: &OmeObservations<'_>, name: &str) -> Option<String> {
    let objects = observations.services.iter().chain(&observations.plan.objects);
    let is_of_component = |object: &&Value| object["metadata"]["labels"][COMPONENT] == name;
    objects.filter(|object| object["kind"] == "Service").filter(is_of_component).find_map(url)
}

fn component(observations: &OmeObservations<'_>, name: &str, decision: &ComponentDecision) -> Value {
    let is_of_component = |object: &Value| object["metadata"]["labels"][COMPONENT] == name;
    let progress = component_progress(observations, name);
    // Until the workloads exist, other services must know how many replicas will use accelerators.
    let desired = match progress.as_slice() {
        [] => i64::from(decision.replicas),
        progress => sum(progress.iter().map(|replicas| replicas.desired)),
    };
    let obsolete = observations.replacement.retained().filter(|workload| is_of_component(&workload.object));
    let ready_of_obsolete = obsolete.map(|workload| Progress::from_workload(&workload.object).ready);
    let ready = sum(progress.iter().map(|replicas| replicas.ready).chain(ready_of_obsolete));
    let mut component = json!({"replicas": desired, "readyReplicas": ready});
    if decision.nodes > 1 {
        component["nodes"] = decision.nodes.into();
    }
    if let Some(class) = &decision.accelerator_class {
        component["selectedAccelerator"] = selected_accelerator(class, decision);
    }
    if !decision.variants.is_empty() {
        component["variants"] = json!(decision.variants);
    }
    if let Some(url) = component_url(observations, name) {
        component["url"] = url.into();
    }
    component
}

/// Renders the selected class with the resources that its Pods request.
fn selected_accelerator(class: &str, decision: &ComponentDecision) -> Value {
    let mut selected_accelerator = json!({"acceleratorClass": class});
    if let Some(resource) = &decision.resource {
        selected_accelerator["resourceRequests"] = json!({resource: decision.accelerators_per_node.to_string()});
    }
    selected_accelerator
}

/// Returns the URL of a Service inside the cluster.
fn url(service: &Value) -> Option<String> {
    let port = service["spec"]["ports"][0]["port"].as_i64()?;
    let port = if port == 80 { String::new() } else { format!(":{port}") };
    Some(format!(
        "http://{}.{}.svc.cluster.local{port}",
        metadata_field(service, "name"),
        metadata_field(service, "namespace")
    ))
}
