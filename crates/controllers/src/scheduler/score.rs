//! Scores the feasible nodes with the Score plugins of kube-scheduler and their default weights. The caller breaks ties
//! by node name, whereas kube-scheduler breaks them randomly. `ImageLocality` and the default constraints of
//! `PodTopologySpread` are not implemented.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::{Quantity, node_selector_terms_match, object};
use serde_json::{Value, json};

use super::affinity_term::{AffinityKind, AffinityTerm, preferred_terms, required_terms};
use super::node_info::{CpuMemory, NodeInfo, allocatable};
use super::pod_topology_spread::{UnsatisfiableAction, constraints, has_topology_labels};
use crate::toleration::is_tolerated;

/// `MaxNodeScore` of the scheduling framework.
const MAX_NODE_SCORE: f64 = 100.0;

/// Returns a score for each of the `feasible` nodes, which are a subset of `all`. Higher scores are better.
pub(super) fn scores(pod: &Value, feasible: &[&NodeInfo], all: &[NodeInfo], namespaces: &[Arc<Value>]) -> Vec<i64> {
    let score_nodes =
        |score: &dyn Fn(&NodeInfo) -> f64| -> Vec<f64> { feasible.iter().map(|node_info| score(node_info)).collect() };
    let plugins = [
        (3.0, normalize_reversed(score_nodes(&|node_info| untolerated_soft_taints(pod, &node_info.node)))),
        (2.0, normalize(score_nodes(&|node_info| preferred_node_affinity(pod, &node_info.node)))),
        (2.0, topology_spread(pod, feasible, all)),
        (2.0, inter_pod_affinity(pod, feasible, all, namespaces)),
        (1.0, score_nodes(&|node_info| least_allocated(pod, node_info))),
        (1.0, score_nodes(&|node_info| balanced_allocation(pod, node_info))),
    ];
    let total = |index: usize| {
        plugins
            .iter()
            .filter_map(|(weight, plugin_scores)| Some(weight * plugin_scores.get(index)?.trunc()))
            .sum::<f64>()
    };
    (0..feasible.len()).map(|index| total(index) as i64).collect()
}

/// Scales the scores so that the largest becomes 100 (`DefaultNormalizeScore`).
fn normalize(raw_scores: Vec<f64>) -> Vec<f64> {
    let largest = raw_scores.iter().copied().fold(0.0, f64::max);
    raw_scores.into_iter().map(|score| if largest > 0.0 { score * MAX_NODE_SCORE / largest } else { 0.0 }).collect()
}

/// Scales and reverses the scores, so that 0 becomes 100 and the largest score becomes 0.
fn normalize_reversed(raw_scores: Vec<f64>) -> Vec<f64> {
    normalize(raw_scores).into_iter().map(|score| MAX_NODE_SCORE - score.trunc()).collect()
}

/// Returns the number of `PreferNoSchedule` taints that the Pod does not tolerate (`TaintToleration`).
fn untolerated_soft_taints(pod: &Value, node: &Value) -> f64 {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let soft_taints = taints.into_iter().flatten().filter(|taint| object::text(taint, "/effect") == "PreferNoSchedule");
    soft_taints.filter(|taint| !is_tolerated(pod, taint)).count() as f64
}

/// Returns the sum of the weights of the preferred node affinity terms that match the node (`NodeAffinity`).
fn preferred_node_affinity(pod: &Value, node: &Value) -> f64 {
    let preferred_terms = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
    let terms = pod.pointer(preferred_terms).and_then(Value::as_array);
    let matches = |term: &&Value| node_selector_terms_match(&json!([term.get("preference")]), node);
    terms.into_iter().flatten().filter(matches).filter_map(|term| term.get("weight")?.as_f64()).sum()
}

/// Returns the average percentage of CPU and memory that would remain unrequested on the node (`LeastAllocated`).
fn least_allocated(pod: &Value, node_info: &NodeInfo) -> f64 {
    let total = capacity(&node_info.node);
    let non_zero_requested = node_info.non_zero_requested.plus(CpuMemory::non_zero_requests(pod));
    let free_percent = |total: f64, requested: f64| {
        if requested > total || total == 0.0 { 0.0 } else { (total - requested) * MAX_NODE_SCORE / total }
    };
    f64::midpoint(
        free_percent(total.cpu, non_zero_requested.cpu).trunc(),
        free_percent(total.memory, non_zero_requested.memory).trunc(),
    )
}

