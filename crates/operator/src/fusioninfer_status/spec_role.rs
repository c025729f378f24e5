//! Roles of the spec of a role-based service.

use serde_json::Value;

/// A role of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    /// Name of the role.
    pub(crate) name: String,
    /// Whether the role serves or routes requests.
    pub(crate) kind: RoleKind,
    /// Desired replicas.
    pub(crate) replicas: i64,
    /// Pods per replica.
    pub(crate) nodes: i64,
}

/// Whether a role serves or routes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoleKind {
    /// The Pods serve requests.
    Engine,
    /// The Pods select the endpoint of a request.
    Router,
}

/// Returns the roles of the spec; unset counts default to 1. A router always counts as one replica on one node.
#[must_use]
pub(crate) fn spec_roles(service: &Value) -> Vec<Role> {
    let roles = service["spec"]["roles"].as_array().into_iter().flatten();
    let role = |role: &Value| {
        let is_router = role["componentType"] == "router";
        Role {
            name: role["name"].as_str().unwrap_or_default().to_owned(),
            kind: if is_router { RoleKind::Router } else { RoleKind::Engine },
            replicas: if is_router { 1 } else { role["replicas"].as_i64().unwrap_or(1) },
            nodes: if is_router { 1 } else { role["multinode"]["nodeCount"].as_i64().unwrap_or(1) },
        }
    };
    roles.map(role).collect()
}
