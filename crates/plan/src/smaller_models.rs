//! Proposes smaller models for a service whose model does not fit the available capacity.

use api::ome;
use decide::{Demand, ProposedChange, Remedy, Supply};

use crate::demand;
use crate::owner::Owner;
use crate::snapshot::{Model, Snapshot};

/// Largest number of proposed models.
const MAX_PROPOSED: usize = 2;
/// Largest number of models to evaluate.
const MAX_EVALUATED: usize = 64;

/// Returns remedies with smaller models that fit the free capacity: models of the same family first, larger ones before
/// smaller ones. Empty for a service that does not wait for capacity.
pub(crate) fn smaller_model_remedies(
    snapshot: &Snapshot,
    service: &ome::InferenceService,
    demand: &Demand,
    owner: &Owner,
    supply: &Supply,
) -> Vec<Remedy> {
    let Some(model) = demand.model.resolved() else { return Vec::new() };
    let current = decide::decide(demand, supply, None);
    if current.feasible && decide::components_without_capacity(&current) == 0 {
        return Vec::new();
    }
    let candidates = smaller_models(snapshot, service, model, owner);
    let evaluate = |(model, candidate): (&Model, decide::Model)| {
        let demand = demand::read_demand(snapshot, service, Some(model), owner).ok()?;
        let outcome = decide::decide(&demand, supply, None);
        let change = ProposedChange::SmallerModel {
            to: candidate.name,
            parameters: candidate.parameters,
            quantization: candidate.quantization,
        };
        (outcome.feasible && decide::components_without_capacity(&outcome) == 0).then_some(Remedy {
            prerequisite: None,
            change,
            outcome,
        })
    };
    candidates.into_iter().take(MAX_EVALUATED).filter_map(evaluate).take(MAX_PROPOSED).collect()
}

/// Returns the smaller models that the service may reference, most similar to `model` first.
fn smaller_models<'s>(
    snapshot: &'s Snapshot,
    service: &ome::InferenceService,
    model: &decide::Model,
    owner: &Owner,
) -> Vec<(&'s Model, decide::Model)> {
    let Some(weights) = decide::estimated_memory(model) else { return Vec::new() };
    let kind = service.spec.model.as_ref().and_then(|model| model.kind.as_deref());
    let can_be_referenced = |model: &&Model| {
        let resolved = snapshot.model(&owner.namespace, &model.name, kind);
        resolved.is_some_and(|resolved| std::ptr::eq(resolved, *model)) && model.spec.disabled != Some(true)
    };
    let parse = |model: &'s Model| Some((model, decide::Model::from_api(&model.name, &model.spec).ok()?));
    let mut candidates: Vec<(&Model, decide::Model)> =
        snapshot.models.iter().filter(can_be_referenced).filter_map(parse).collect();
    candidates.retain(|(_, candidate)| decide::estimated_memory(candidate).is_some_and(|memory| memory < weights));
    candidates.sort_by_cached_key(|(_, candidate)| {
        let is_other_architecture = candidate.architecture.is_none() || candidate.architecture != model.architecture;
        let similarity =
            std::cmp::Reverse((common_prefix_words(&candidate.name, &model.name), decide::estimated_memory(candidate)));
        (is_other_architecture, similarity, candidate.name.clone())
    });
    candidates
}

/// Returns the number of leading words that two names share: three for `llama-3-1-405b` and `llama-3-1-70b`.
fn common_prefix_words(a: &str, b: &str) -> usize {
    a.split('-').zip(b.split('-')).take_while(|(a, b)| a == b).count()
}
