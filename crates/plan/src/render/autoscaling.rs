//! The autoscaler of a component, where there is anything to scale.

use serde_json::{Value, json};

use crate::labels;
use crate::names;
use crate::topology::{Owner, Role, ScaleMetric, Workload};

/// A HorizontalPodAutoscaler on a resource metric, only if max > min.
pub(crate) fn render(owner: &Owner, role: &Role) -> Option<Value> {
    if !role.replicas.scaled() {
        return None;
    }
    let name = names::component(&owner.name, &role.name);
    let metric = match role.replicas.metric {
        ScaleMetric::Cpu => "cpu",
        ScaleMetric::Memory => "memory",
    };
    Some(json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": owner.metadata(&name, &labels::managed(&role.labels)),
        "spec": {
            "scaleTargetRef": target(owner, role),
            "minReplicas": role.replicas.min,
            "maxReplicas": role.replicas.max,
            "metrics": [{
                "type": "Resource",
                "resource": {"name": metric, "target": {"type": "Utilization", "averageUtilization": role.replicas.target}},
            }],
        },
    }))
}

/// Both kinds have the scale subresource; one replica of a LeaderWorkerSet is a group.
fn target(owner: &Owner, role: &Role) -> Value {
    let (api_version, kind) = match role.workload {
        Workload::Deployment => ("apps/v1", "Deployment"),
        Workload::LeaderWorkerSet | Workload::LeaderWorkerSetPerReplica => {
            (api::neighbours::LEADER_WORKER_SET, "LeaderWorkerSet")
        }
    };
    json!({"apiVersion": api_version, "kind": kind, "name": names::workload(owner, role)})
}
