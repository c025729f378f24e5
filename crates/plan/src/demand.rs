//! Reads the demand of a service, and suggests a model when the named one does not exist.

use api::ome;
use decide::{Demand, FieldError, ModelReference, ProposedChange, Remedy, Supply, nearest_name};

use crate::owner::Owner;
use crate::snapshot::{Model, Snapshot};

/// Returns the model that the service names, if it exists.
pub(crate) fn find_model<'s>(
    snapshot: &'s Snapshot,
    service: &ome::InferenceService,
    owner: &Owner,
) -> Option<&'s Model> {
    let model = service.spec.model.as_ref()?;
    snapshot.model(&owner.namespace, &model.name, model.kind.as_deref())
}

/// Reads the demand of the service. For a model that does not exist, adds the most similar name.
///
/// # Errors
/// The path and the reason of an invalid version, capability or annotation.
pub(crate) fn read_demand(
    snapshot: &Snapshot,
    service: &ome::InferenceService,
    model: Option<&Model>,
    owner: &Owner,
) -> Result<Demand, FieldError> {
    let mut demand = Demand::from_api(service, model.map(|model| (model.name.as_str(), &model.spec)))?;
    if let ModelReference::NotFound { name, suggestion } = &mut demand.model {
        let kind = service.spec.model.as_ref().and_then(|model| model.kind.as_deref());
        let is_visible = |model: &&Model| match &model.namespace {
            Some(namespace) => *namespace == owner.namespace,
            None => kind != Some("BaseModel"),
        };
        let names = snapshot.models.iter().filter(is_visible).map(|model| model.name.as_str());
        *suggestion = nearest_name(name, names).map(str::to_owned);
    }
    Ok(demand)
}

/// Returns a remedy that uses the model with the most similar name, if that is feasible.
pub(crate) fn suggest_model_name(
    snapshot: &Snapshot,
    service: &ome::InferenceService,
    demand: &Demand,
    owner: &Owner,
    supply: &Supply,
) -> Option<Remedy> {
    let ModelReference::NotFound { name: from, suggestion: Some(to) } = &demand.model else { return None };
    let model = snapshot.model(&owner.namespace, to, service.spec.model.as_ref()?.kind.as_deref());
    let outcome = decide::decide(&read_demand(snapshot, service, model, owner).ok()?, supply, None);
    let change = ProposedChange::CorrectModelName { from: from.clone(), to: to.clone() };
    outcome.feasible.then_some(Remedy { prerequisite: None, change, outcome })
}
