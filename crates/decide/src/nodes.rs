//! Nodes as classes see them: how a class recognises its nodes, and what is known of each.

mod matching;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use matching::same_value;
pub use matching::{Discovery, TOLERANCE, belongs, has_all, label_unit, term_matches, term_matches_node};

/// A node of a class, counted in accelerators.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassNode {
    pub name: String,
    /// `None` where only names are known (read back from a class's status): any selector may match.
    pub labels: Option<Arc<BTreeMap<String, String>>>,
    pub schedulable: bool,
    pub total: u32,
    pub free: u32,
}

/// What is known of a class's nodes, in order of their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Availability {
    pub nodes: Vec<ClassNode>,
}

impl Availability {
    #[must_use]
    pub fn total(&self) -> u32 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.total))
    }

    #[must_use]
    pub fn free(&self) -> u32 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.free))
    }

    #[must_use]
    pub fn available_nodes(&self) -> usize {
        self.nodes.iter().filter(|node| node.schedulable).count()
    }

    /// Accelerators of the largest node.
    #[must_use]
    pub fn largest_node(&self) -> Option<u32> {
        self.nodes.iter().map(|node| node.total).max()
    }

    /// The most that one node may have. Where only names and totals are known, nobody knows how these are spread.
    #[must_use]
    pub fn most_on_a_node(&self) -> Option<u32> {
        let seen = self.nodes.iter().all(|node| node.labels.is_some());
        if seen { self.largest_node() } else { Some(self.total()) }
    }

    /// Nodes that the selector leaves.
    #[must_use]
    pub fn narrowed(&self, selector: &BTreeMap<String, String>) -> Self {
        let fits = |node: &&ClassNode| node.labels.as_ref().is_none_or(|labels| has_all(labels, selector));
        Self { nodes: self.nodes.iter().filter(fits).cloned().collect() }
    }

    /// How many groups of `per_node` free accelerators on one node there are.
    #[must_use]
    pub fn slots(&self, per_node: u32) -> u32 {
        self.nodes.iter().map(|node| node.free / per_node.max(1)).sum()
    }
}
