//! Leader and workers of a component, as one layer states them.

use std::collections::BTreeMap;

use serde_json::Value;

/// Which Pod of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The first one; the only one of a replica on one node.
    Leader,
    Worker,
}

/// What one layer states for the Pods of one place alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    pub node_selector: BTreeMap<String, String>,
    pub affinity: Option<Value>,
    /// It says what its Pods start.
    pub starts: bool,
}

/// Leader and workers as one layer states them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Groups {
    pub leader: Option<Group>,
    pub worker: Option<Group>,
}

impl Groups {
    /// Whether some place has nodes of its own.
    #[must_use]
    pub fn are_placed(&self) -> bool {
        let placed = |group: &Group| !group.node_selector.is_empty() || group.affinity.is_some();
        self.leader.iter().chain(&self.worker).any(placed)
    }

    /// What is for the Pods of `place`, the stronger last. Workers that are what the leader is go where it goes.
    pub(crate) fn at(&self, place: Place, twins: bool) -> impl Iterator<Item = &Group> {
        let (leader, worker) = match place {
            Place::Leader => (true, false),
            Place::Worker => (twins, true),
        };
        self.leader.iter().filter(move |_| leader).chain(self.worker.iter().filter(move |_| worker))
    }
}
