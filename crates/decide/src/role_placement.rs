//! Placement that one layer sets only for the leader or only for the workers of a component.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::taint::Toleration;

/// Role of a Pod within a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodRole {
    /// The first Pod of a replica; the only Pod of a single-node replica.
    Leader,
    /// Every further Pod of a multi-node replica.
    Worker,
}

/// Placement that one layer sets for the Pods of one role.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RolePlacement {
    /// Node selector of the role.
    pub node_selector: BTreeMap<String, String>,
    /// Affinity of the role.
    pub affinity: Option<Value>,
    /// Tolerations of the role.
    pub tolerations: Vec<Toleration>,
    /// Whether the layer sets a command or arguments for the role.
    pub has_command: bool,
}

/// Placement that one layer sets for leader and workers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RolePlacements {
    /// Placement of the leader, if the layer has a leader.
    pub leader: Option<RolePlacement>,
    /// Placement of the workers, if the layer has workers.
    pub worker: Option<RolePlacement>,
}

// === impl RolePlacements ===

impl RolePlacements {
    /// Whether leader or workers have a node selector, an affinity or tolerations.
    pub(crate) fn constrain_nodes(&self) -> bool {
        let constrains = |placement: &RolePlacement| {
            !placement.node_selector.is_empty() || placement.affinity.is_some() || !placement.tolerations.is_empty()
        };
        self.leader.iter().chain(&self.worker).any(constrains)
    }

    /// Returns the placements that apply to Pods of `role`, the strongest last. Workers without a command of their own are
    /// copies of the leader and inherit its placement.
    pub(crate) fn for_role(&self, role: PodRole, workers_inherit_leader: bool) -> impl Iterator<Item = &RolePlacement> {
        let (leader, worker) = match role {
            PodRole::Leader => (true, false),
            PodRole::Worker => (workers_inherit_leader, true),
        };
        self.leader.iter().filter(move |_| leader).chain(self.worker.iter().filter(move |_| worker))
    }
}
