//! Which nodes a Pod can run on, and why not the others, in the words of kube-scheduler's plugins.

use std::collections::BTreeMap;

use apimachinery::pod::{Amounts, amounts};
use apimachinery::quantity::Quantity;
use apimachinery::selector::node_matches;
use serde_json::Value;

use crate::object;
use crate::workloads::ownership::string_map;

/// A node with what its Pods request already.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) node: std::sync::Arc<Value>,
    pub(crate) used: Amounts,
}

/// Why a node is out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unfit {
    /// One or more reasons of the first plugin that refused.
    pub(crate) reasons: Vec<String>,
    /// Whether the node would fit if other Pods left it.
    pub(crate) preemptable: bool,
}

/// `None` when the Pod fits. Plugins in kube-scheduler's order; the first that refuses decides.
pub(crate) fn unfit(pod: &Value, candidate: &Candidate) -> Option<Unfit> {
    let node = &candidate.node;
    unschedulable(pod, node)
        .or_else(|| tainted(pod, node))
        .or_else(|| not_selected(pod, node))
        .map(|reason| Unfit { reasons: vec![reason], preemptable: false })
        .or_else(|| insufficient(pod, candidate))
}

fn unschedulable(pod: &Value, node: &Value) -> Option<String> {
    let taint = serde_json::json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    (node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) && !tolerated(pod, &taint))
        .then(|| "node(s) were unschedulable".to_owned())
}

fn tainted(pod: &Value, node: &Value) -> Option<String> {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array)?;
    let hard = |taint: &&Value| matches!(object::text(taint, "/effect"), "NoSchedule" | "NoExecute");
    let taint = taints.iter().filter(hard).find(|taint| !tolerated(pod, taint))?;
    let (key, value) = (object::text(taint, "/key"), object::text(taint, "/value"));
    Some(format!("node(s) had untolerated taint {{{key}: {value}}}"))
}

/// Whether any toleration of the Pod covers the taint.
pub(crate) fn tolerated(pod: &Value, taint: &Value) -> bool {
    let tolerations = pod.pointer("/spec/tolerations").and_then(Value::as_array);
    tolerations.into_iter().flatten().any(|toleration| {
        let (key, effect) = (object::text(toleration, "/key"), object::text(toleration, "/effect"));
        let exists = object::text(toleration, "/operator") == "Exists";
        (effect.is_empty() || effect == object::text(taint, "/effect"))
            && (key == object::text(taint, "/key") || key.is_empty() && exists)
            && (exists || object::text(toleration, "/value") == object::text(taint, "/value"))
    })
}

/// `nodeSelector` and the required node affinity.
fn not_selected(pod: &Value, node: &Value) -> Option<String> {
    let labels = string_map(node.pointer("/metadata/labels"));
    let selector = string_map(pod.pointer("/spec/nodeSelector"));
    let selected = selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let affine = pod.pointer(required).is_none_or(|terms| node_matches(terms, node));
    (!selected || !affine).then(|| "node(s) didn't match Pod's node affinity/selector".to_owned())
}

fn insufficient(pod: &Value, candidate: &Candidate) -> Option<Unfit> {
    let allocatable = allocatable(&candidate.node);
    let of = |amounts: &Amounts, name: &str| amounts.get(name).copied().unwrap_or(Quantity::ZERO);
    let mut unfit = Unfit { reasons: Vec::new(), preemptable: true };
    for (name, wanted) in requests(pod) {
        let total = of(&allocatable, &name);
        if wanted.is_zero() || wanted + of(&candidate.used, &name) <= total {
            continue;
        }
        unfit.preemptable &= wanted <= total;
        let reason = if name == "pods" { "Too many pods".to_owned() } else { format!("Insufficient {name}") };
        unfit.reasons.push(reason);
    }
    (!unfit.reasons.is_empty()).then_some(unfit)
}

