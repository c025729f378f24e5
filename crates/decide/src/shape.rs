//! Number of accelerators and nodes of a replica.

/// Accelerators and nodes of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaShape {
    /// Accelerators per node.
    pub per_node: u32,
    /// Nodes.
    pub nodes: u32,
}

impl ReplicaShape {
    /// Returns the accelerators on all nodes.
    #[must_use]
    pub fn accelerators(self) -> u32 {
        self.per_node.saturating_mul(self.nodes)
    }
}
