//! Finds changes that make a demand feasible, or give it free capacity, by repeating the decision with a change applied.
//!
//! First, a constraint is removed everywhere; the resulting decision determines the value to propose. The proposed
//! change sets only that value, and its outcome is computed with all other constraints in place.

mod apply;
mod change;
mod classes;
mod runtimes;
mod what_if;

use std::fmt;

use crate::code;
use crate::decision::{CurrentSelection, Decision};
use crate::demand::{Demand, ModelReference};
use crate::reason::RuntimeRejection;
use crate::supply::Supply;

pub use change::{CapabilityChange, ConstraintSource, ProposedChange, RuntimeField};
use what_if::WhatIf;
pub use what_if::components_without_capacity;

/// A change that improves the decision, with the resulting decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// A change that must be applied first, if no single change is sufficient.
    pub prerequisite: Option<ProposedChange>,
    /// The change.
    pub change: ProposedChange,
    /// The decision with the changes applied.
    pub outcome: Decision,
}

/// Maximum number of remedies; changes with less effort come first.
const MAX_REMEDIES: usize = 8;

/// Maximum number of remedies with a prerequisite.
const MAX_PAIRS: usize = 2;
/// Maximum number of prerequisites that are tried.
const MAX_PREREQUISITES: usize = 8;

/// Returns changes to service, runtimes, model or cluster that make an infeasible demand feasible, or that give a feasible
/// one free capacity. Combines two changes if no single one is sufficient. Empty if the decision needs no remedy. A running service
/// retains its `selection` until its manifests change.
#[must_use]
pub fn find_remedies(demand: &Demand, supply: &Supply, selection: Option<&CurrentSelection>) -> Vec<Remedy> {
    let current = crate::decide(demand, supply, selection);
    let what_if = WhatIf { demand, supply, selection, current: &current };
    let single = single_changes(&what_if);
    if single.is_empty() && !current.feasible { change_pairs(&what_if) } else { single }
}

fn single_changes(what_if: &WhatIf<'_>) -> Vec<Remedy> {
    let changes =
        if what_if.current.feasible { classes::capacity_changes(what_if) } else { feasibility_changes(what_if) };
    let mut remedies: Vec<Remedy> = Vec::new();
    for change in changes {
        let text = change.to_string();
        if remedies.len() < MAX_REMEDIES && remedies.iter().all(|known| known.change.to_string() != text) {
            remedies.extend(try_change(what_if, change));
        }
    }
    remedies
}

/// Returns the best second change for each prerequisite, without returning the same pair in both orders.
fn change_pairs(what_if: &WhatIf<'_>) -> Vec<Remedy> {
    let mut pairs: Vec<Remedy> = Vec::new();
    for prerequisite in prerequisites(what_if).into_iter().take(MAX_PREREQUISITES) {
        if pairs.len() == MAX_PAIRS || pairs.iter().any(|pair| pair.change == prerequisite) {
            continue;
        }
        let (mut demand, mut supply) = (what_if.demand.clone(), what_if.supply.clone());
        apply::apply_change(&mut demand, &mut supply, &prerequisite);
        let current = crate::decide(&demand, &supply, None);
        let next = single_changes(&WhatIf { demand: &demand, supply: &supply, selection: None, current: &current });
        let next = next.into_iter().next();
        pairs.extend(next.map(|next| Remedy { prerequisite: Some(prerequisite), ..next }));
    }
    pairs
}

/// Returns changes that lift explicit exclusions and correct unknown names, even if none is sufficient alone.
fn prerequisites(what_if: &WhatIf<'_>) -> Vec<ProposedChange> {
    let mut changes = Vec::new();
    if let ModelReference::Disabled(model) = &what_if.demand.model {
        changes.push(ProposedChange::EnableModel(model.name.clone()));
    }
    changes.extend(runtimes::excluded_runtime_changes(what_if));
    changes.extend(classes::exclusion_changes(what_if));
    changes.extend(what_if.demand.runtime.clone().map(ProposedChange::RemoveRuntimeName));
    changes
}

