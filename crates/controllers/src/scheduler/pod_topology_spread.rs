//! Topology spread constraints: the `PodTopologySpread` plugin.

use std::collections::BTreeMap;

use apimachinery::{LabelSelector, object};
use serde_json::Value;

use super::affinity_term::label_selector;
use super::node_info::NodeInfo;
use super::reason::{FilterFailure, UnschedulableReason};
use super::{node_affinity, taints};

/// How a constraint treats nodes that violate it (`whenUnsatisfiable`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnsatisfiableAction {
    /// Reject the node.
    DoNotSchedule,
    /// Lower the score of the node.
    ScheduleAnyway,
}

/// An entry of `topologySpreadConstraints`.
#[derive(Debug, Clone)]
pub(super) struct TopologySpreadConstraint {
    pub(super) topology_key: String,
    pub(super) max_skew: i64,
    /// If there are fewer topology domains than this, the global minimum is 0.
    min_domains: usize,
    /// `None` matches no Pod.
    label_selector: Option<LabelSelector>,
    namespace: String,
    honors_node_affinity: bool,
    honors_node_taints: bool,
}

/// Number of matching Pods in each topology domain (the PreFilter state of `PodTopologySpread` for one incoming Pod).
#[derive(Debug, Clone)]
pub(super) struct PodTopologySpread {
    constraints: Vec<(TopologySpreadConstraint, BTreeMap<String, i64>)>,
}

/// Returns the constraints of a Pod whose `whenUnsatisfiable` is `action`.
pub(super) fn constraints(pod: &Value, action: UnsatisfiableAction) -> Vec<TopologySpreadConstraint> {
    let all = pod.pointer("/spec/topologySpreadConstraints").and_then(Value::as_array);
    let selected = all.into_iter().flatten().filter(|constraint| UnsatisfiableAction::from_json(constraint) == action);
    selected.map(|constraint| TopologySpreadConstraint::new(constraint, pod)).collect()
}

/// Whether the node has the topology labels of all constraints.
pub(super) fn has_topology_labels<'a>(
    mut constraints: impl Iterator<Item = &'a TopologySpreadConstraint>,
    node: &Value,
) -> bool {
    constraints.all(|constraint| object::label(node, &constraint.topology_key).is_some())
}

// === impl PodTopologySpread ===

impl PodTopologySpread {
    pub(super) fn pre_filter(pod: &Value, node_infos: &[NodeInfo]) -> Self {
        let constraints = constraints(pod, UnsatisfiableAction::DoNotSchedule).into_iter();
        let mut spread = Self { constraints: constraints.map(|constraint| (constraint, BTreeMap::new())).collect() };
        if spread.constraints.is_empty() {
            return spread;
        }
        for node_info in node_infos {
            if !spread.has_topology_labels(&node_info.node) {
                continue;
            }
            for (constraint, counts) in &mut spread.constraints {
                if let Some(domain) = constraint.domain(pod, &node_info.node) {
                    let matching =
                        node_info.pods.iter().filter(|existing_pod| constraint.matches(existing_pod)).count();
                    let count = counts.entry(domain.to_owned()).or_default();
                    *count = count.saturating_add(i64::try_from(matching).unwrap_or(i64::MAX));
                }
            }
        }
        spread
    }

    /// Updates the counts after an existing Pod was added to the node (`delta` is 1) or removed from it (`delta` is
    /// -1).
    pub(super) fn update(&mut self, pod: &Value, existing_pod: &Value, node: &Value, delta: i64) {
        if !self.has_topology_labels(node) {
            return;
        }
        for (constraint, counts) in
            self.constraints.iter_mut().filter(|(constraint, _)| constraint.matches(existing_pod))
        {
            if let Some(domain) = constraint.domain(pod, node) {
                let count = counts.entry(domain.to_owned()).or_default();
                *count = count.saturating_add(delta);
            }
        }
    }

    /// Returns the first constraint that placing the Pod on the node would violate, or `None`.
    pub(super) fn filter(&self, pod: &Value, node: &Value) -> Option<FilterFailure> {
        self.constraints.iter().find_map(|(constraint, counts)| {
            let Some(domain) = object::label(node, &constraint.topology_key) else {
                return Some(FilterFailure::unresolvable(UnschedulableReason::MissingTopologyLabel {
                    key: constraint.topology_key.clone(),
                }));
            };
            let count = counts.get(domain).copied().unwrap_or(0).saturating_add(i64::from(constraint.matches(pod)));
            let skew = count.saturating_sub(constraint.min_match_num(counts));
            let reason = UnschedulableReason::TopologySkew {
                key: constraint.topology_key.clone(),
                skew,
                max_skew: constraint.max_skew,
            };
            (skew > constraint.max_skew).then(|| FilterFailure::resolvable(reason))
        })
    }

    fn has_topology_labels(&self, node: &Value) -> bool {
        has_topology_labels(self.constraints.iter().map(|(constraint, _)| constraint), node)
    }
}

// === impl TopologySpreadConstraint ===

impl TopologySpreadConstraint {
    fn new(constraint: &Value, pod: &Value) -> Self {
        let number = |field: &str| constraint.get(field).and_then(Value::as_i64).unwrap_or(1);
        let honors = |field: &str, default: &str| match object::text(constraint, field) {
            "" => default == "Honor",
            policy => policy == "Honor",
        };
        Self {
            topology_key: object::text(constraint, "/topologyKey").to_owned(),
            max_skew: number("maxSkew"),
            min_domains: usize::try_from(number("minDomains")).unwrap_or(1),
            // In kube-scheduler, an empty selector matches no Pod.
            label_selector: label_selector(constraint, pod).filter(|label_selector| !label_selector.is_empty()),
            namespace: object::namespace(pod).to_owned(),
            honors_node_affinity: honors("/nodeAffinityPolicy", "Honor"),
            honors_node_taints: honors("/nodeTaintsPolicy", "Ignore"),
        }
    }

    /// Whether the constraint counts the Pod. Pods that are being deleted do not count.
    pub(super) fn matches(&self, pod: &Value) -> bool {
        object::namespace(pod) == self.namespace
            && !object::is_deleting(pod)
            && self.label_selector.as_ref().is_some_and(|label_selector| label_selector.matches_object(pod))
    }

    /// Returns the topology domain of a node, or `None` if the node lacks the label or is excluded by
    /// `nodeAffinityPolicy` or `nodeTaintsPolicy`.
    pub(super) fn domain<'a>(&self, pod: &Value, node: &'a Value) -> Option<&'a str> {
        let is_included = (!self.honors_node_affinity || node_affinity::filter(pod, node).is_none())
            && (!self.honors_node_taints || taints::untolerated_taint(pod, node).is_none());
        object::label(node, &self.topology_key).filter(|_| is_included)
    }

    /// Returns the global minimum: the smallest number of matching Pods in any domain.
    fn min_match_num(&self, counts: &BTreeMap<String, i64>) -> i64 {
        match counts.len() < self.min_domains {
            true => 0,
            false => counts.values().min().copied().unwrap_or(i64::MAX),
        }
    }
}

// === impl UnsatisfiableAction ===

impl UnsatisfiableAction {
    fn from_json(constraint: &Value) -> Self {
        match object::text(constraint, "/whenUnsatisfiable") {
            "ScheduleAnyway" => Self::ScheduleAnyway,
            _ => Self::DoNotSchedule,
        }
    }
}
