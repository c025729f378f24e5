//! The current decision, and decisions with hypothetical edits.

use super::apply;
use super::change::ProposedChange;
use crate::component::Component;
use crate::decision::{CurrentSelection, Decision};
use crate::demand::Demand;
use crate::supply::Supply;

/// The current decision with its input.
pub(crate) struct WhatIf<'a> {
    pub(crate) demand: &'a Demand,
    pub(crate) supply: &'a Supply,
    /// The selection that a running service retains.
    pub(crate) selection: Option<&'a CurrentSelection>,
    pub(crate) current: &'a Decision,
}

impl WhatIf<'_> {
    /// Returns the decision after `change`, if it is feasible. A running service retains its selection if only the cluster changes.
    pub(crate) fn try_change(&self, change: &ProposedChange) -> Option<Decision> {
        let (mut demand, mut supply) = (self.demand.clone(), self.supply.clone());
        apply::apply_change(&mut demand, &mut supply, change);
        let outcome = crate::decide(&demand, &supply, self.selection_after(change));
        outcome.feasible.then_some(outcome)
    }

    /// Returns the selection that the service retains after `change`.
    pub(crate) fn selection_after(&self, change: &ProposedChange) -> Option<&CurrentSelection> {
        self.selection.filter(|_| change.is_change_of_nodes())
    }

    /// Returns the new decision after `edit` of the manifests, if it is feasible.
    pub(crate) fn try_edit(&self, edit: impl FnOnce(&mut Demand, &mut Supply)) -> Option<Decision> {
        let (mut demand, mut supply) = (self.demand.clone(), self.supply.clone());
        edit(&mut demand, &mut supply);
        let outcome = crate::decide(&demand, &supply, None);
        outcome.feasible.then_some(outcome)
    }

    /// Whether a new decision, which does not retain the current selection, has capacity.
    pub(crate) fn has_capacity_when_decided_again(&self) -> bool {
        self.try_edit(|_, _| ()).is_some_and(|outcome| components_without_capacity(&outcome) == 0)
    }

    /// Returns whether the feasible decision `outcome` is better: the demand was infeasible, or fewer components lack
    /// capacity.
    pub(crate) fn is_improved_by(&self, outcome: &Decision) -> bool {
        !self.current.feasible || components_without_capacity(outcome) < components_without_capacity(self.current)
    }
}

/// Returns the number of components without free accelerators for all replicas.
#[must_use]
pub fn components_without_capacity(decision: &Decision) -> usize {
    decision.warnings.iter().filter(|warning| warning.is_capacity_shortage()).count()
}

/// Returns the classes that `decision` selects, sorted and without duplicates.
pub(crate) fn selected_classes(decision: &Decision) -> Vec<String> {
    let selected_class = |component: Component| decision.components.get(component.as_str())?.accelerator_class.clone();
    let mut names: Vec<String> = Component::ALL.into_iter().filter_map(selected_class).collect();
    names.sort_unstable();
    names.dedup();
    names
}