impl Remedy {
    /// Whether editing existing manifests suffices, without additional hardware or different model weights.
    #[must_use]
    pub fn is_manifest_edit(&self) -> bool {
        self.change.is_manifest_edit() && self.prerequisite.as_ref().is_none_or(ProposedChange::is_manifest_edit)
    }
}

/// Returns the remedy if `change` improves the decision. If the nodes of the resulting class have too few accelerators, or
/// uncordoned or repaired nodes do not suffice, the remedy includes a second change of the nodes.
fn try_change(what_if: &WhatIf<'_>, change: ProposedChange) -> Option<Remedy> {
    let outcome = what_if.try_change(&change)?;
    let current = what_if.current;
    let is_improvement = what_if.is_improved_by(&outcome);
    let is_first_step =
        matches!(change, ProposedChange::Uncordon { .. } | ProposedChange::RepairNodes { .. }) && !is_improvement;
    if is_first_step || has_too_few_nodes(&outcome) && !has_too_few_nodes(current) {
        return with_change_of_nodes(what_if, change, &outcome);
    }
    is_improvement.then_some(Remedy { prerequisite: None, change, outcome })
}

/// Returns `change` followed by nodes to uncordon, to repair or to add, if both together let all replicas run.
fn with_change_of_nodes(what_if: &WhatIf<'_>, change: ProposedChange, outcome: &Decision) -> Option<Remedy> {
    let (mut demand, mut supply) = (what_if.demand.clone(), what_if.supply.clone());
    apply::apply_change(&mut demand, &mut supply, &change);
    let selection = what_if.selection_after(&change);
    let changed = WhatIf { demand: &demand, supply: &supply, selection, current: outcome };
    let is_change_of_nodes = |next: &ProposedChange| {
        matches!(
            next,
            ProposedChange::Uncordon { .. } | ProposedChange::RepairNodes { .. } | ProposedChange::AddNodes { .. }
        )
    };
    let mut next_changes = classes::capacity_changes(&changed).into_iter().filter(is_change_of_nodes);
    let (next, outcome) = next_changes.find_map(|next| {
        let outcome = changed.try_change(&next)?;
        (components_without_capacity(&outcome) == 0).then_some((next, outcome))
    })?;
    Some(Remedy { prerequisite: Some(change), change: next, outcome })
}

fn has_too_few_nodes(decision: &Decision) -> bool {
    decision.warnings.iter().any(|warning| warning.code == code::warning::TOO_FEW_NODES.as_str())
}

fn feasibility_changes(what_if: &WhatIf<'_>) -> Vec<ProposedChange> {
    let mut changes = runtimes::runtime_name_changes(what_if);
    if let ModelReference::Disabled(model) = &what_if.demand.model {
        changes.push(ProposedChange::EnableModel(model.name.clone()));
    }
    changes.extend(runtimes::enable_runtime_changes(what_if));
    match what_if.current.candidates.first().and_then(|closest| closest.rejected.as_ref()) {
        Some(RuntimeRejection::NoEligibleAccelerator { .. }) => changes.extend(classes::eligibility_changes(what_if)),
        Some(rejection) => changes.extend(runtimes::runtime_adaptations(what_if, rejection)),
        // A service with its own engine has no runtime candidates, but it may name unknown classes.
        None => changes.extend(classes::eligibility_changes(what_if)),
    }
    changes
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(prerequisite) = &self.prerequisite {
            write!(f, "{prerequisite}, and then ")?;
        }
        write!(f, "{}: {}", self.change, self.outcome.message)?;
        let capacity_warning = self.outcome.warnings.iter().find(|warning| warning.is_capacity_shortage());
        capacity_warning.map_or(Ok(()), |warning| write!(f, " ({})", warning.message))
    }
}
