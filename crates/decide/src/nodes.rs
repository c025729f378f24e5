//! Nodes of an accelerator class: how a class matches nodes, and the accelerators and labels of each node.

mod matching;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::compute_request::NodeCompute;
use crate::taint::Taint;

pub use matching::{Discovery, labels_match_selector, matches_discovery, term_matches};
pub(crate) use matching::{
    MEMORY_TOLERANCE, bytes_per_label_unit, comparable_value, label_value_matches, term_matches_node,
};

/// A node of a class, counted in accelerators of that class. By default it is schedulable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassNode {
    /// Name of the node.
    pub name: String,
    /// `None` if only names are known (read from the status of a class): any selector may match.
    pub labels: Option<Arc<BTreeMap<String, String>>>,
    /// Whether the node is cordoned, so that no new Pods are scheduled on it.
    pub cordoned: bool,
    /// Whether the node is not ready, so that no new Pods are scheduled on it.
    pub not_ready: bool,
    /// Allocatable accelerators.
    pub total: u32,
    /// Allocatable accelerators that no Pod requests, also on an unschedulable node.
    pub free: u32,
    /// Taints that keep Pods without a matching toleration off the node.
    pub taints: Arc<[Taint]>,
    /// Allocatable CPU and memory.
    pub compute: NodeCompute,
    /// Allocatable CPU and memory that no Pod requests.
    pub free_compute: NodeCompute,
    /// Accelerators that running Pods of the service use for which a decision is made; `free` contains them, unless the node
    /// has lost accelerators.
    pub used_by_service: u32,
}

/// The known nodes of a class, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Availability {
    /// Every node of the class.
    pub nodes: Vec<ClassNode>,
}

/// Eligible nodes of a class that accept no new Pods although accelerators on them are free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnschedulableNodes {
    /// Number of all eligible nodes.
    pub eligible: usize,
    /// Names of the nodes that are cordoned and ready.
    pub cordoned: Vec<String>,
    /// Names of the nodes that are not ready, cordoned or not.
    pub not_ready: Vec<String>,
    /// Whether all replicas would have accelerators if all these nodes were schedulable.
    pub would_suffice: bool,
}

/// Maximum number of node names in a message.
const MAX_NAMES: usize = 5;

// === impl ClassNode ===

impl ClassNode {
    /// Whether new Pods can be scheduled on the node.
    #[must_use]
    pub fn is_schedulable(&self) -> bool {
        !self.cordoned && !self.not_ready
    }

    /// Returns the free accelerators that new Pods can use; 0 on an unschedulable node.
    #[must_use]
    pub fn available(&self) -> u32 {
        if self.is_schedulable() { self.free } else { 0 }
    }

    /// Returns the accelerators that running Pods of the service use although new Pods could not: neither a cordon nor the loss
    /// of an accelerator stops Pods.
    pub(crate) fn used_beyond_available(&self) -> u32 {
        if self.not_ready { 0 } else { self.used_by_service.saturating_sub(self.available()) }
    }
}

// === impl Availability ===

impl Availability {
    /// Returns the number of accelerators on all nodes.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.total))
    }

    /// Returns the number of free accelerators on all schedulable nodes.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.available()))
    }
}

// === impl UnschedulableNodes ===

impl fmt::Display for UnschedulableNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let states = [(&self.cordoned, "cordoned"), (&self.not_ready, "not ready")];
        for (index, (names, state)) in states.iter().filter(|(names, _)| !names.is_empty()).enumerate() {
            f.write_str(if index == 0 { "" } else { "; " })?;
            let (nodes, verb) =
                (if self.eligible == 1 { "node" } else { "nodes" }, if names.len() == 1 { "is" } else { "are" });
            write!(f, "{} of {} {nodes} {verb} {state}: {}", names.len(), self.eligible, list_names(names))?;
        }
        Ok(())
    }
}

/// Lists the first names: `a, b, c, d, e and 3 more`.
pub(crate) fn list_names(names: &[String]) -> String {
    let listed = names.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::single(1, &["a"], &[], "1 of 1 node is cordoned: a")]
    #[case::several(3, &["a", "b"], &[], "2 of 3 nodes are cordoned: a, b")]
    #[case::not_ready(3, &[], &["c"], "1 of 3 nodes is not ready: c")]
    #[case::both(3, &["a", "b"], &["c"], "2 of 3 nodes are cordoned: a, b; 1 of 3 nodes is not ready: c")]
    #[case::bounded(9, &["a", "b", "c", "d", "e", "f", "g"], &[], "7 of 9 nodes are cordoned: a, b, c, d, e and 2 more")]
    fn describes_unschedulable_nodes(
        #[case] eligible: usize,
        #[case] cordoned: &[&str],
        #[case] not_ready: &[&str],
        #[case] expected: &str,
    ) {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (cordoned, not_ready) = (names(cordoned), names(not_ready));
        let nodes = UnschedulableNodes { eligible, cordoned, not_ready, would_suffice: true };
        assert_eq!(nodes.to_string(), expected);
    }
}
