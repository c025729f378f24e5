//! Detects role-based services whose names and roles produce the same workload name: service `a` with role `b-c`, and
//! service `a-b` with role `c`.

use api::Finding;
use api::fusioninfer::{self, ComponentType, InferenceService};
use cluster::metadata_field;
use plan::LeaderWorkerSetNames;
use serde::Deserialize;
use serde_json::Value;

/// Names that the roles of all role-based services produce.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkloadNames(Vec<RoleNames>);

/// Names of one role of one service.
#[derive(Clone, Debug)]
struct RoleNames {
    namespace: String,
    service: String,
    role: String,
    sets: LeaderWorkerSetNames,
}

// === impl WorkloadNames ===

impl WorkloadNames {
    pub(super) fn add(&mut self, service: &Value) {
        self.0.extend(role_names(service));
    }

    /// Returns an error for each role of `service` that produces the same name as a role of another service.
    pub(super) fn validate(&self, service: &Value) -> Vec<Finding> {
        let conflict = |(index, own_role): (usize, &RoleNames)| {
            let others = self
                .0
                .iter()
                .filter(|other| other.namespace == own_role.namespace && other.service != own_role.service);
            others
                .into_iter()
                .find_map(|other| Some(finding(index, own_role, other, &own_role.sets.conflict(&other.sets)?)))
        };
        role_names(service).iter().enumerate().filter_map(conflict).collect()
    }
}

fn role_names(service: &Value) -> Vec<RoleNames> {
    if service["apiVersion"] != fusioninfer::API_VERSION {
        return Vec::new();
    }
    let Ok(service_spec) = InferenceService::deserialize(service) else { return Vec::new() };
    let namespace =
        Some(metadata_field(service, "namespace")).filter(|namespace| !namespace.is_empty()).unwrap_or("default");
    let role_names_of = |role: &fusioninfer::Role| RoleNames {
        namespace: namespace.to_owned(),
        service: metadata_field(service, "name").to_owned(),
        role: role.name.clone(),
        sets: LeaderWorkerSetNames::new(metadata_field(service, "name"), role),
    };
    let engines = service_spec.spec.roles.iter().filter(|role| role.component_type != ComponentType::Router);
    engines.map(role_names_of).collect()
}

fn finding(index: usize, own_role: &RoleNames, other: &RoleNames, name: &str) -> Finding {
    let message = format!(
        "role {} creates {name}, which role {} of InferenceService {} also creates",
        own_role.role, other.role, other.service
    );
    let hint = Some("rename the service or the role".to_owned());
    Finding { hint, ..Finding::error(format!("spec.roles[{index}].name"), message) }
}
