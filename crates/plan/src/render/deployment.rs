//! A single-node component with all its replicas.

use serde_json::{Value, json};

use crate::labels;
use crate::names;
use crate::topology::{Owner, Role};

/// `{service}-{component}`. Where an autoscaler owns the number of replicas, we do not state one: two writers would fight.
pub(crate) fn render(owner: &Owner, role: &Role) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": role.selector},
        // A new engine is up before the old one goes; where GPUs are scarce the user states another strategy.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": role.template,
    });
    if !role.replicas.scaled() {
        spec["replicas"] = json!(role.replicas.min);
    }
    if let Some(strategy) = &role.strategy {
        spec["strategy"] = strategy.clone();
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": owner.metadata(&names::workload(owner, role), &labels::managed(&role.labels)),
        "spec": spec,
    })
}
