//! Nodes of an accelerator class: how a class matches nodes, and the accelerators and labels of each node.

mod matching;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use matching::{Discovery, labels_match_selector, matches_discovery, term_matches};
pub(crate) use matching::{MEMORY_TOLERANCE, bytes_per_label_unit, label_value_matches, term_matches_node};

/// A node of a class, counted in accelerators of that class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassNode {
    /// Name of the node.
    pub name: String,
    /// `None` if only names are known (read from the status of a class): any selector may match.
    pub labels: Option<Arc<BTreeMap<String, String>>>,
    /// Ready and not cordoned.
    pub schedulable: bool,
    /// Allocatable accelerators.
    pub total: u32,
    /// Allocatable accelerators that no Pod requests; 0 on an unschedulable node.
    pub free: u32,
}

/// The known nodes of a class, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Availability {
    /// Every node of the class.
    pub nodes: Vec<ClassNode>,
}

// === impl Availability ===

impl Availability {
    /// Returns the number of accelerators on all nodes.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.total))
    }

    /// Returns the number of free accelerators on all nodes.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.free))
    }
}
