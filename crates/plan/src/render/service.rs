//! Renders the Service of a component.

use serde_json::{Value, json};

use crate::labels;
use crate::names;
use crate::owner::Owner;
use crate::role::Role;

/// Renders the ClusterIP Service of a component over all its replica sets. The Service port equals the engine's port.
pub(crate) fn render(owner: &Owner, role: &Role) -> Option<Value> {
    let labels = role.service_selector.as_ref()?;
    Some(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(&names::component(&owner.name, &role.component), &labels::with_managed_by(labels)),
        "spec": {
            "selector": role.serving_selector(labels.clone()),
            "ports": [{"name": "http", "port": role.port, "targetPort": role.port, "protocol": "TCP"}],
        },
    }))
}