/// Returns a higher score the closer the requested fractions of CPU and memory would be to each other
/// (`BalancedAllocation`).
fn balanced_allocation(pod: &Value, node_info: &NodeInfo) -> f64 {
    let requests = apimachinery::pod_requests(pod);
    let total = capacity(&node_info.node);
    let amount = |amounts: &apimachinery::ResourceList, name: &str| amounts.get(name).map_or(0.0, Quantity::as_f64);
    let fraction = |name: &str, total: f64| {
        let requested = amount(&node_info.requested, name) + amount(&requests, name);
        if total > 0.0 { (requested / total).min(1.0) } else { 0.0 }
    };
    (1.0 - (fraction("cpu", total.cpu) - fraction("memory", total.memory)).abs() / 2.0) * MAX_NODE_SCORE
}

/// Returns the allocatable CPU and memory of a node.
fn capacity(node: &Value) -> CpuMemory {
    let total = allocatable(node);
    let amount = |name: &str| total.get(name).map_or(0.0, Quantity::as_f64);
    CpuMemory { cpu: amount("cpu"), memory: amount("memory") }
}

/// Scores nodes by the topology spread constraints with `ScheduleAnyway`: the fewer matching Pods in the node's
/// topology domain, the higher the score (`PodTopologySpread`).
fn topology_spread(pod: &Value, feasible: &[&NodeInfo], all: &[NodeInfo]) -> Vec<f64> {
    let constraints = constraints(pod, UnsatisfiableAction::ScheduleAnyway);
    let has_labels = |node_info: &NodeInfo| has_topology_labels(constraints.iter(), &node_info.node);
    let mut raw_scores: Vec<Option<f64>> =
        feasible.iter().map(|node_info| has_labels(node_info).then_some(0.0)).collect();
    if constraints.is_empty() {
        return vec![0.0; feasible.len()];
    }
    for constraint in &constraints {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for node_info in all.iter().filter(|node_info| has_labels(node_info)) {
            if let Some(domain) = constraint.domain(pod, &node_info.node) {
                let matching = node_info.pods.iter().filter(|existing_pod| constraint.matches(existing_pod)).count();
                let count = counts.entry(domain).or_default();
                *count = count.saturating_add(matching);
            }
        }
        let domains: BTreeSet<&str> = feasible
            .iter()
            .filter(|node_info| has_labels(node_info))
            .filter_map(|node_info| object::label(&node_info.node, &constraint.topology_key))
            .collect();
        let weight = (domains.len().saturating_add(2) as f64).ln();
        for (score, node_info) in raw_scores.iter_mut().zip(feasible) {
            let matching =
                object::label(&node_info.node, &constraint.topology_key).and_then(|domain| counts.get(domain)).copied();
            let cost = matching.unwrap_or(0) as f64 * weight + constraint.max_skew.saturating_sub(1) as f64;
            *score = score.map(|score| score + cost);
        }
    }
    let present_scores = || raw_scores.iter().flatten().map(|score| score.round());
    let (low, high) = (present_scores().fold(f64::MAX, f64::min), present_scores().fold(0.0, f64::max));
    let normalized =
        |score: f64| if high > 0.0 { MAX_NODE_SCORE * (high + low - score.round()) / high } else { MAX_NODE_SCORE };
    raw_scores.iter().map(|score| score.map_or(0.0, normalized)).collect()
}

