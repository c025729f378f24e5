//! Which of the nodes that fit is best: the scores of kube-scheduler's default plugins with their weights. Of equal nodes
//! the caller takes the first by name; kube-scheduler draws one. Where images lie already counts for nothing here, and
//! the spread that kube-scheduler adds for Pods without constraints is not done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::quantity::Quantity;
use apimachinery::selector::node_matches;
use serde_json::{Value, json};

use super::candidate::{Candidate, Load, allocatable};
use super::spread::{Otherwise, constraints, has_places};
use super::taints;
use super::term::{Side, Term, label, preferred, required};
use crate::object;

/// The best score of a plugin.
const BEST: f64 = 100.0;

/// One score for each of `fitting`, which are some of `all`; higher is better.
pub(super) fn scores(pod: &Value, fitting: &[&Candidate], all: &[Candidate], namespaces: &[Arc<Value>]) -> Vec<i64> {
    let each = |score: &dyn Fn(&Candidate) -> f64| -> Vec<f64> { fitting.iter().map(|one| score(one)).collect() };
    let plugins = [
        (3.0, fewest(each(&|one| soft_taints(pod, &one.node)))),
        (2.0, most(each(&|one| preference(pod, &one.node)))),
        (2.0, evenness(pod, fitting, all)),
        (2.0, company(pod, fitting, all, namespaces)),
        (1.0, each(&|one| room(pod, one))),
        (1.0, each(&|one| balance(pod, one))),
    ];
    let total = |at: usize| plugins.iter().filter_map(|(weight, of)| Some(weight * of.get(at)?.trunc())).sum::<f64>();
    (0..fitting.len()).map(|at| total(at) as i64).collect()
}

/// The largest becomes 100.
fn most(raw: Vec<f64>) -> Vec<f64> {
    let largest = raw.iter().copied().fold(0.0, f64::max);
    raw.into_iter().map(|score| if largest > 0.0 { score * BEST / largest } else { 0.0 }).collect()
}

/// None becomes 100, the largest 0.
fn fewest(raw: Vec<f64>) -> Vec<f64> {
    most(raw).into_iter().map(|score| BEST - score.trunc()).collect()
}

fn soft_taints(pod: &Value, node: &Value) -> f64 {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let soft = taints.into_iter().flatten().filter(|taint| object::text(taint, "/effect") == "PreferNoSchedule");
    soft.filter(|taint| !taints::tolerated(pod, taint)).count() as f64
}

fn preference(pod: &Value, node: &Value) -> f64 {
    let preferred = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
    let terms = pod.pointer(preferred).and_then(Value::as_array);
    let holds = |term: &&Value| node_matches(&json!([term.get("preference")]), node);
    terms.into_iter().flatten().filter(holds).filter_map(|term| term.get("weight")?.as_f64()).sum()
}

/// Percent of cpu and memory that would be left, averaged.
fn room(pod: &Value, candidate: &Candidate) -> f64 {
    let total = capacity(&candidate.node);
    let load = candidate.load.plus(Load::of(pod));
    let left = |total: f64, used: f64| if used > total || total == 0.0 { 0.0 } else { (total - used) * BEST / total };
    f64::midpoint(left(total.cpu, load.cpu).trunc(), left(total.memory, load.memory).trunc())
}

/// Best where cpu and memory would be used to the same part.
fn balance(pod: &Value, candidate: &Candidate) -> f64 {
    let requests = apimachinery::pod::requests(pod);
    let total = capacity(&candidate.node);
    let amount = |of: &apimachinery::pod::Amounts, name: &str| of.get(name).map_or(0.0, Quantity::as_f64);
    let part = |name: &str, total: f64| {
        let used = amount(&candidate.used, name) + amount(&requests, name);
        if total > 0.0 { (used / total).min(1.0) } else { 0.0 }
    };
    (1.0 - (part("cpu", total.cpu) - part("memory", total.memory)).abs() / 2.0) * BEST
}

fn capacity(node: &Value) -> Load {
    let total = allocatable(node);
    let of = |name: &str| total.get(name).map_or(0.0, Quantity::as_f64);
    Load { cpu: of("cpu"), memory: of("memory") }
}

/// Constraints that say `ScheduleAnyway`: fewer Pods at the place are better.
fn evenness(pod: &Value, fitting: &[&Candidate], all: &[Candidate]) -> Vec<f64> {
    let constraints = constraints(pod, Otherwise::ScheduleAnyway);
    let counted = |candidate: &Candidate| has_places(constraints.iter(), &candidate.node);
    let mut raw: Vec<Option<f64>> = fitting.iter().map(|one| counted(one).then_some(0.0)).collect();
    if constraints.is_empty() {
        return vec![0.0; fitting.len()];
    }
    for constraint in &constraints {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for candidate in all.iter().filter(|candidate| counted(candidate)) {
            if let Some(place) = constraint.place(pod, &candidate.node) {
                *counts.entry(place).or_default() +=
                    candidate.tenants.iter().filter(|tenant| constraint.counts(tenant)).count();
            }
        }
        let places: BTreeSet<&str> = fitting
            .iter()
            .filter(|candidate| counted(candidate))
            .filter_map(|candidate| label(&candidate.node, &constraint.key))
            .collect();
        let weight = ((places.len() + 2) as f64).ln();
        for (score, candidate) in raw.iter_mut().zip(fitting) {
            let here = label(&candidate.node, &constraint.key).and_then(|place| counts.get(place)).copied();
            let more = here.unwrap_or(0) as f64 * weight + (constraint.max_skew - 1) as f64;
            *score = score.map(|score| score + more);
        }
    }
    let present = || raw.iter().flatten().map(|score| score.round());
    let (low, high) = (present().fold(f64::MAX, f64::min), present().fold(0.0, f64::max));
    let normal = |score: f64| if high > 0.0 { BEST * (high + low - score.round()) / high } else { BEST };
    raw.iter().map(|score| score.map_or(0.0, normal)).collect()
}

