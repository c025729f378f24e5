//! Role-based services whose names and roles compose to one name: `a` with role `b-c`, and `a-b` with role `c`.

use api::fusioninfer::{self, ComponentType, InferenceService};
use api::lint::Finding;
use cluster::object::meta;
use plan::names::ReplicaSets;
use serde::Deserialize;
use serde_json::Value;

/// What the roles of every role-based service make.
#[derive(Clone, Debug, Default)]
pub(super) struct SetNames(Vec<Holder>);

/// One role of one service.
#[derive(Clone, Debug)]
struct Holder {
    namespace: String,
    service: String,
    role: String,
    sets: ReplicaSets,
}

// === impl SetNames ===

impl SetNames {
    pub(super) fn add(&mut self, service: &Value) {
        self.0.extend(holders(service));
    }

    /// Roles of `service` whose names another service's role composes too; of each the first.
    pub(super) fn check(&self, service: &Value) -> Vec<Finding> {
        let told = |(index, own): (usize, &Holder)| {
            let others = self.0.iter().filter(|other| other.namespace == own.namespace && other.service != own.service);
            others.into_iter().find_map(|other| Some(finding(index, own, other, &own.sets.clash(&other.sets)?)))
        };
        holders(service).iter().enumerate().filter_map(told).collect()
    }
}

fn holders(service: &Value) -> Vec<Holder> {
    if service["apiVersion"] != fusioninfer::API_VERSION {
        return Vec::new();
    }
    let Ok(read) = InferenceService::deserialize(service) else { return Vec::new() };
    let namespace = Some(meta(service, "namespace")).filter(|stated| !stated.is_empty()).unwrap_or("default");
    let holder = |role: &fusioninfer::Role| Holder {
        namespace: namespace.to_owned(),
        service: meta(service, "name").to_owned(),
        role: role.name.clone(),
        sets: ReplicaSets::of(meta(service, "name"), role),
    };
    let engines = read.spec.roles.iter().filter(|role| role.component_type != ComponentType::Router);
    engines.map(holder).collect()
}

fn finding(index: usize, own: &Holder, other: &Holder, name: &str) -> Finding {
    let message = format!(
        "role {} makes {name}, and so does role {} of InferenceService {}",
        own.role, other.role, other.service
    );
    let hint = Some("rename the service or the role".to_owned());
    Finding { hint, ..Finding::error(format!("spec.roles[{index}].name"), message) }
}
