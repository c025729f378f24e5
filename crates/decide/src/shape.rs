//! How many accelerators a replica takes, and over how many nodes.

/// Accelerators of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaShape {
    pub per_node: u32,
    pub nodes: u32,
}

impl ReplicaShape {
    #[must_use]
    pub fn accelerators(self) -> u32 {
        self.per_node.saturating_mul(self.nodes)
    }
}
