//! Which runtime serves a model, on which accelerators, and why not another.
//!
//! In: what a service demands (`Demand`) and what is on offer (`Supply`). Out: a `Decision` that names the winner and a
//! reason for every loser. Nothing here sees a client, a clock, a random number or an environment variable, so `decide`
//! cannot fail for reasons outside its input, and the same input gives the same bytes.

pub mod compatibility;
pub mod decision;
pub mod demand;
pub mod eligibility;
pub mod fit;
pub mod inventory;
pub mod merge;
pub mod ranking;
pub mod read;
pub mod reason;
pub mod remedy;
pub mod strategy;
pub mod supply;
pub mod variants;

mod assess;
mod tell;

pub use decision::{
    AcceleratorCandidate, Candidate, ComponentDecision, Decision, Eligibility, Incumbent, RuntimeRef, Verdict,
};
pub use demand::{Component, Demand, Model, ModelDemand};
pub use supply::{Class, Runtime, Scope, Supply};
pub use variants::{TokenRange, Variant};

use assess::{Assessed, Outcome};
use reason::Warning;

/// Decides for one service. An incumbent that still may serve is kept, whatever ranks higher.
#[must_use]
pub fn decide(demand: &Demand, supply: &Supply, incumbent: Option<&Incumbent>) -> Decision {
    let runtimes = match in_question(demand, supply) {
        Ok(runtimes) => runtimes,
        Err(unknown) => return *unknown,
    };
    let mut assessed: Vec<Assessed<'_>> =
        runtimes.iter().map(|runtime| assess::assess(demand, runtime, supply)).collect();
    assessed.sort_by(assess::order);
    let kept = incumbent.and_then(|incumbent| keep(&mut assessed, incumbent));
    let chosen = kept.or_else(|| assessed.iter().position(|one| one.order().is_some()));
    match chosen {
        Some(index) => tell::selected(demand, supply, &assessed, index, kept.is_some()),
        None => tell::infeasible(demand, &assessed),
    }
}

/// The runtimes that may be chosen from: the named one, or all of the namespace and the cluster.
fn in_question(demand: &Demand, supply: &Supply) -> Result<Vec<Runtime>, Box<Decision>> {
    if let ModelDemand::Missing(name) = &demand.model {
        return Err(Box::new(tell::model_not_found(demand, name)));
    }
    let visible = || supply.runtimes.iter().filter(|runtime| visible(demand, runtime));
    if let Some(name) = &demand.runtime {
        // Namespaced before cluster; a runtime of another namespace never.
        let named = visible().filter(|runtime| runtime.name == *name).min_by_key(|runtime| runtime.scope);
        return named
            .map(|runtime| vec![runtime.clone()])
            .ok_or_else(|| Box::new(tell::runtime_not_found(demand, name, visible())));
    }
    if matches!(demand.model, ModelDemand::Unstated) {
        return own_runtime(demand)
            .map(|runtime| vec![runtime])
            .ok_or_else(|| Box::new(tell::no_engine_container(demand)));
    }
    Ok(visible().cloned().collect())
}

fn visible(demand: &Demand, runtime: &Runtime) -> bool {
    runtime.scope == Scope::Cluster || runtime.namespace == demand.namespace
}

/// A service that names neither model nor runtime brings its own engine (Story 8).
fn own_runtime(demand: &Demand) -> Option<Runtime> {
    let complete = demand.components.get(&Component::Engine).is_some_and(|engine| engine.has_image);
    complete.then(|| Runtime { protocols: vec![demand.protocol.clone()], ..Runtime::own() })
}

/// The incumbent's index if it may still serve; its class becomes the first of each component.
fn keep(assessed: &mut [Assessed<'_>], incumbent: &Incumbent) -> Option<usize> {
    let is_it =
        |one: &Assessed<'_>| one.runtime.name == incumbent.runtime.name && one.runtime.scope == incumbent.runtime.scope;
    let index = assessed.iter().position(|one| one.order().is_some() && is_it(one))?;
    let one = assessed.get_mut(index)?;
    let Outcome::Viable { components, .. } = &mut one.outcome else { return None };
    for component in components.iter_mut() {
        let recorded = incumbent.components.get(component.component.as_str());
        let Some((recorded, class)) = recorded.and_then(|one| Some((one, one.accelerator_class.as_ref()?))) else {
            // Decided without a class before: a class that appears since does not move a ready service.
            component.ranked.clear();
            continue;
        };
        component.kept = component.ranked.iter().position(|ranked| ranked.class.name == *class)?;
        // A class that the runtime prefers since for some requests does not split a ready service either.
        for ranked in &mut component.ranked {
            let was = |variant: &variants::Variant| variant.accelerator_class == ranked.class.name;
            ranked.request_tokens = ranked.request_tokens.filter(|_| recorded.variants.iter().any(was));
        }
    }
    Some(index)
}

/// A warning about what was left to chance or overridden.
pub(crate) fn warn(warnings: &mut Vec<Warning>, code: &str, message: String) {
    let warning = Warning::new(code, message);
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}

#[cfg(test)]
mod tests;
