//! What would help: decide again with one constraint lifted, and keep what becomes better.
//!
//! A constraint is first lifted wherever it stands; what is then chosen says which value to write. The change proposed is
//! that one value, and its outcome is decided once more with nothing else lifted.

mod case;
mod change;
mod classes;
mod lift;
mod runtimes;

use case::Case;
pub use change::{Change, Field, Layer, Requirement};

use std::fmt;

use crate::code;
use crate::decision::Decision;
use crate::demand::{Demand, ModelDemand};
use crate::reason::Rejection;
use crate::supply::Supply;

/// A change that helps, and what the service would then get.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// What must be changed too, where no change helps alone.
    pub first: Option<Change>,
    pub change: Change,
    pub outcome: Decision,
}

/// Remedies shown at most; the cheapest come first.
const MOST: usize = 8;

/// Pairs shown at most, and changes tried as the first of one.
const PAIRS: usize = 2;
const FIRST: usize = 8;

/// Changes to service, runtimes, model or cluster that make an infeasible demand feasible, or that spare a feasible one the
/// wait for accelerators; two together where none helps alone. Empty if nothing needs help.
#[must_use]
pub fn remedies(demand: &Demand, supply: &Supply) -> Vec<Remedy> {
    let now = crate::decide(demand, supply, None);
    let case = Case { demand, supply, now: &now };
    let alone = single(&case);
    if alone.is_empty() && !now.feasible { pairs(&case) } else { alone }
}

fn single(case: &Case<'_>) -> Vec<Remedy> {
    let changes = if case.now.feasible { classes::for_capacity(case) } else { for_infeasible(case) };
    let mut remedies: Vec<Remedy> = Vec::new();
    for change in changes {
        let text = change.to_string();
        if remedies.len() < MOST && remedies.iter().all(|known| known.change.to_string() != text) {
            remedies.extend(case.helps(change));
        }
    }
    remedies
}

/// For each first change the one that then helps best; never the same two in the other order.
fn pairs(case: &Case<'_>) -> Vec<Remedy> {
    let mut pairs: Vec<Remedy> = Vec::new();
    for first in firsts(case).into_iter().take(FIRST) {
        if pairs.len() == PAIRS || pairs.iter().any(|pair| pair.change == first) {
            continue;
        }
        let (mut demand, mut supply) = (case.demand.clone(), case.supply.clone());
        lift::apply(&mut demand, &mut supply, &first);
        let now = crate::decide(&demand, &supply, None);
        let next = single(&Case { demand: &demand, supply: &supply, now: &now }).into_iter().next();
        pairs.extend(next.map(|next| Remedy { first: Some(first), ..next }));
    }
    pairs
}

/// What somebody forbids or misspells, whatever else is wrong.
fn firsts(case: &Case<'_>) -> Vec<Change> {
    let mut changes = Vec::new();
    if let ModelDemand::Disabled(model) = &case.demand.model {
        changes.push(Change::EnableModel(model.name.clone()));
    }
    changes.extend(runtimes::forbidden(case));
    changes.extend(classes::forbidden(case));
    changes.extend(case.demand.runtime.clone().map(Change::DropRuntimeName));
    changes
}

impl Remedy {
    /// Whether edits of manifests that exist are all there is to do: no hardware, no other weights.
    #[must_use]
    pub fn is_an_edit(&self) -> bool {
        self.change.is_an_edit() && self.first.as_ref().is_none_or(Change::is_an_edit)
    }
}

impl Case<'_> {
    fn helps(&self, change: Change) -> Option<Remedy> {
        let outcome = self.try_with(|demand, supply| lift::apply(demand, supply, &change))?;
        let better = !self.now.feasible || waits(&outcome) < waits(self.now);
        better.then_some(Remedy { first: None, change, outcome })
    }
}

/// Components that wait for accelerators.
#[must_use]
pub fn waits(decision: &Decision) -> usize {
    decision.warnings.iter().filter(|warning| warning.code == code::warning::NO_FREE_CAPACITY.as_str()).count()
}

fn for_infeasible(case: &Case<'_>) -> Vec<Change> {
    let mut changes = runtimes::named(case);
    if let ModelDemand::Disabled(model) = &case.demand.model {
        changes.push(Change::EnableModel(model.name.clone()));
    }
    changes.extend(runtimes::switched_off(case));
    match case.now.candidates.first().and_then(|nearest| nearest.rejected.as_ref()) {
        Some(Rejection::NoEligibleAccelerator { .. }) => changes.extend(classes::for_infeasible(case)),
        Some(rejection) => changes.extend(runtimes::adapted(case, rejection)),
        // A service with its own engine has no candidates, but it may ask for classes that do not exist.
        None => changes.extend(classes::for_infeasible(case)),
    }
    changes
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(first) = &self.first {
            write!(f, "{first}, and then ")?;
        }
        write!(f, "{}: {}", self.change, self.outcome.message)?;
        let waits =
            self.outcome.warnings.iter().find(|warning| warning.code == code::warning::NO_FREE_CAPACITY.as_str());
        waits.map_or(Ok(()), |waits| write!(f, " — but {}", waits.message))
    }
}
