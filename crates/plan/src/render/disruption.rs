//! Renders the PodDisruptionBudget of a role.

use serde_json::{Value, json};

use crate::labels;
use crate::names;
use crate::owner::Owner;
use crate::role::{Disruption, Role};

/// Renders a PodDisruptionBudget. Returns `None` for a single replica, where it would block every drain.
pub(crate) fn render(owner: &Owner, role: &Role) -> Option<Value> {
    let disruption = role.disruption.as_ref().filter(|_| role.replicas.max > 1)?;
    let (field, amount) = match disruption {
        Disruption::MinAvailable(amount) => ("minAvailable", amount),
        Disruption::MaxUnavailable(amount) => ("maxUnavailable", amount),
    };
    Some(json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owner.metadata(&names::component(&owner.name, &role.name), &labels::with_managed_by(&role.labels)),
        "spec": {"selector": {"matchLabels": role.workload_selector()}, field: amount},
    }))
}
