//! A component with its specifications and its selection.

use decide::Component;

use super::layout_input::{ComponentSelection, ReplicaSet};
use super::pod_roles::ComponentSpecs;

/// A component with its specifications and its selection.
pub(super) struct ComponentInput<'a> {
    pub(super) component: Component,
    pub(super) specs: ComponentSpecs,
    pub(super) selection: &'a ComponentSelection,
}

impl ComponentInput<'_> {
    /// Returns the number of Pods of one replica of `set`.
    pub(super) fn nodes(&self, set: &ReplicaSet) -> u32 {
        let accelerators = set.accelerators.as_ref().filter(|_| self.specs.has_workers());
        accelerators.map_or_else(|| self.specs.nodes(), |accelerators| accelerators.shape.nodes.max(1))
    }

    /// Returns whether a replica has more than one Pod.
    pub(super) fn is_multi_node(&self) -> bool {
        self.selection.replica_sets.iter().any(|set| self.nodes(set) > 1)
    }
}
