//! Required Pod affinity and anti-affinity: the Filter extension point of the `InterPodAffinity` plugin.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::object;
use serde_json::Value;

use super::affinity_term::{AffinityKind, AffinityTerm, required_terms};
use super::node_info::NodeInfo;
use super::reason::{FilterFailure, UnschedulableReason};

/// Number of Pods by topology pair, which is the key and value of a node label.
type TopologyCounts = BTreeMap<(String, String), i64>;

/// Precomputed counts of existing Pods for one incoming Pod (the PreFilter state of `InterPodAffinity`).
#[derive(Debug, Clone)]
pub(super) struct InterPodAffinity {
    affinity_terms: Vec<AffinityTerm>,
    anti_affinity_terms: Vec<AffinityTerm>,
    /// Whether the incoming Pod matches its own affinity terms. Such a Pod is schedulable even if no existing Pod
    /// matches, so that the first Pod of a self-affine group can start.
    matches_own_terms: bool,
    /// Number of existing Pods that match all affinity terms of the incoming Pod.
    affinity_counts: TopologyCounts,
    /// Number of existing Pods that match an anti-affinity term of the incoming Pod.
    anti_affinity_counts: TopologyCounts,
    /// Number of existing Pods whose own anti-affinity terms match the incoming Pod.
    existing_anti_affinity_counts: TopologyCounts,
}

impl InterPodAffinity {
    pub(super) fn pre_filter(pod: &Value, node_infos: &[NodeInfo], namespaces: &[Arc<Value>]) -> Self {
        let (affinity_terms, anti_affinity_terms) = (
            required_terms(pod, AffinityKind::Affinity, namespaces),
            required_terms(pod, AffinityKind::AntiAffinity, namespaces),
        );
        let matches_own_terms = affinity_terms.iter().all(|term| term.matches(pod));
        let [affinity_counts, anti_affinity_counts, existing_anti_affinity_counts] =
            [const { TopologyCounts::new() }; 3];
        let mut affinity = Self {
            affinity_terms,
            anti_affinity_terms,
            matches_own_terms,
            affinity_counts,
            anti_affinity_counts,
            existing_anti_affinity_counts,
        };
        let has_terms = !affinity.affinity_terms.is_empty() || !affinity.anti_affinity_terms.is_empty();
        for node_info in node_infos {
            for existing_pod in if has_terms { &node_info.pods } else { &node_info.pods_with_affinity } {
                affinity.update(pod, existing_pod, &node_info.node, 1, namespaces);
            }
        }
        affinity
    }

    /// Updates the counts after an existing Pod was added to the node (`delta` is 1) or removed from it (`delta` is
    /// -1).
    pub(super) fn update(
        &mut self,
        pod: &Value,
        existing_pod: &Value,
        node: &Value,
        delta: i64,
        namespaces: &[Arc<Value>],
    ) {
        if !self.affinity_terms.is_empty() && self.affinity_terms.iter().all(|term| term.matches(existing_pod)) {
            self.affinity_terms.iter().for_each(|term| update_count(&mut self.affinity_counts, term, node, delta));
        }
        for term in self.anti_affinity_terms.iter().filter(|term| term.matches(existing_pod)) {
            update_count(&mut self.anti_affinity_counts, term, node, delta);
        }
        for term in
            required_terms(existing_pod, AffinityKind::AntiAffinity, namespaces).iter().filter(|term| term.matches(pod))
        {
            update_count(&mut self.existing_anti_affinity_counts, term, node, delta);
        }
    }

    /// Returns the first affinity or anti-affinity rule that placing the Pod on the node would violate, or `None`.
    pub(super) fn filter(&self, node: &Value) -> Option<FilterFailure> {
        if !self.satisfies_affinity(node) {
            return Some(FilterFailure::unresolvable(UnschedulableReason::PodAffinity));
        }
        let has_match = |counts: &TopologyCounts, term: &AffinityTerm| {
            topology_pair(term, node).is_some_and(|topology_pair| counts.contains_key(&topology_pair))
        };
        if self.anti_affinity_terms.iter().any(|term| has_match(&self.anti_affinity_counts, term)) {
            return Some(FilterFailure::resolvable(UnschedulableReason::PodAntiAffinity));
        }
        let violates_existing_anti_affinity =
            self.existing_anti_affinity_counts.keys().any(|(key, value)| object::label(node, key) == Some(value));
        violates_existing_anti_affinity.then(|| FilterFailure::resolvable(UnschedulableReason::ExistingPodAntiAffinity))
    }

    fn satisfies_affinity(&self, node: &Value) -> bool {
        let mut all_match = true;
        for term in &self.affinity_terms {
            let Some(topology_pair) = topology_pair(term, node) else { return false };
            all_match &= self.affinity_counts.contains_key(&topology_pair);
        }
        all_match || self.affinity_counts.is_empty() && self.matches_own_terms
    }
}

/// Returns the node's label for the topology key of a term as key and value, or `None` if the node lacks the label.
fn topology_pair(term: &AffinityTerm, node: &Value) -> Option<(String, String)> {
    Some((term.topology_key.clone(), object::label(node, &term.topology_key)?.to_owned()))
}

/// Adds `delta` to the count of a topology pair. A pair whose count becomes 0 is removed.
fn update_count(counts: &mut TopologyCounts, term: &AffinityTerm, node: &Value, delta: i64) {
    let Some(topology_pair) = topology_pair(term, node) else { return };
    let count = counts.entry(topology_pair.clone()).or_default();
    *count = count.saturating_add(delta);
    if *count == 0 {
        counts.remove(&topology_pair);
    }
}
