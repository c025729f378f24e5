//! Smaller models that could be served at once, where the one asked for is too large for what there is.

use api::ome;
use decide::demand::{self, Demand};
use decide::fit;
use decide::remedy::{self, Change, Remedy};
use decide::supply::Supply;

use crate::asked;
use crate::snapshot::{Model, Snapshot};
use crate::topology::Owner;

/// Models proposed, and models tried to find them.
const SHOWN: usize = 2;
const TRIED: usize = 64;

/// Models with smaller weights that need not wait in place of the one asked for: its nearest relatives first, of those the
/// largest. Each is decided for the service as it is. Nothing for a service that is served at once.
pub(crate) fn models(
    snapshot: &Snapshot,
    service: &ome::InferenceService,
    asked: &Demand,
    owner: &Owner,
    supply: &Supply,
) -> Vec<Remedy> {
    let Some(model) = asked.model.known() else { return Vec::new() };
    let now = decide::decide(asked, supply, None);
    if now.feasible && remedy::waits(&now) == 0 {
        return Vec::new();
    }
    let smaller = smaller(snapshot, service, model, owner);
    let served = |(model, facts): (&Model, demand::Model)| {
        let asked = asked::demand(snapshot, service, Some(model), owner).ok()?;
        let outcome = decide::decide(&asked, supply, None);
        let change =
            Change::SmallerModel { to: facts.name, parameters: facts.parameters, quantization: facts.quantization };
        (outcome.feasible && remedy::waits(&outcome) == 0).then_some(Remedy { first: None, change, outcome })
    };
    smaller.into_iter().take(TRIED).filter_map(served).take(SHOWN).collect()
}

/// Models that the service may name instead, by nearness to `model`.
fn smaller<'s>(
    snapshot: &'s Snapshot,
    service: &ome::InferenceService,
    model: &demand::Model,
    owner: &Owner,
) -> Vec<(&'s Model, demand::Model)> {
    let Some(weights) = fit::weights(model) else { return Vec::new() };
    let kind = service.spec.model.as_ref().and_then(|model| model.kind.as_deref());
    let may_be_named = |one: &&Model| {
        let found = snapshot.model(&owner.namespace, &one.name, kind);
        found.is_some_and(|found| std::ptr::eq(found, *one)) && one.spec.disabled != Some(true)
    };
    let read = |one: &'s Model| Some((one, demand::Model::from_api(&one.name, &one.spec).ok()?));
    let mut all: Vec<(&Model, demand::Model)> = snapshot.models.iter().filter(may_be_named).filter_map(read).collect();
    all.retain(|(_, facts)| fit::weights(facts).is_some_and(|other| other < weights));
    all.sort_by_cached_key(|(_, facts)| {
        let stranger = facts.architecture.is_none() || facts.architecture != model.architecture;
        let nearness = std::cmp::Reverse((common_words(&facts.name, &model.name), fit::weights(facts)));
        (stranger, nearness, facts.name.clone())
    });
    all
}

/// Words that two names begin with together: `llama-3-1-405b` and `llama-3-1-70b` share three.
fn common_words(one: &str, other: &str) -> usize {
    one.split('-').zip(other.split('-')).take_while(|(a, b)| a == b).count()
}
