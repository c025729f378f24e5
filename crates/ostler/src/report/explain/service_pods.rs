//! Which service a Pod belongs to, by its labels.

use cluster::Kind;
use operator::kinds;
use plan::{ServicePlan, labels};
use serde_json::Value;

use super::fields::text;
use crate::cluster_objects::ClusterObjects;

/// Labels of the Pods of services, and the kinds of these services.
const SERVICE_LABELS: [(&str, Kind); 2] =
    [(labels::OME_SERVICE, kinds::OME_SERVICE), (labels::SERVICE, kinds::FUSIONINFER_SERVICE)];

/// Returns kind and label value of the service that the Pod belongs to.
pub(super) fn service_of(pod: &Value) -> Option<(Kind, &str)> {
    let labels = &pod["metadata"]["labels"];
    SERVICE_LABELS.iter().find_map(|(label, kind)| Some((*kind, labels[label].as_str()?)))
}

/// Returns the Pods of a service.
pub(crate) fn service_pods<'a>(service: &Value, objects: &'a ClusterObjects) -> Vec<&'a Value> {
    objects.pods.iter().filter(|pod| is_pod_of(pod, service)).collect()
}

/// Returns the Pods without those of earlier revisions of a Deployment of which newer Pods exist: their problems may be
/// solved already.
pub(crate) fn current_pods<'a>(pods: &[&'a Value]) -> Vec<&'a Value> {
    let is_replaced = |pod: &Value| {
        let created = text(pod, "/metadata/creationTimestamp");
        pods.iter().any(|other| is_other_revision(pod, other) && text(other, "/metadata/creationTimestamp") > created)
    };
    pods.iter().copied().filter(|pod| !is_replaced(pod)).collect()
}

/// Returns the Pods without those of workloads that the plan replaces, if Pods of the replacing workload exist. The operator
/// stops the former once the latter are ready.
pub(super) fn without_replaced_workloads<'a>(pods: Vec<&'a Value>, plan: Option<&ServicePlan>) -> Vec<&'a Value> {
    let Some(plan) = plan.filter(|plan| plan.feasible) else { return pods };
    let is_planned = |pod: &Value| {
        workload_of(pod).is_none_or(|(kind, name)| {
            let is_workload = |object: &Value| text(object, "/kind") == kind && text(object, "/metadata/name") == name;
            plan.objects.iter().any(is_workload)
        })
    };
    let planned: Vec<&Value> = pods.iter().copied().filter(|pod| is_planned(pod)).collect();
    if planned.is_empty() { pods } else { planned }
}

/// Returns kind and name of the workload that creates the Pod; `None` if it is neither a LeaderWorkerSet nor a Deployment.
pub(super) fn workload_of(pod: &Value) -> Option<(&'static str, &str)> {
    match pod["metadata"]["labels"][labels::LEADER_WORKER_SET_NAME].as_str() {
        Some(name) => Some(("LeaderWorkerSet", name)),
        None => Some(("Deployment", deployment_and_revision(pod)?.0.strip_suffix('-')?)),
    }
}

/// Returns whether both Pods belong to the same Deployment, but to different revisions of it.
pub(super) fn is_other_revision(pod: &Value, other: &Value) -> bool {
    let deployment = deployment_and_revision(pod);
    let other_deployment = deployment_and_revision(other);
    deployment.zip(other_deployment).is_some_and(|((name, revision), (other_name, other_revision))| {
        pod["metadata"]["namespace"] == other["metadata"]["namespace"]
            && name == other_name
            && revision != other_revision
    })
}

/// Returns the name of the Deployment of a Pod, and the hash of its template. The name of a ReplicaSet consists of both.
fn deployment_and_revision(pod: &Value) -> Option<(&str, &str)> {
    let hash = pod["metadata"]["labels"]["pod-template-hash"].as_str()?;
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    let replica_set = owners.iter().find(|owner| owner["kind"] == "ReplicaSet")?["name"].as_str()?;
    Some((replica_set.strip_suffix(hash)?, hash))
}

fn is_pod_of(pod: &Value, service: &Value) -> bool {
    let name = plan::label_value(text(service, "/metadata/name"));
    let group = text(service, "/apiVersion").split('/').next().unwrap_or_default();
    let label = SERVICE_LABELS.iter().find(|(_, kind)| kind.group == group).map(|(label, _)| *label);
    pod["metadata"]["namespace"] == service["metadata"]["namespace"]
        && label.is_some_and(|label| pod["metadata"]["labels"][label] == name)
}
