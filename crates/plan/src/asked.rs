//! What a service asks for, and what it may have meant where it names a model that does not exist.

use api::ome;
use decide::demand::{Demand, ModelDemand};
use decide::nearest::nearest;
use decide::read::ReadError;
use decide::remedy::{Change, Remedy};
use decide::supply::Supply;

use crate::snapshot::{Model, Snapshot};
use crate::topology::Owner;

/// The model that the service names, if it exists.
pub(crate) fn model<'s>(snapshot: &'s Snapshot, service: &ome::InferenceService, owner: &Owner) -> Option<&'s Model> {
    let model = service.spec.model.as_ref()?;
    snapshot.model(&owner.namespace, &model.name, model.kind.as_deref())
}

/// What the service asks for; of a model that does not exist, the one that may have been meant.
///
/// # Errors
/// A version, capability or annotation that cannot be understood, with its path.
pub(crate) fn demand(
    snapshot: &Snapshot,
    service: &ome::InferenceService,
    model: Option<&Model>,
    owner: &Owner,
) -> Result<Demand, ReadError> {
    let mut demand = Demand::of(service, model.map(|model| (model.name.as_str(), &model.spec)))?;
    if let ModelDemand::Missing { name, near } = &mut demand.model {
        let kind = service.spec.model.as_ref().and_then(|model| model.kind.as_deref());
        let visible = |model: &&Model| match &model.namespace {
            Some(namespace) => *namespace == owner.namespace,
            None => kind != Some("BaseModel"),
        };
        let known = snapshot.models.iter().filter(visible).map(|model| model.name.as_str());
        *near = nearest(name, known).map(str::to_owned);
    }
    Ok(demand)
}

/// The service with the model that its name comes nearest to, if that can be served.
pub(crate) fn meant(
    snapshot: &Snapshot,
    service: &ome::InferenceService,
    asked: &Demand,
    owner: &Owner,
    supply: &Supply,
) -> Option<Remedy> {
    let ModelDemand::Missing { name: from, near: Some(to) } = &asked.model else { return None };
    let model = snapshot.model(&owner.namespace, to, service.spec.model.as_ref()?.kind.as_deref());
    let outcome = decide::decide(&demand(snapshot, service, model, owner).ok()?, supply, None);
    let change = Change::ModelName { from: from.clone(), to: to.clone() };
    outcome.feasible.then_some(Remedy { first: None, change, outcome })
}
