//! Renders the autoscaler of a component.

use serde_json::{Value, json};

use crate::labels;
use crate::names;
use crate::owner::Owner;
use crate::replicas::{ResourceMetric, Scaler};
use crate::role::{Role, Workload};

/// Renders a HorizontalPodAutoscaler for a resource metric or a ScaledObject for a query, if the role has one.
pub(crate) fn render(owner: &Owner, role: &Role) -> Option<Value> {
    if !role.replicas.has_autoscaler() {
        return None;
    }
    let (api_version, kind, spec) = match &role.replicas.scaler {
        Scaler::Utilization { metric, target } => {
            ("autoscaling/v2", "HorizontalPodAutoscaler", utilization(owner, role, *metric, *target))
        }
        Scaler::Prometheus { server, query, threshold } => {
            let trigger = json!({"serverAddress": server, "query": query, "threshold": threshold});
            (api::integrations::SCALED_OBJECT_API_VERSION, "ScaledObject", scaled_object(owner, role, trigger))
        }
    };
    let name = names::component(&owner.name, &role.name);
    Some(json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": owner.metadata(&name, &labels::with_managed_by(&role.labels)),
        "spec": spec,
    }))
}

/// Renders the spec of a HorizontalPodAutoscaler.
fn utilization(owner: &Owner, role: &Role, metric: ResourceMetric, target: u32) -> Value {
    let metric = match metric {
        ResourceMetric::Cpu => "cpu",
        ResourceMetric::Memory => "memory",
    };
    json!({
        "scaleTargetRef": scale_target(owner, role),
        // It is inactive while the gateway has scaled the workload to zero.
        "minReplicas": role.replicas.min.max(1),
        "maxReplicas": role.replicas.max,
        "metrics": [{
            "type": "Resource",
            "resource": {"name": metric, "target": {"type": "Utilization", "averageUtilization": target}},
        }],
    })
}

/// Renders the spec of a ScaledObject. The query returns the total of all replicas, and `threshold` is the value per replica.
fn scaled_object(owner: &Owner, role: &Role, trigger: Value) -> Value {
    json!({
        "scaleTargetRef": scale_target(owner, role),
        "minReplicaCount": role.replicas.min,
        "maxReplicaCount": role.replicas.max,
        "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": trigger}],
    })
}

/// Returns the scale target. A replica of a LeaderWorkerSet is a group.
fn scale_target(owner: &Owner, role: &Role) -> Value {
    let (api_version, kind) = match role.workload {
        Workload::Deployment => ("apps/v1", "Deployment"),
        Workload::LeaderWorkerSet | Workload::LeaderWorkerSetPerReplica => {
            (api::integrations::LEADER_WORKER_SET_API_VERSION, "LeaderWorkerSet")
        }
    };
    json!({"apiVersion": api_version, "kind": kind, "name": names::workload(owner, role)})
}
