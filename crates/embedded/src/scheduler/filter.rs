//! Which nodes a Pod can run on, and why not the others; shown in the words of kube-scheduler's plugins.

use std::collections::BTreeMap;
use std::fmt;

use apimachinery::pod::Amounts;
use apimachinery::quantity::Quantity;
use apimachinery::selector::node_matches;
use serde_json::Value;

use super::candidate::{Candidate, allocatable, requests};
use super::claims::{Claims, Obstacle};
use super::host_ports;
use super::neighbours::Neighbours;
use super::world::World;
use crate::object;
use crate::workloads::ownership::string_map;

/// Why a node does not take a Pod, with its numbers. `Display` is kube-scheduler's phrase, which has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The node is cordoned.
    Unschedulable,
    UntoleratedTaint {
        key: String,
        value: String,
    },
    /// `nodeSelector` or the required node affinity.
    NotSelected,
    /// The node takes so many Pods and has them.
    TooManyPods {
        most: Quantity,
    },
    /// Another Pod of the node has the `hostPort`.
    PortTaken {
        port: i64,
    },
    Insufficient {
        resource: String,
        needs: Quantity,
        free: Quantity,
        total: Quantity,
    },
    /// A volume that the Pod uses can only be reached from other nodes.
    VolumeElsewhere {
        claim: String,
    },
    /// No PersistentVolume fits a claim that waits for its first Pod.
    NoVolume {
        claim: String,
    },
    /// The node has no label that a topology spread constraint spreads over.
    NoPlaceToSpread {
        key: String,
    },
    /// A topology spread constraint: the place would have `skew` Pods more than the emptiest.
    Uneven {
        key: String,
        skew: i64,
        most: i64,
    },
    /// Required Pod affinity.
    NotNear,
    /// Required Pod anti-affinity.
    NotFar,
    /// Required anti-affinity of a Pod that is there.
    OthersStayFar,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
            Self::UntoleratedTaint { .. } => f.write_str("node(s) had untolerated taint(s)"),
            Self::NotSelected => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::TooManyPods { .. } => f.write_str("Too many pods"),
            Self::PortTaken { .. } => f.write_str("node(s) didn't have free ports for the requested pod ports"),
            Self::Insufficient { resource, .. } => write!(f, "Insufficient {resource}"),
            Self::VolumeElsewhere { .. } => f.write_str("node(s) didn't match PersistentVolume's node affinity"),
            Self::NoVolume { .. } => f.write_str("node(s) didn't find available persistent volumes to bind"),
            Self::NoPlaceToSpread { .. } => {
                f.write_str("node(s) didn't match pod topology spread constraints (missing required label)")
            }
            Self::Uneven { .. } => f.write_str("node(s) didn't match pod topology spread constraints"),
            Self::NotNear => f.write_str("node(s) didn't match pod affinity rules"),
            Self::NotFar => f.write_str("node(s) didn't match pod anti-affinity rules"),
            Self::OthersStayFar => f.write_str("node(s) didn't satisfy existing pods anti-affinity rules"),
        }
    }
}

/// Why a node is out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unfit {
    /// One or more reasons of the first plugin that refused.
    pub(crate) reasons: Vec<Reason>,
    /// Whether the node would fit if other Pods left it.
    pub(crate) preemptable: bool,
}

/// What is asked of nodes for one Pod.
#[derive(Debug, Clone)]
pub(super) struct Rules<'a> {
    pub(super) pod: &'a Value,
    pub(super) claims: Claims<'a>,
    pub(super) neighbours: Neighbours<'a>,
}

impl<'a> Rules<'a> {
    pub(super) fn of(pod: &'a Value, candidates: &[Candidate], world: &'a World) -> Self {
        let claims = world.storage.as_ref().map_or_else(Claims::default, |storage| Claims::of(pod, storage));
        Self { pod, claims, neighbours: Neighbours::of(pod, candidates, &world.namespaces) }
    }

