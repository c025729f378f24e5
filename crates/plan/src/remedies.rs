//! Remedies: changes that would make an infeasible service feasible, or let it run without waiting for capacity.

use api::{Code, ome};
use decide::Remedy;

use crate::claims::Claim;
use crate::code;
use crate::current_selection::current_selection;
use crate::demand;
use crate::service_plan::{
    CurrentSelectionPolicy, Plan, ServicePlan, plan_each, plan_service_with_claims, service_owner,
};
use crate::smaller_models;
use crate::snapshot::{Model, Service, Snapshot};
use crate::supply::read_supply;

/// Maximum number of models that a remedy lists.
const MAX_MODELS: usize = 4;

/// Plans every service of the snapshot like [`plan`](crate::plan), and adds the remedies of infeasible services, which take
/// longer to compute than the plan.
pub fn plan_with_remedies(snapshot: &Snapshot) -> Plan {
    plan_each(snapshot, |claims, service, plan| {
        if !plan.feasible {
            plan.remedies = infeasible_remedies(snapshot, claims, service, plan);
        }
    })
}

/// Returns changes that would make an infeasible service feasible, or let it run without waiting for capacity. Each remedy is
/// computed by deciding again with one constraint removed. If the service would wait for capacity after every edit, also
/// returns smaller models. Role-based services need no selection, so their list is empty.
pub fn remedies(snapshot: &Snapshot, service: &Service) -> Vec<Remedy> {
    remedies_with_claims(snapshot, &snapshot.claims, service)
}

/// Returns the remedy for a service that no change of [`remedies`] makes feasible: other models for which it is.
pub fn other_models_remedy(snapshot: &Snapshot, service: &Service) -> Option<String> {
    other_models_remedy_with_claims(snapshot, &snapshot.claims, service)
}

/// Returns the remedies of an infeasible service as sentences. If no change is known that makes it feasible, the remedy is that
/// of the reason code.
fn infeasible_remedies(snapshot: &Snapshot, claims: &[Claim], service: &Service, plan: &ServicePlan) -> Vec<String> {
    let remedy_of_code = |codes: &[Code]| {
        let code = codes.iter().find(|code| code.as_str() == plan.reason)?;
        Some(code.remedy().to_owned())
    };
    // The manifest is invalid, or cannot be converted into objects, so that another selection would not help.
    if let Some(remedy) = remedy_of_code(code::error::ALL) {
        return vec![remedy];
    }
    let is_selected = plan.runtime.is_some();
    let remedies = if is_selected { Vec::new() } else { remedies_with_claims(snapshot, claims, service) };
    let mut remedies: Vec<String> = remedies.iter().map(ToString::to_string).collect();
    if remedies.is_empty() && !is_selected {
        remedies.extend(other_models_remedy_with_claims(snapshot, claims, service));
    }
    if remedies.is_empty() {
        remedies.extend(remedy_of_code(decide::code::outcome::ALL));
    }
    remedies
}

fn remedies_with_claims(snapshot: &Snapshot, claims: &[Claim], service: &Service) -> Vec<Remedy> {
    let Service::Ome(service) = service else { return Vec::new() };
    let owner = service_owner(service.as_ref(), ome::API_VERSION);
    let model = demand::find_model(snapshot, service, &owner);
    let Ok(demand) = demand::read_demand(snapshot, service, model, &owner) else { return Vec::new() };
    let supply = read_supply(snapshot, claims, &owner).0;
    let suggestion = demand::suggest_model_name(snapshot, service, &demand, &owner, &supply);
    let current = current_selection(service, &demand);
    let mut remedies: Vec<Remedy> =
        suggestion.into_iter().chain(decide::find_remedies(&demand, &supply, current.as_ref())).collect();
    if !remedies
        .iter()
        .any(|remedy| remedy.is_manifest_edit() && decide::components_without_capacity(&remedy.outcome) == 0)
    {
        remedies.extend(smaller_models::smaller_model_remedies(snapshot, service, &demand, &owner, &supply));
    }
    remedies
}

fn other_models_remedy_with_claims(snapshot: &Snapshot, claims: &[Claim], service: &Service) -> Option<String> {
    let Service::Ome(service) = service else { return None };
    let namespace = service_owner(service.as_ref(), ome::API_VERSION).namespace;
    let is_visible = |model: &&Model| model.namespace.as_ref().is_none_or(|of_model| *of_model == namespace);
    let is_feasible = |model: &&Model| {
        let mut changed = service.clone();
        changed.spec.model = Some(ome::ModelRef { name: model.name.clone(), ..ome::ModelRef::default() });
        let changed = Service::Ome(changed);
        plan_service_with_claims(snapshot, claims, &changed, CurrentSelectionPolicy::Retain).feasible
    };
    let mut models = snapshot.models.iter().filter(is_visible).filter(is_feasible);
    let names: Vec<&str> = models.by_ref().take(MAX_MODELS).map(|model| model.name.as_str()).collect();
    let more = match models.count() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    (!names.is_empty())
        .then(|| format!("set spec.model.name to another model that can be served: {}{more}", names.join(", ")))
}
