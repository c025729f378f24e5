//! Assigns pending Pods to the Node of a class with the most free accelerators, like kube-scheduler's `LeastAllocated`
//! strategy.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use decide::{Class, NodeInfo};

/// Nodes of one class in a max-heap by free accelerators. Assigning Pods of other classes reduces the free accelerators
/// without updating the heap, so the entries are upper bounds.
pub(super) struct LeastAllocatedNodes {
    resource: String,
    /// Units of the resource per accelerator of the class.
    quantity: u32,
    /// Upper bound of the free units and index of each Node; ties are resolved by index.
    nodes: BinaryHeap<(u32, Reverse<usize>)>,
}

// === impl LeastAllocatedNodes ===

impl LeastAllocatedNodes {
    /// Returns the Nodes of `class`; `None` for a class without a resource.
    pub(super) fn for_class(class: &Class, nodes: &[NodeInfo]) -> Option<Self> {
        let resource = class.resource_name()?.to_owned();
        let quantity = class.resource().map_or(1, |resource| resource.quantity.max(1));
        let class_nodes = nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| decide::matches_discovery(&class.discovery, &node.name, &node.labels));
        let nodes = class_nodes.map(|(index, node)| (node.free(&resource), Reverse(index))).collect();
        Some(Self { resource, quantity, nodes })
    }

    /// Assigns a Pod that requests `accelerators` to the Node with the most free accelerators. `nodes` must be the same
    /// as at creation. Returns false if the Pod fits on no Node.
    pub(super) fn assign_pod(&mut self, accelerators: u32, nodes: &mut [NodeInfo]) -> bool {
        let units = self.quantity.saturating_mul(accelerators);
        while let Some(mut top) = self.nodes.peek_mut() {
            let (upper_bound, Reverse(index)) = *top;
            let Some(node) = nodes.get_mut(index) else { return false };
            let free = node.free(&self.resource);
            if free < upper_bound {
                // A Pod of another class was assigned to the Node: update its position in the heap.
                *top = (free, Reverse(index));
                continue;
            }
            if free < units {
                return false;
            }
            *node.requested.entry(self.resource.clone()).or_default() += units;
            *top = (node.free(&self.resource), Reverse(index));
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

    fn node(index: usize, capacity: u32, schedulable: bool, in_both_classes: bool) -> NodeInfo {
        let labels = [("a", true), ("b", in_both_classes)].into_iter().filter(|(_, present)| *present);
        NodeInfo {
            name: format!("n{index:02}"),
            labels: std::sync::Arc::new(labels.map(|(label, _)| (label.to_owned(), "yes".to_owned())).collect()),
            cordoned: !schedulable,
            allocatable: [("gpu".to_owned(), capacity)].into(),
            ..NodeInfo::default()
        }
    }

    /// Reference implementation that searches all Nodes.
    fn assign_linear(class: &Class, units: u32, nodes: &mut [NodeInfo]) -> bool {
        let candidates = nodes.iter_mut().filter(|node| {
            node.free("gpu") >= units && decide::matches_discovery(&class.discovery, &node.name, &node.labels)
        });
        let best = candidates.reduce(|best, node| if node.free("gpu") > best.free("gpu") { node } else { best });
        let Some(node) = best else { return false };
        *node.requested.entry("gpu".to_owned()).or_default() += units;
        true
    }

    proptest! {
        #[test]
        fn assigns_each_pod_to_the_first_node_with_most_free_accelerators(
            nodes in prop::collection::vec((0_u32..9, any::<bool>(), any::<bool>()), 0..12),
            pods in prop::collection::vec((any::<bool>(), 1_u32..9), 0..40),
        ) {
            let mut assigned: Vec<NodeInfo> =
                nodes.iter().enumerate().map(|(index, (capacity, schedulable, in_both_classes))| node(index, *capacity, *schedulable, *in_both_classes)).collect();
            let mut expect = assigned.clone();
            let classes = [class("a"), class("b")];
            let mut class_nodes = [0, 1].map(|class| LeastAllocatedNodes::for_class(&classes[class], &assigned).unwrap());
            for (use_second_class, units) in pods {
                let class = usize::from(use_second_class);
                prop_assert_eq!(class_nodes[class].assign_pod(units, &mut assigned), assign_linear(&classes[class], units, &mut expect));
            }
            prop_assert_eq!(assigned, expect);
        }
    }
}