    /// `None` when the Pod fits. Plugins in kube-scheduler's order; the first that refuses decides.
    pub(super) fn unfit(&self, candidate: &Candidate) -> Option<Unfit> {
        let (pod, node) = (self.pod, candidate.node.as_ref());
        unschedulable(pod, node)
            .or_else(|| tainted(pod, node))
            .or_else(|| not_selected(pod, node))
            .map(Unfit::lasting)
            .or_else(|| host_ports::taken(pod, candidate).map(|port| Unfit::curable(Reason::PortTaken { port })))
            .or_else(|| insufficient(pod, candidate))
            .or_else(|| self.claims.refuse(node).map(Unfit::lasting))
            .or_else(|| self.neighbours.refuse(node))
    }
}

impl Unfit {
    /// Whoever leaves the node, it does not help.
    pub(super) fn lasting(reason: Reason) -> Self {
        Self { reasons: vec![reason], preemptable: false }
    }

    /// It could help that others leave.
    pub(super) fn curable(reason: Reason) -> Self {
        Self { reasons: vec![reason], preemptable: true }
    }
}

fn unschedulable(pod: &Value, node: &Value) -> Option<Reason> {
    let taint = serde_json::json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    (node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) && !tolerated(pod, &taint))
        .then_some(Reason::Unschedulable)
}

pub(super) fn tainted(pod: &Value, node: &Value) -> Option<Reason> {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array)?;
    let hard = |taint: &&Value| matches!(object::text(taint, "/effect"), "NoSchedule" | "NoExecute");
    let taint = taints.iter().filter(hard).find(|taint| !tolerated(pod, taint))?;
    let part = |pointer: &str| object::text(taint, pointer).to_owned();
    Some(Reason::UntoleratedTaint { key: part("/key"), value: part("/value") })
}

/// Whether any toleration of the Pod covers the taint.
pub(crate) fn tolerated(pod: &Value, taint: &Value) -> bool {
    let tolerations = pod.pointer("/spec/tolerations").and_then(Value::as_array);
    tolerations.into_iter().flatten().any(|toleration| tolerates(toleration, taint))
}

/// Whether one toleration covers the taint.
pub(crate) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (object::text(toleration, "/key"), object::text(toleration, "/effect"));
    let exists = object::text(toleration, "/operator") == "Exists";
    (effect.is_empty() || effect == object::text(taint, "/effect"))
        && (key == object::text(taint, "/key") || key.is_empty() && exists)
        && (exists || object::text(toleration, "/value") == object::text(taint, "/value"))
}

/// `nodeSelector` and the required node affinity.
pub(super) fn not_selected(pod: &Value, node: &Value) -> Option<Reason> {
    let labels = string_map(node.pointer("/metadata/labels"));
    let selector = string_map(pod.pointer("/spec/nodeSelector"));
    let selected = selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let affine = pod.pointer(required).is_none_or(|terms| node_matches(terms, node));
    (!selected || !affine).then_some(Reason::NotSelected)
}

fn insufficient(pod: &Value, candidate: &Candidate) -> Option<Unfit> {
    let allocatable = allocatable(&candidate.node);
    let of = |amounts: &Amounts, name: &str| amounts.get(name).copied().unwrap_or(Quantity::ZERO);
    let mut unfit = Unfit { reasons: Vec::new(), preemptable: true };
    for (name, wanted) in requests(pod) {
        let total = of(&allocatable, &name);
        let used = of(&candidate.used, &name);
        if wanted.is_zero() || wanted + used <= total {
            continue;
        }
        unfit.preemptable &= wanted <= total;
        let free = (total - used).max(Quantity::ZERO);
        unfit.reasons.push(match name.as_str() {
            "pods" => Reason::TooManyPods { most: total },
            _ => Reason::Insufficient { resource: name, needs: wanted, free, total },
        });
    }
    (!unfit.reasons.is_empty()).then_some(unfit)
}

/// What came of looking for Pods that could make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preemption {
    /// There are none.
    Nobody,
    Found,
    /// The Pod's own policy.
    Never,
    /// They are on their way out.
    Going,
}

