//! The autoscaler of a component, where there is anything to scale.

use serde_json::{Value, json};

use crate::labels;
use crate::names;
use crate::topology::{Owner, Role, ScaleMetric};

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
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": role.replicas.min,
            "maxReplicas": role.replicas.max,
            "metrics": [{
                "type": "Resource",
                "resource": {"name": metric, "target": {"type": "Utilization", "averageUtilization": role.replicas.target}},
            }],
        },
    }))
}