/// Preferred Pod affinity and anti-affinity, of this Pod and of those that are there. What they require of others counts
/// as a wish of weight one.
fn company(pod: &Value, fitting: &[&Candidate], all: &[Candidate], namespaces: &[Arc<Value>]) -> Vec<f64> {
    let own: Vec<(i64, Term)> = wishes(pod, namespaces);
    let mut places: BTreeMap<(String, String), i64> = BTreeMap::new();
    let mut add = |term: &Term, node: &Value, weight: i64| {
        if let Some(place) = label(node, &term.topology) {
            *places.entry((term.topology.clone(), place.to_owned())).or_default() += weight;
        }
    };
    for candidate in all {
        for (weight, term) in &own {
            let meant = candidate.tenants.iter().filter(|tenant| term.means(tenant)).count();
            if meant > 0 {
                add(term, &candidate.node, weight * i64::try_from(meant).unwrap_or(i64::MAX));
            }
        }
        for tenant in &candidate.particular {
            let hard = required(tenant, Side::Near, namespaces).into_iter().map(|term| (1, term));
            for (weight, term) in wishes(tenant, namespaces).into_iter().chain(hard) {
                if term.means(pod) {
                    add(&term, &candidate.node, weight);
                }
            }
        }
    }
    let sum = |candidate: &&Candidate| {
        let here = places.iter().filter(|((key, value), _)| label(&candidate.node, key) == Some(value));
        here.map(|(_, weight)| *weight as f64).sum::<f64>()
    };
    between(fitting.iter().map(sum).collect())
}

/// What a Pod prefers about others; to be far is a wish of negative weight.
fn wishes(pod: &Value, namespaces: &[Arc<Value>]) -> Vec<(i64, Term)> {
    let far = preferred(pod, Side::Far, namespaces).into_iter().map(|(weight, term)| (-weight, term));
    preferred(pod, Side::Near, namespaces).into_iter().chain(far).collect()
}

/// The smallest becomes 0, the largest 100.
fn between(raw: Vec<f64>) -> Vec<f64> {
    let (low, high) = (raw.iter().copied().fold(f64::MAX, f64::min), raw.iter().copied().fold(f64::MIN, f64::max));
    raw.into_iter().map(|score| if high > low { BEST * (score - low) / (high - low) } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn node(name: &str, zone: &str) -> Candidate {
        let node = json!({
            "metadata": {"name": name, "labels": {"zone": zone, "name": name}},
            "status": {"allocatable": {"cpu": "10", "memory": "10Gi"}},
        });
        Candidate::of(node.into())
    }

    fn tenant(name: &str, cpu: &str) -> Arc<Value> {
        let container = json!({"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}});
        Arc::new(json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": name}},
            "spec": {"containers": [container]},
        }))
    }

    /// Of three nodes: `a` and `b` share a zone; `web` runs on `a`, and `b` has little left.
    fn best(spec: Value) -> String {
        let mut all = [node("a", "z1"), node("b", "z1"), node("c", "z2")];
        all[0].take(&tenant("web", "1"));
        all[1].take(&tenant("big", "5"));
        let pod = json!({"metadata": {"namespace": "n", "labels": {"app": "web"}}, "spec": spec});
        let fitting: Vec<&Candidate> = all.iter().collect();
        let scores = scores(&pod, &fitting, &all, &[]);
        let highest = scores.iter().max().unwrap();
        all[scores.iter().position(|score| score == highest).unwrap()].name().to_owned()
    }

    fn near(key: &str) -> Value {
        let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}});
        json!([{"weight": 100, "podAffinityTerm": term}])
    }

    #[rstest]
    #[case::the_emptiest(json!({}), "c")]
    #[case::a_node_that_is_preferred(
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "name", "operator": "In", "values": ["b"]}]}},
        ]}}}),
        "b"
    )]
    #[case::beside_its_own_kind(
        json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": near("name")}}}), "a"
    )]
    #[case::away_from_its_own_zone(
        json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": near("zone")}}}), "c"
    )]
    #[case::spread_if_possible(
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
               "labelSelector": {"matchLabels": {"app": "web"}}}]}),
        "c"
    )]
    fn the_best_node(#[case] spec: Value, #[case] expect: &str) {
        assert_eq!(best(spec), expect);
    }
}