/// Scores nodes by the preferred Pod affinity and anti-affinity of the incoming Pod and of existing Pods. The required
/// affinity terms of existing Pods count with weight 1 (`InterPodAffinity`).
fn inter_pod_affinity(pod: &Value, feasible: &[&NodeInfo], all: &[NodeInfo], namespaces: &[Arc<Value>]) -> Vec<f64> {
    let own_terms: Vec<(i64, AffinityTerm)> = weighted_terms(pod, namespaces);
    let mut weights: BTreeMap<(String, String), i64> = BTreeMap::new();
    let mut add_weight = |term: &AffinityTerm, node: &Value, weight: i64| {
        if let Some(domain) = object::label(node, &term.topology_key) {
            let sum = weights.entry((term.topology_key.clone(), domain.to_owned())).or_default();
            *sum = sum.saturating_add(weight);
        }
    };
    for node_info in all {
        for (weight, term) in &own_terms {
            let matching = node_info.pods.iter().filter(|existing_pod| term.matches(existing_pod)).count();
            if matching > 0 {
                add_weight(term, &node_info.node, weight.saturating_mul(i64::try_from(matching).unwrap_or(i64::MAX)));
            }
        }
        for existing_pod in &node_info.pods_with_affinity {
            let required =
                required_terms(existing_pod, AffinityKind::Affinity, namespaces).into_iter().map(|term| (1, term));
            for (weight, term) in weighted_terms(existing_pod, namespaces).into_iter().chain(required) {
                if term.matches(pod) {
                    add_weight(&term, &node_info.node, weight);
                }
            }
        }
    }
    let node_score = |node_info: &&NodeInfo| {
        let matching_pairs =
            weights.iter().filter(|((key, value), _)| object::label(&node_info.node, key) == Some(value));
        matching_pairs.map(|(_, weight)| *weight as f64).sum::<f64>()
    };
    normalize_range(feasible.iter().map(node_score).collect())
}

/// Returns the preferred affinity terms of a Pod with their weights; anti-affinity has negative weights.
fn weighted_terms(pod: &Value, namespaces: &[Arc<Value>]) -> Vec<(i64, AffinityTerm)> {
    let anti_affinity = preferred_terms(pod, AffinityKind::AntiAffinity, namespaces)
        .into_iter()
        .map(|(weight, term)| (weight.saturating_neg(), term));
    preferred_terms(pod, AffinityKind::Affinity, namespaces).into_iter().chain(anti_affinity).collect()
}

/// Scales the scores so that the smallest becomes 0 and the largest 100.
fn normalize_range(raw_scores: Vec<f64>) -> Vec<f64> {
    let (low, high) =
        (raw_scores.iter().copied().fold(f64::MAX, f64::min), raw_scores.iter().copied().fold(f64::MIN, f64::max));
    raw_scores
        .into_iter()
        .map(|score| if high > low { MAX_NODE_SCORE * (score - low) / (high - low) } else { 0.0 })
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn node(name: &str, zone: &str) -> NodeInfo {
        let node = json!({
            "metadata": {"name": name, "labels": {"zone": zone, "name": name}},
            "status": {"allocatable": {"cpu": "10", "memory": "10Gi"}},
        });
        NodeInfo::new(node.into())
    }

    fn existing_pod(name: &str, cpu: &str) -> Arc<Value> {
        let container = json!({"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}});
        Arc::new(json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": name}},
            "spec": {"containers": [container]},
        }))
    }

    /// Returns the name of the best of three nodes. `a` and `b` are in the same zone, the Pod `web` runs on `a`, and
    /// `b` has the fewest free resources.
    fn best_node(spec: Value) -> String {
        let mut all = [node("a", "z1"), node("b", "z1"), node("c", "z2")];
        all[0].add_pod(&existing_pod("web", "1"));
        all[1].add_pod(&existing_pod("big", "5"));
        let pod = json!({"metadata": {"namespace": "n", "labels": {"app": "web"}}, "spec": spec});
        let feasible: Vec<&NodeInfo> = all.iter().collect();
        let scores = scores(&pod, &feasible, &all, &[]);
        let highest = scores.iter().max().unwrap();
        all[scores.iter().position(|score| score == highest).unwrap()].name().to_owned()
    }

    fn preferred_near_web(key: &str) -> Value {
        let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}});
        json!([{"weight": 100, "podAffinityTerm": term}])
    }

    #[rstest]
    #[case::most_free_resources(json!({}), "c")]
    #[case::preferred_node_affinity(
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "name", "operator": "In", "values": ["b"]}]}},
        ]}}}),
        "b"
    )]
    #[case::preferred_pod_affinity(
        json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred_near_web("name")}}}), "a"
    )]
    #[case::preferred_pod_anti_affinity(
        json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred_near_web("zone")}}}), "c"
    )]
    #[case::schedule_anyway_spread(
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
               "labelSelector": {"matchLabels": {"app": "web"}}}]}),
        "c"
    )]
    fn selects_best_node(#[case] spec: Value, #[case] expect: &str) {
        assert_eq!(best_node(spec), expect);
    }
}
