//! The stable address of one component.

use serde_json::{Value, json};

use crate::labels;
use crate::names;
use crate::topology::{Owner, Role};

/// ClusterIP Service of the component's name over all its replica sets, on the engine's own port: one number in URLs,
/// probes and flags.
pub(crate) fn render(owner: &Owner, role: &Role) -> Option<Value> {
    let labels = role.service.as_ref()?;
    Some(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(&names::component(&owner.name, &role.component), &labels::managed(labels)),
        "spec": {
            "selector": role.workload.answering(labels.clone()),
            "ports": [{"name": "http", "port": role.port, "targetPort": role.port, "protocol": "TCP"}],
        },
    }))
}
