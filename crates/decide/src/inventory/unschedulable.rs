//! Why no node could run a Pod, even without other Pods.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::node_info::{NodeInfo, pod_requests};
use super::pod_slots::Placement;
use crate::compute_request::format_amount;
use crate::nodes::list_names;
use crate::taint::Taint;
use crate::units::{CPU, MEMORY};

/// The first condition that no node meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnschedulableReason {
    /// Node name, node selector and required node affinity select no node.
    NoMatchingNode,
    /// Every selected node has a taint that the Pod does not tolerate.
    TaintNotTolerated {
        /// The taint of the first node.
        taint: Taint,
        /// Names of the selected nodes.
        nodes: Vec<String>,
    },
    /// No node has as much of a resource as the Pod requests.
    InsufficientResource {
        /// Name of the resource.
        resource: String,
        /// Requested units: thousandths of a CPU, MiB, or a number.
        requested: u32,
        /// Units of the node that has most.
        largest: u32,
    },
    /// Each resource is sufficient on some node, but no node has all of them.
    InsufficientCombination {
        /// The requested units by resource.
        requests: BTreeMap<String, u32>,
    },
}

/// Returns why none of `nodes` could run a Pod of `template`, even if no other Pod ran there; `None` if one could, or without nodes.
#[must_use]
pub fn unschedulable_reason<'n>(
    nodes: impl IntoIterator<Item = &'n NodeInfo>,
    template: &Value,
) -> Option<UnschedulableReason> {
    let (placement, requests) = (Placement::of(&template["spec"]), pod_requests(template));
    let fits = |node: &NodeInfo| requests.iter().all(|(resource, units)| allocatable(node, resource) >= *units);
    let mut rejecting = Vec::new();
    for node in nodes {
        if placement.selects(node) && placement.untolerated(node).is_none() && fits(node) {
            return None;
        }
        rejecting.push(node);
    }
    let selected: Vec<&NodeInfo> = rejecting.iter().copied().filter(|node| placement.selects(node)).collect();
    let Some(first) = selected.first() else {
        return (!rejecting.is_empty()).then_some(UnschedulableReason::NoMatchingNode);
    };
    let tolerated: Vec<&NodeInfo> =
        selected.iter().copied().filter(|node| placement.untolerated(node).is_none()).collect();
    if tolerated.is_empty() {
        let taint = placement.untolerated(first)?.clone();
        let nodes = selected.iter().map(|node| node.name.clone()).collect();
        return Some(UnschedulableReason::TaintNotTolerated { taint, nodes });
    }
    let largest = |resource: &str| tolerated.iter().map(|node| allocatable(node, resource)).max().unwrap_or(0);
    let insufficient = requests.iter().find(|(resource, units)| largest(resource) < **units);
    Some(match insufficient {
        Some((resource, requested)) => UnschedulableReason::InsufficientResource {
            resource: resource.clone(),
            requested: *requested,
            largest: largest(resource),
        },
        None => UnschedulableReason::InsufficientCombination { requests },
    })
}

/// Returns the units that the node can allocate; unlimited CPU and memory if the node does not state them.
fn allocatable(node: &NodeInfo, resource: &str) -> u32 {
    let unstated = if resource.contains('/') { 0 } else { u32::MAX };
    node.allocatable.get(resource).copied().unwrap_or(unstated)
}

// === impl UnschedulableReason ===

impl UnschedulableReason {
    /// Whether some node has the missing resource, but less than requested.
    #[must_use]
    pub fn has_some(&self) -> bool {
        matches!(self, Self::InsufficientResource { largest, .. } if *largest > 0)
    }
}

