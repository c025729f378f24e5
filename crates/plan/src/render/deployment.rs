//! Renders the Deployment of a single-node component.

use serde_json::{Value, json};

use crate::labels;
use crate::names;
use crate::owner::Owner;
use crate::role::Role;

/// Renders the Deployment `{service}-{component}`. Omits `replicas` if an autoscaler manages the number.
pub(crate) fn render(owner: &Owner, role: &Role) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": role.workload_selector()},
        // Start the new Pod before stopping the old one. Users with scarce GPUs can set another strategy.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": role.workload_template(),
    });
    if !role.replicas.is_managed_by_others() {
        spec["replicas"] = json!(role.replicas.min);
    }
    if let Some(strategy) = &role.strategy {
        spec["strategy"] = strategy.clone();
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": owner.metadata(&names::workload(owner, role), &labels::with_managed_by(&role.labels)),
        "spec": spec,
    })
}
