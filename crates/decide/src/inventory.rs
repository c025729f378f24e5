//! Tracks accelerators: the nodes of each class, their free accelerators, and the classes to create.
//!
//! Input: Node, Pod, AcceleratorClass and ResourceFlavor objects as JSON. Output: counts, and objects to apply. The
//! module uses no client and no clock. [`Inventory`] maintains incrementally what [`node_infos`] and
//! [`class_availability`] compute from scratch.

mod base_set;
mod discover;
mod flavor;
mod index;
mod node_info;
mod partitions;
mod pod_slots;
mod pod_usage;
mod products;
mod provenance;
mod unschedulable;

use std::sync::Arc;

use crate::nodes::{Availability, ClassNode, matches_discovery};
use crate::supply::Class;

pub use base_set::{BaseSet, BaseSetError};
pub(crate) use discover::AUTO_DISCOVERED_LABEL;
pub use discover::discover_classes;
pub use flavor::{FlavorError, FlavorLink, class_from_flavor, flavor_from_class, flavor_link, is_accelerator_flavor};
pub use index::{ClassTotals, Inventory};
pub use node_info::{NodeInfo, SERVICE_LABEL, is_pod_terminal, node_info, node_infos, nodes_without_pods};
pub use partitions::complete_partitions;
pub use pod_slots::{free_replica_slots, place_pods};
pub use pod_usage::ServiceUsage;
pub(crate) use provenance::set_provenance;
pub use provenance::{PROVENANCE_ANNOTATION, Provenance, is_unmodified, provenance};
pub use unschedulable::{UnschedulableReason, unschedulable_reason};

/// Returns the nodes of `class` among `nodes`, counted in accelerators.
#[must_use]
pub fn class_availability(class: &Class, nodes: &[NodeInfo]) -> Availability {
    let members = nodes.iter().filter(|node| is_member(class, node));
    Availability { nodes: members.map(|node| class_node(class, node)).collect() }
}

/// Whether a node belongs to `class`: it has the labels, and devices that are not all partitioned.
fn is_member(class: &Class, node: &NodeInfo) -> bool {
    matches_discovery(&class.discovery, &node.name, &node.labels) && !products::offers_partitions_only(class, node)
}

/// Returns the accelerators of `class` on one of its nodes.
fn class_node(class: &Class, node: &NodeInfo) -> ClassNode {
    let units_per_accelerator = class.resource().map_or(1, |resource| resource.quantity.max(1));
    let accelerators = |units: &dyn Fn(&str) -> u32| class.resource_name().map_or(0, units) / units_per_accelerator;
    ClassNode {
        name: node.name.clone(),
        labels: Some(Arc::clone(&node.labels)),
        cordoned: node.cordoned,
        not_ready: node.not_ready,
        total: accelerators(&|resource| node.allocatable.get(resource).copied().unwrap_or(0)),
        free: accelerators(&|resource| node.unrequested(resource)),
        taints: Arc::clone(&node.taints),
        compute: node.compute(),
        free_compute: node.unrequested_compute(),
        used_by_service: accelerators(&|resource| node.requested_by_service.get(resource).copied().unwrap_or(0)),
    }
}
