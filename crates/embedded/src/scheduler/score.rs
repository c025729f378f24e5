//! Which of the nodes that fit is best.

use apimachinery::pod::add;
use apimachinery::quantity::Quantity;
use apimachinery::selector::node_matches;
use serde_json::{Value, json};

use super::filter::{self, Candidate};
use crate::object;

/// Higher is better, compared from the front: fewer soft taints that the Pod does not tolerate, more weight of preferred
/// node affinity, more cpu and memory left (kube-scheduler's default spreads, `LeastAllocated`). Equal nodes are left
/// to the caller, who takes the first by name; kube-scheduler draws one.
pub(crate) fn score(pod: &Value, candidate: &Candidate) -> (i64, i64, i64) {
    (-soft_taints(pod, &candidate.node), preference(pod, &candidate.node), free(pod, candidate))
}

fn soft_taints(pod: &Value, node: &Value) -> i64 {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let soft = taints.into_iter().flatten().filter(|taint| object::text(taint, "/effect") == "PreferNoSchedule");
    i64::try_from(soft.filter(|taint| !filter::tolerated(pod, taint)).count()).unwrap_or(i64::MAX)
}

fn preference(pod: &Value, node: &Value) -> i64 {
    let preferred = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
    let terms = pod.pointer(preferred).and_then(Value::as_array);
    let holds = |term: &&Value| node_matches(&json!([term.get("preference")]), node);
    terms.into_iter().flatten().filter(holds).filter_map(|term| term.get("weight")?.as_i64()).sum()
}

/// Percent of cpu and memory that would be left, averaged.
fn free(pod: &Value, candidate: &Candidate) -> i64 {
    let total = filter::allocatable(&candidate.node);
    let mut used = candidate.used.clone();
    add(&mut used, &filter::requests(pod));
    let percent = |name: &str| {
        let total = total.get(name).map_or(0.0, Quantity::as_f64);
        let used = used.get(name).map_or(0.0, Quantity::as_f64);
        // Whole percents: a sum of fractions would depend on the order of addition.
        if total > 0.0 { (((total - used) / total).clamp(0.0, 1.0) * 100.0) as i64 } else { 0 }
    };
    i64::midpoint(percent("cpu"), percent("memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emptier_node_wins_unless_affinity_says_otherwise() {
        let node = |name: &str, cpu: i64| Candidate {
            node: json!({
                "metadata": {"name": name, "labels": {"zone": name}},
                "status": {"allocatable": {"cpu": "10", "memory": "10Gi"}},
            })
            .into(),
            used: [("cpu".to_owned(), Quantity::from_units(cpu))].into(),
        };
        let (full, empty) = (node("full", 9), node("empty", 0));
        assert!(score(&json!({}), &empty) > score(&json!({}), &full));
        let pod = json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["full"]}]}},
        ]}}}});
        assert!(score(&pod, &full) > score(&pod, &empty));
    }
}