impl fmt::Display for UnschedulableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMatchingNode => f.write_str("no node matches their nodeSelector, affinity and nodeName"),
            Self::TaintNotTolerated { taint, nodes } => {
                let noun = if nodes.len() == 1 { "node" } else { "nodes" };
                write!(f, "they do not tolerate taint {taint} of {noun} {}", list_names(nodes))
            }
            Self::InsufficientResource { resource, requested, largest } => {
                let (requested, largest) = (quantity(resource, *requested), quantity(resource, *largest));
                write!(f, "a Pod requests {requested} of {resource}; the largest node has {largest}")
            }
            Self::InsufficientCombination { requests } => {
                let requests: Vec<String> = requests
                    .iter()
                    .map(|(resource, units)| format!("{resource} {}", quantity(resource, *units)))
                    .collect();
                write!(f, "a Pod requests {}; no node has all of them", requests.join(", "))
            }
        }
    }
}

fn quantity(resource: &str, units: u32) -> String {
    if [CPU, MEMORY].contains(&resource) { format_amount(resource, units) } else { units.to_string() }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::inventory::node_info::node_infos;

    /// The nodes have two CPUs, of which one is in use, and eight GPUs with a taint.
    #[rstest]
    #[case::anywhere(json!({}), json!({"cpu": "1"}), "")]
    #[case::in_use(json!({}), json!({"cpu": "2"}), "")]
    #[case::too_many_cpus(json!({}), json!({"cpu": "3"}), "a Pod requests 3 of cpu; the largest node has 2")]
    #[case::this_node(json!({"nodeSelector": {"type": "cpu"}}), json!({"cpu": "1"}), "")]
    #[case::no_node(
        json!({"nodeSelector": {"type": "x"}}), json!({"cpu": "1"}),
        "no node matches their nodeSelector, affinity and nodeName"
    )]
    #[case::other_name(
        json!({"nodeName": "x"}), json!({"cpu": "1"}), "no node matches their nodeSelector, affinity and nodeName"
    )]
    #[case::taint(
        json!({"nodeSelector": {"type": "gpu"}}), json!({"cpu": "1"}),
        "they do not tolerate taint gpu=yes:NoSchedule of node g"
    )]
    #[case::tolerated(
        json!({"tolerations": [{"operator": "Exists"}]}), json!({"nvidia.com/gpu": "8"}), ""
    )]
    #[case::too_many_gpus(
        json!({"tolerations": [{"operator": "Exists"}]}), json!({"nvidia.com/gpu": "9"}),
        "a Pod requests 9 of nvidia.com/gpu; the largest node has 8"
    )]
    #[case::unknown_resource(
        json!({"tolerations": [{"operator": "Exists"}]}), json!({"amd.com/gpu": "1"}),
        "a Pod requests 1 of amd.com/gpu; the largest node has 0"
    )]
    #[case::on_different_nodes(
        json!({"tolerations": [{"operator": "Exists"}]}), json!({"cpu": "2", "nvidia.com/gpu": "1"}),
        "a Pod requests cpu 2, nvidia.com/gpu 1; no node has all of them"
    )]
    fn names_the_condition_that_no_node_meets(
        #[case] mut pod_spec: Value,
        #[case] requests: Value,
        #[case] expected: &str,
    ) {
        let nodes = [
            json!({"metadata": {"name": "c", "labels": {"type": "cpu"}}, "status": {"allocatable": {"cpu": "2"}}}),
            json!({"metadata": {"name": "g", "labels": {"type": "gpu"}},
                "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
                "status": {"allocatable": {"cpu": "1", "nvidia.com/gpu": "8"}}}),
        ];
        let containers = |requests: Value| json!([{"resources": {"requests": requests}}]);
        let running = json!({"spec": {"nodeName": "c", "containers": containers(json!({"cpu": "1"}))}});
        let nodes = node_infos(&nodes, &[running]);
        pod_spec["containers"] = containers(requests);
        let template = json!({"spec": pod_spec});
        let reason = unschedulable_reason(&nodes, &template).map(|reason| reason.to_string());
        assert_eq!(reason.unwrap_or_default(), expected);
        assert_eq!(unschedulable_reason(&[], &template), None);
    }
}