/// What a node has for Pods. A node that does not limit the number of Pods takes 110, the kubelet's default.
pub(crate) fn allocatable(node: &Value) -> Amounts {
    let status = node.get("status").unwrap_or(&Value::Null);
    let mut amounts = amounts(status.get("allocatable").or_else(|| status.get("capacity")));
    amounts.entry("pods".to_owned()).or_insert_with(|| Quantity::from_units(110));
    amounts
}

/// What a Pod asks for, itself included.
pub(crate) fn requests(pod: &Value) -> Amounts {
    let mut total = apimachinery::pod::requests(pod);
    total.insert("pods".to_owned(), Quantity::from_units(1));
    total
}

/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) …`, as `FitError` and the default preemption write it.
pub(crate) fn explain(refusals: &[Unfit]) -> String {
    if refusals.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    let total = refusals.len();
    let reasons = histogram(refusals.iter().flat_map(|unfit| unfit.reasons.iter().cloned()));
    let preemption = histogram(refusals.iter().map(|unfit| {
        let why = if unfit.preemptable {
            "No preemption victims found for incoming pod"
        } else {
            "Preemption is not helpful for scheduling"
        };
        why.to_owned()
    }));
    format!("0/{total} nodes are available: {reasons}. preemption: 0/{total} nodes are available: {preemption}.")
}

/// Counts per reason, sorted as text: Kubernetes sorts the finished phrases.
fn histogram(reasons: impl Iterator<Item = String>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let mut phrases: Vec<String> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    phrases.sort();
    phrases.join(", ")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn candidate() -> Candidate {
        let node = json!({
            "metadata": {"name": "n1", "labels": {"gpu": "h100"}},
            "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "nvidia.com/gpu": "8"}},
        });
        let used = Amounts::from([("cpu".to_owned(), Quantity::from_units(3))]);
        Candidate { node: node.into(), used }
    }

    const TOLERANT: &str = r#"[{"key": "gpu", "operator": "Exists"}]"#;

    #[rstest]
    #[case::taint(json!({}), Some(("node(s) had untolerated taint {gpu: yes}", false)))]
    #[case::tolerated(json!({"tolerations": "T"}), None)]
    #[case::by_value(json!({"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}), None)]
    #[case::selector(json!({"tolerations": "T", "nodeSelector": {"gpu": "a100"}}), Some(("node(s) didn't match Pod's node affinity/selector", false)))]
    #[case::full(json!({"tolerations": "T", "containers": [{"resources": {"requests": {"cpu": "2"}}}]}), Some(("Insufficient cpu", true)))]
    #[case::never(json!({"tolerations": "T", "containers": [{"resources": {"limits": {"nvidia.com/gpu": 9}}}]}), Some(("Insufficient nvidia.com/gpu", false)))]
    #[case::fits(json!({"tolerations": "T", "containers": [{"resources": {"limits": {"nvidia.com/gpu": 8, "cpu": "1"}}}]}), None)]
    fn refusals(#[case] mut spec: Value, #[case] expect: Option<(&str, bool)>) {
        if spec["tolerations"] == "T" {
            spec["tolerations"] = serde_json::from_str(TOLERANT).unwrap();
        }
        let found = unfit(&json!({"spec": spec}), &candidate());
        let expect = expect.map(|(reason, preemptable)| Unfit { reasons: vec![reason.to_owned()], preemptable });
        assert_eq!(found, expect);
    }

    #[test]
    fn init_containers_count_by_their_peak() {
        let cpu = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let pod = json!({"spec": {"containers": [cpu("1"), cpu("1")], "initContainers": [cpu("3"), cpu("1")]}});
        assert_eq!(requests(&pod)["cpu"].to_string(), "3");
    }

    #[test]
    fn the_message_is_the_schedulers_own() {
        let unfit = |reason: &str, preemptable| Unfit { reasons: vec![reason.to_owned()], preemptable };
        let text = explain(&[
            unfit("Insufficient cpu", true),
            unfit("node(s) were unschedulable", false),
            unfit("Insufficient cpu", true),
        ]);
        assert_eq!(
            text,
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
        );
    }
}
