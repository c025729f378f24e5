//! The autoscaler of a component, where there is anything to scale.

use serde_json::{Value, json};

use crate::labels;
use crate::names;
use crate::topology::{Owner, Role, ScaleMetric, Scaler, Workload};

/// Of a resource metric a HorizontalPodAutoscaler, of a query a ScaledObject; only if max > min.
pub(crate) fn render(owner: &Owner, role: &Role) -> Option<Value> {
    if !role.replicas.scaled() {
        return None;
    }
    let (api_version, kind, spec) = match &role.replicas.scaler {
        Scaler::Utilization { metric, target } => {
            ("autoscaling/v2", "HorizontalPodAutoscaler", utilization(owner, role, *metric, *target))
        }
        Scaler::Prometheus { server, query, threshold } => {
            let trigger = json!({"serverAddress": server, "query": query, "threshold": threshold});
            (api::neighbours::SCALED_OBJECT, "ScaledObject", scaled_object(owner, role, trigger))
        }
    };
    let name = names::component(&owner.name, &role.name);
    Some(json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": owner.metadata(&name, &labels::managed(&role.labels)),
        "spec": spec,
    }))
}

fn utilization(owner: &Owner, role: &Role, metric: ScaleMetric, target: u32) -> Value {
    let metric = match metric {
        ScaleMetric::Cpu => "cpu",
        ScaleMetric::Memory => "memory",
    };
    json!({
        "scaleTargetRef": scaled(owner, role),
        "minReplicas": role.replicas.min,
        "maxReplicas": role.replicas.max,
        "metrics": [{
            "type": "Resource",
            "resource": {"name": metric, "target": {"type": "Utilization", "averageUtilization": target}},
        }],
    })
}

/// The query is one number for all replicas, of which each takes `threshold`.
fn scaled_object(owner: &Owner, role: &Role, trigger: Value) -> Value {
    json!({
        "scaleTargetRef": scaled(owner, role),
        "minReplicaCount": role.replicas.min,
        "maxReplicaCount": role.replicas.max,
        "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": trigger}],
    })
}

/// Both kinds have the scale subresource; one replica of a LeaderWorkerSet is a group.
fn scaled(owner: &Owner, role: &Role) -> Value {
    let (api_version, kind) = match role.workload {
        Workload::Deployment => ("apps/v1", "Deployment"),
        Workload::LeaderWorkerSet | Workload::LeaderWorkerSetPerReplica => {
            (api::neighbours::LEADER_WORKER_SET, "LeaderWorkerSet")
        }
    };
    json!({"apiVersion": api_version, "kind": kind, "name": names::workload(owner, role)})
}
