//! Facts about accelerators on nodes: which nodes belong to a class, what of it is free, which classes to discover.
//!
//! In: Node, Pod, AcceleratorClass and ResourceFlavor objects as JSON. Out: numbers, and objects to make. No client,
//! no clock. [`Index`] answers from deltas what [`observe`] and [`availability`] answer by counting everything.

mod base_set;
mod discover;
mod facts;
mod flavor;
mod index;
mod made;
mod matching;
mod pods;
mod products;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::supply::Class;

pub use base_set::BaseSet;
pub use discover::{AUTO_DISCOVERED, discover};
pub use facts::{NodeFacts, SERVICE_LABEL, ended, extended_resources, node_facts, observe};
pub use flavor::{Linked, NotExpressible, class_of_flavor, flavor_of_class, flavor_reference, selects_accelerators};
pub use index::{Index, Numbers};
pub use made::{Maker, maker, mark, unedited};
pub(crate) use matching::same_value;
pub use matching::{Discovery, TOLERANCE, belongs, has_all, label_unit, term_matches, term_matches_node};
pub use pods::Holdings;
pub use products::{Product, products};

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

/// The nodes of `class` among `nodes`, counted in accelerators.
#[must_use]
pub fn availability(class: &Class, nodes: &[NodeFacts]) -> Availability {
    let members = nodes.iter().filter(|node| belongs(&class.discovery, &node.name, &node.labels));
    Availability { nodes: members.map(|node| count(class, node)).collect() }
}

/// What `class` has on a node of its own.
fn count(class: &Class, node: &NodeFacts) -> ClassNode {
    let unit = class.resource().map_or(1, |resource| resource.quantity.max(1));
    let whole = |of: &dyn Fn(&str) -> u32| class.resource_name().map_or(0, of) / unit;
    ClassNode {
        name: node.name.clone(),
        labels: Some(Arc::clone(&node.labels)),
        schedulable: node.schedulable,
        total: whole(&|resource| node.allocatable.get(resource).copied().unwrap_or(0)),
        free: whole(&|resource| node.free(resource)),
    }
}
