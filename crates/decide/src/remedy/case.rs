//! What is decided now, and what would be with an edit.

use crate::decision::Decision;
use crate::demand::{Component, Demand};
use crate::supply::Supply;

/// What is decided now, and with what.
pub(crate) struct Case<'a> {
    pub(crate) demand: &'a Demand,
    pub(crate) supply: &'a Supply,
    pub(crate) now: &'a Decision,
}

impl Case<'_> {
    /// What comes of an edit that is tried, if it comes out feasible.
    pub(crate) fn try_with(&self, edit: impl FnOnce(&mut Demand, &mut Supply)) -> Option<Decision> {
        let (mut demand, mut supply) = (self.demand.clone(), self.supply.clone());
        edit(&mut demand, &mut supply);
        let outcome = crate::decide(&demand, &supply, None);
        outcome.feasible.then_some(outcome)
    }
}

/// Classes that `decision` gives to the service's components, each once.
pub(crate) fn chosen_classes(decision: &Decision) -> Vec<String> {
    let of = |component: Component| decision.components.get(component.as_str())?.accelerator_class.clone();
    let mut names: Vec<String> = Component::ALL.into_iter().filter_map(of).collect();
    names.sort_unstable();
    names.dedup();
    names
}
