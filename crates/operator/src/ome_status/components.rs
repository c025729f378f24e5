//! `status.components` of an `ome.io` service.

use cluster::object::meta;
use decide::decision::ComponentDecision;
use plan::labels::COMPONENT;
use serde_json::{Map, Value, json};

use super::Findings;
use crate::readiness::Progress;
use crate::readings::Workload;

/// Counts from the workloads, the class from the plan, the address from the planned Service.
pub(super) fn components(findings: &Findings<'_>, reason: &Value) -> Map<String, Value> {
    let planned = findings.plan.components.iter();
    planned.map(|(name, choice)| (name.clone(), component(findings, name, choice, reason))).collect()
}

fn component(findings: &Findings<'_>, name: &str, choice: &ComponentDecision, reason: &Value) -> Value {
    let label = |object: &Value| object["metadata"]["labels"][COMPONENT] == name;
    let live: Vec<&Workload> = findings
        .workloads
        .iter()
        .filter(|wanted| label(&wanted.planned))
        .filter_map(|wanted| wanted.live.as_ref())
        .collect();
    let progress: Vec<Progress> = live.iter().map(|workload| Progress::of(&workload.object)).collect();
    let mut component = json!({
        "replicas": progress.iter().map(|one| one.desired).sum::<i64>(),
        "readyReplicas": progress.iter().map(|one| one.ready).sum::<i64>(),
    });
    if let Some(class) = &choice.accelerator_class {
        component["selectedAccelerator"] = selected(class, choice, reason);
    }
    let objects = findings.plan.objects.iter();
    if let Some(url) = objects.filter(|object| object["kind"] == "Service" && label(object)).find_map(url) {
        component["url"] = url.into();
    }
    component
}

/// The class with what its Pods request, and the reason that the decision has.
fn selected(class: &str, choice: &ComponentDecision, reason: &Value) -> Value {
    let mut selected = json!({"acceleratorClass": class, "reason": reason});
    if let Some(resource) = &choice.resource {
        selected["resourceRequests"] = json!({resource: choice.accelerators_per_node.to_string()});
    }
    selected
}

/// The address of a Service inside the cluster.
fn url(service: &Value) -> Option<String> {
    let port = service["spec"]["ports"][0]["port"].as_i64()?;
    let port = if port == 80 { String::new() } else { format!(":{port}") };
    Some(format!("http://{}.{}.svc.cluster.local{port}", meta(service, "name"), meta(service, "namespace")))
}
