//! Computes `status.components` of an `ome.io` InferenceService.

use cluster::metadata_field;
use decide::ComponentDecision;
use plan::labels::COMPONENT;
use serde_json::{Map, Value, json};

use super::observations::OmeObservations;
use crate::readiness::Progress;
use crate::workloads::LiveWorkload;

/// Returns the components with counts from the workloads, the accelerator class from the plan and the URL from the
/// Service.
pub(super) fn components(observations: &OmeObservations<'_>) -> Map<String, Value> {
    let planned = observations.plan.components.iter();
    planned.map(|(name, decision)| (name.clone(), component(observations, name, decision))).collect()
}

fn component(observations: &OmeObservations<'_>, name: &str, decision: &ComponentDecision) -> Value {
    let is_of_component = |object: &Value| object["metadata"]["labels"][COMPONENT] == name;
    let live: Vec<&LiveWorkload> = observations
        .workloads
        .iter()
        .filter(|workload| is_of_component(&workload.planned))
        .filter_map(|workload| workload.live.as_ref())
        .collect();
    let progress: Vec<Progress> = live.iter().map(|workload| Progress::from_workload(&workload.object)).collect();
    // Until the workloads exist, other services must know how many replicas will use accelerators.
    let desired = match progress.as_slice() {
        [] => i64::from(decision.replicas),
        progress => progress.iter().map(|replicas| replicas.desired).sum(),
    };
    let obsolete = observations.replacement.retained().filter(|workload| is_of_component(&workload.object));
    let ready_of_obsolete = obsolete.map(|workload| Progress::from_workload(&workload.object).ready).sum::<i64>();
    let ready = progress.iter().map(|replicas| replicas.ready).sum::<i64>() + ready_of_obsolete;
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
    let objects = observations.services.iter().chain(&observations.plan.objects);
    if let Some(url) = objects.filter(|object| object["kind"] == "Service" && is_of_component(object)).find_map(url) {
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
