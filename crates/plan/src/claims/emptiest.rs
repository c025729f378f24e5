//! The emptiest node of a class, again and again: Pods that are still to come are booked as schedulers spread them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use decide::inventory::{self, NodeFacts};
use decide::supply::Class;

/// The nodes of one class by what they had free when last looked at. Booking only ever takes, so a node has at most that.
pub(super) struct Emptiest {
    resource: String,
    /// Units of the resource that one accelerator of the class is.
    quantity: u32,
    /// Of equally empty ones the first.
    nodes: BinaryHeap<(u32, Reverse<usize>)>,
}

// === impl Emptiest ===

impl Emptiest {
    /// None for a class without a resource.
    pub(super) fn of(class: &Class, nodes: &[NodeFacts]) -> Option<Self> {
        let resource = class.resource_name()?.to_owned();
        let quantity = class.resource().map_or(1, |resource| resource.quantity.max(1));
        let members =
            nodes.iter().enumerate().filter(|(_, node)| inventory::belongs(&class.discovery, &node.name, &node.labels));
        let nodes = members.map(|(at, node)| (node.free(&resource), Reverse(at))).collect();
        Some(Self { resource, quantity, nodes })
    }

    /// Books a Pod with so many accelerators onto the emptiest of `nodes`, which are those it was made of; false if it fits
    /// nowhere, and then takes nothing.
    pub(super) fn book(&mut self, accelerators: u32, nodes: &mut [NodeFacts]) -> bool {
        let units = self.quantity.saturating_mul(accelerators);
        while let Some(mut top) = self.nodes.peek_mut() {
            let (free, Reverse(at)) = *top;
            let Some(node) = nodes.get_mut(at) else { return false };
            let now = node.free(&self.resource);
            if now < free {
                // Another class has taken of it: it goes to its new place.
                *top = (now, Reverse(at));
                continue;
            }
            if now < units {
                return false;
            }
            *node.requested.entry(self.resource.clone()).or_default() += units;
            *top = (node.free(&self.resource), Reverse(at));
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::ome::AcceleratorClass;
    use proptest::prelude::*;
    use serde_json::json;

    fn class(label: &str) -> Class {
        let class: AcceleratorClass = serde_json::from_value(json!({"metadata": {"name": label}, "spec": {
            "discovery": {"nodeSelector": {label: "yes"}}, "capabilities": {}, "resources": [{"name": "gpu"}]}}))
        .unwrap();
        Class::from_api(&class, None).unwrap()
    }

    fn node(at: usize, room: u32, takes_pods: bool, both: bool) -> NodeFacts {
        let labels = [("a", true), ("b", both)].into_iter().filter(|(_, is)| *is);
        NodeFacts {
            name: format!("n{at:02}"),
            labels: std::sync::Arc::new(labels.map(|(label, _)| (label.to_owned(), "yes".to_owned())).collect()),
            schedulable: takes_pods,
            allocatable: [("gpu".to_owned(), room)].into(),
            ..NodeFacts::default()
        }
    }

    /// The rule, said plainly.
    fn plainly(class: &Class, units: u32, nodes: &mut [NodeFacts]) -> bool {
        let fits = nodes
            .iter_mut()
            .filter(|node| node.free("gpu") >= units && inventory::belongs(&class.discovery, &node.name, &node.labels));
        let emptiest = fits.reduce(|best, node| if node.free("gpu") > best.free("gpu") { node } else { best });
        let Some(node) = emptiest else { return false };
        *node.requested.entry("gpu".to_owned()).or_default() += units;
        true
    }

    proptest! {
        #[test]
        fn the_first_of_the_emptiest_nodes_takes_each_pod(
            nodes in prop::collection::vec((0_u32..9, any::<bool>(), any::<bool>()), 0..12),
            pods in prop::collection::vec((any::<bool>(), 1_u32..9), 0..40),
        ) {
            let mut booked: Vec<NodeFacts> =
                nodes.iter().enumerate().map(|(at, (room, takes, both))| node(at, *room, *takes, *both)).collect();
            let mut expect = booked.clone();
            let classes = [class("a"), class("b")];
            let mut emptiest = [0, 1].map(|which| Emptiest::of(&classes[which], &booked).unwrap());
            for (second, units) in pods {
                let which = usize::from(second);
                prop_assert_eq!(emptiest[which].book(units, &mut booked), plainly(&classes[which], units, &mut expect));
            }
            prop_assert_eq!(booked, expect);
        }
    }
}
