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
mod pods;
mod products;

use std::sync::Arc;

pub use crate::nodes::{
    Availability, ClassNode, Discovery, TOLERANCE, belongs, has_all, label_unit, term_matches, term_matches_node,
};
use crate::supply::Class;
pub use crate::units::extended_resources;

pub use base_set::BaseSet;
pub use discover::{AUTO_DISCOVERED, discover};
pub use facts::{NodeFacts, SERVICE_LABEL, ended, node_facts, observe};
pub use flavor::{Linked, NotExpressible, class_of_flavor, flavor_of_class, flavor_reference, selects_accelerators};
pub use index::{Index, Numbers};
pub use made::{Maker, maker, mark, unedited};
pub use pods::Holdings;
pub use products::{Product, products};

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
