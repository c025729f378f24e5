//! Which runtime serves a model, on which accelerators, and why not another.
//!
//! In: what a service demands (`Demand`) and what is on offer (`Supply`). Out: a `Decision` that names the winner and a
//! reason for every loser. Nothing here sees a client, a clock, a random number or an environment variable, so `decide`
//! cannot fail for reasons outside its input, and the same input gives the same bytes.
//!
//! No module leads back to itself. Lowest are the types: what is asked (`demand`), what is there (`supply`, over
//! `configuration`, `groups`, `nodes`, `size`), and why something loses (`reason`). On them stand the rules of one pair
//! (`compatibility`, `eligibility` with `fleet` and `fit`), of many (`ranking` with `strategy`, `preference`, `variants`),
//! and of a whole decision: `offers`, `assess`, `incumbency`, and `tell`, which makes the record (`decision`). `remedy`
//! decides again with a change; `inventory` counts nodes beside all this.

pub mod case;
pub mod code;
pub mod compatibility;
pub mod configuration;
pub mod decision;
pub mod deferred;
pub mod demand;
pub mod eligibility;
pub mod fit;
pub mod fleet;
pub mod groups;
pub mod inventory;
pub mod merge;
pub mod naming;
pub mod nearest;
pub mod nodes;
pub mod outranked;
pub mod places;
pub mod preference;
pub mod quantization;
pub mod ranking;
pub mod read;
pub mod reason;
pub mod remedy;
pub mod room;
pub mod shape;
pub mod size;
pub mod status;
pub mod strategy;
pub mod supply;
pub mod units;
pub mod variants;

mod assess;
mod incumbency;
mod offers;
mod tell;
mod warnings;

pub use decision::{
    AcceleratorCandidate, Candidate, ComponentDecision, Decision, Eligibility, Incumbent, RuntimeRef, Verdict,
};
pub use demand::{Component, Demand, Model, ModelDemand};
pub use supply::{Class, Runtime, Scope, Supply};
pub use variants::{TokenRange, Variant};

use std::sync::Arc;

use assess::{Assessed, assess};
use demand::OwnContainer;
use offers::Offers;

/// Decides for one service. An incumbent that still may serve is kept, whatever ranks higher.
#[must_use]
pub fn decide(demand: &Demand, supply: &Supply, incumbent: Option<&Incumbent>) -> Decision {
    let offers = Arc::new(Offers::new(demand, supply, own_runtime(demand)));
    let runtimes = match in_question(&offers) {
        Ok(runtimes) => runtimes,
        Err(unknown) => return *unknown,
    };
    let mut assessed: Vec<Assessed<'_>> = runtimes.into_iter().map(|runtime| assess(&offers, runtime)).collect();
    assessed.sort_by(assess::order);
    let nothing = assessed.first().is_none_or(|first| first.order().is_none());
    if nothing && demand.runtime.is_none() && runs_by_itself(demand) && demand.model.known().is_some() {
        assessed.insert(0, assess(&offers, &offers.own));
    }
    let kept = incumbent.and_then(|incumbent| incumbency::keep(&mut assessed, incumbent));
    let chosen = kept.or_else(|| assessed.iter().position(|one| one.order().is_some()));
    match chosen {
        Some(index) => tell::selected(demand, supply, assessed, index, kept.is_some()),
        None => tell::infeasible(demand, assessed),
    }
}

/// The runtimes that may be chosen from: the named one, or all of the namespace and the cluster.
fn in_question(offers: &Offers) -> Result<Vec<&Arc<Runtime>>, Box<Decision>> {
    let Offers { demand, supply, own, .. } = offers;
    match &demand.model {
        ModelDemand::Missing { name, near } => {
            return Err(Box::new(tell::model_not_found(demand, name, near.as_deref())));
        }
        ModelDemand::Disabled(model) => return Err(Box::new(tell::model_disabled(demand, &model.name))),
        ModelDemand::Unstated | ModelDemand::Known(_) => {}
    }
    let visible = || supply.runtimes.iter().filter(|runtime| visible(demand, runtime));
    if let Some(name) = &demand.runtime {
        // Namespaced before cluster; a runtime of another namespace never.
        let named = visible().filter(|runtime| runtime.name == *name).min_by_key(|runtime| runtime.scope);
        return named
            .map(|runtime| vec![runtime])
            .ok_or_else(|| Box::new(tell::runtime_not_found(demand, name, visible().map(AsRef::as_ref))));
    }
    if demand.model.known().is_some() {
        return Ok(visible().collect());
    }
    let has_image = container(demand) >= OwnContainer::Image;
    if has_image { Ok(vec![own]) } else { Err(Box::new(tell::no_engine_container(demand))) }
}

pub(crate) fn visible(demand: &Demand, runtime: &Runtime) -> bool {
    runtime.scope == Scope::Cluster || runtime.namespace == demand.namespace
}

/// A service may bring its own engine (Story 8): it needs no runtime then.
fn own_runtime(demand: &Demand) -> Runtime {
    Runtime { protocols: vec![demand.protocol.clone()], ..Runtime::own() }
}

/// With a model, an image alone only replaces that of a runtime; one that is told how to start stands for itself.
fn runs_by_itself(demand: &Demand) -> bool {
    container(demand) == OwnContainer::Complete
}

fn container(demand: &Demand) -> OwnContainer {
    demand.components.get(&Component::Engine).map(|engine| engine.container).unwrap_or_default()
}

#[cfg(test)]
mod tests;