/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) …`, as `FitError` and the default preemption write it.
pub(crate) fn explain(refusals: &[Unfit], outcome: Preemption) -> String {
    if refusals.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    let total = refusals.len();
    let reasons = histogram(refusals.iter().flat_map(|unfit| unfit.reasons.iter().map(ToString::to_string)));
    let available = format!("0/{total} nodes are available");
    let told = match outcome {
        Preemption::Found => return format!("{available}: {reasons}."),
        Preemption::Never => "not eligible due to preemptionPolicy=Never".to_owned(),
        Preemption::Going => "not eligible due to a terminating pod on the nominated node".to_owned(),
        Preemption::Nobody => format!("{available}: {}", helpfulness(refusals)),
    };
    format!("{available}: {reasons}. preemption: {told}.")
}

/// The same where something stands against every node, so that none was looked at.
pub(super) fn explain_obstacle(obstacle: &Obstacle, nodes: usize) -> String {
    let available = format!("0/{nodes} nodes are available");
    match obstacle {
        // Preemption looks for the object once more, and repeats what it is told.
        Obstacle::Missing(object) => format!("{available}: {object} not found. not found"),
        Obstacle::Unusable(message) => {
            let told = format!("{nodes} Preemption is not helpful for scheduling");
            format!("{available}: {message}. preemption: {available}: {told}.")
        }
    }
}

/// Whether other Pods are in the way at all, counted over the nodes.
fn helpfulness(refusals: &[Unfit]) -> String {
    histogram(refusals.iter().map(|unfit| {
        let why = if unfit.preemptable {
            "No preemption victims found for incoming pod"
        } else {
            "Preemption is not helpful for scheduling"
        };
        why.to_owned()
    }))
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
        let mut candidate = Candidate::of(node.into());
        candidate.used = Amounts::from([("cpu".to_owned(), Quantity::from_units(3))]);
        candidate
    }

    fn unfit(pod: &Value) -> Option<Unfit> {
        let candidates = [candidate()];
        Rules::of(pod, &candidates, &World::default()).unfit(&candidates[0])
    }

    const TOLERANT: &str = r#"[{"key": "gpu", "operator": "Exists"}]"#;

    #[rstest]
    #[case::taint(json!({}), Some(("node(s) had untolerated taint(s)", false)))]
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
        let found = unfit(&json!({"spec": spec}));
        let found = found.map(|unfit| (unfit.reasons.iter().map(ToString::to_string).collect(), unfit.preemptable));
        assert_eq!(found, expect.map(|(reason, preemptable)| (vec![reason.to_owned()], preemptable)));
    }

    #[test]
    fn a_shortage_has_its_numbers() {
        let spec = json!({"tolerations": serde_json::from_str::<Value>(TOLERANT).unwrap(),
            "containers": [{"resources": {"requests": {"cpu": "2"}}}]});
        let units = Quantity::from_units;
        let shortage =
            Reason::Insufficient { resource: "cpu".to_owned(), needs: units(2), free: units(1), total: units(4) };
        assert_eq!(unfit(&json!({"spec": spec})).unwrap().reasons, [shortage]);
    }

    #[test]
    fn init_containers_count_by_their_peak() {
        let cpu = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let pod = json!({"spec": {"containers": [cpu("1"), cpu("1")], "initContainers": [cpu("3"), cpu("1")]}});
        assert_eq!(requests(&pod)["cpu"].to_string(), "3");
    }

    #[test]
    fn the_message_is_the_schedulers_own() {
        let (zero, resource) = (Quantity::ZERO, "cpu".to_owned());
        let shortage = Reason::Insufficient { resource, needs: zero, free: zero, total: zero };
        let unfit = |reason: &Reason, preemptable| Unfit { reasons: vec![reason.clone()], preemptable };
        let refusals = [unfit(&shortage, true), unfit(&Reason::Unschedulable, false), unfit(&shortage, true)];
        let text = explain(&refusals, Preemption::Nobody);
        assert_eq!(
            text,
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
        );
    }
}
