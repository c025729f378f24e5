//! Why no node takes a Pod: every node with what is missing there, who holds it, and whose going would make room.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::quantity::Quantity;
use embedded::scheduler::{self, Reason, World};
use serde_json::Value;

use super::{text, text_of};
use crate::report::tree::{Branch, grouped};

/// Node lines that are shown.
const LINES: usize = 12;
/// Ways to make room that are proposed.
const WAYS: usize = 2;
/// Labels by which services mark their Pods, with the kind as it is spelt on the command line.
pub(super) const OWNERS: [(&str, &str); 2] = [
    ("ome.io/inferenceservice", "inferenceservice.ome.io"),
    ("fusioninfer.io/service", "inferenceservice.fusioninfer.io"),
];

/// Nodes, Pods and classes as they are now.
pub(super) struct Surroundings {
    world: World,
    /// Classes of each node, by name.
    classes: BTreeMap<String, Vec<String>>,
}

/// Somebody whose Pods hold what another needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    /// `inferenceservice.ome.io`, or `pod` where no service owns it.
    kind: &'static str,
    namespace: String,
    name: String,
}

impl Surroundings {
    pub(super) fn of(nodes: &[Value], pods: &[Value], offered: &[Value]) -> Self {
        let shared = |objects: &[Value]| objects.iter().cloned().map(Arc::new).collect();
        let mut classes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for class in offered.iter().filter(|object| object["kind"] == "AcceleratorClass") {
            for node in class["status"]["nodes"].as_array().into_iter().flatten() {
                classes.entry(text_of(node)).or_default().push(text(class, "/metadata/name").to_owned());
            }
        }
        Self { world: World { nodes: shared(nodes), pods: shared(pods), ..World::default() }, classes }
    }

    /// One line per node, or per reason that several share; none where a node would take the Pod.
    pub(super) fn refusals(&self, pod: &Value, class: Option<&str>) -> Vec<Branch> {
        let verdicts = scheduler::fits(pod, &self.world);
        if verdicts.values().any(Vec::is_empty) {
            return Vec::new();
        }
        let line = |(node, reasons): (&String, &Vec<Reason>)| {
            let reasons = reasons.iter().map(|reason| self.told(reason, pod, node, class));
            (node.clone(), reasons.collect::<Vec<_>>().join("; "))
        };
        grouped("", verdicts.iter().map(line), LINES)
    }

    /// Nodes that there are.
    pub(super) fn count(&self) -> usize {
        self.world.nodes.len()
    }

    fn told(&self, reason: &Reason, pod: &Value, node: &str, class: Option<&str>) -> String {
        match reason {
            Reason::Unschedulable => "is cordoned".to_owned(),
            Reason::UntoleratedTaint { key, value } if value.is_empty() => format!("taint {key} is not tolerated"),
            Reason::UntoleratedTaint { key, value } => format!("taint {key}={value} is not tolerated"),
            Reason::NotSelected => self.not_selected(pod, node, class),
            Reason::TooManyPods { most } => format!("has its {most} Pods"),
            Reason::Insufficient { resource, total, .. } if total.is_zero() => format!("has no {resource}"),
            Reason::PortTaken { port } => format!("host port {port} is taken"),
            Reason::VolumeElsewhere { claim } => format!("the volume of claim {claim} is on another node"),
            Reason::NoVolume { claim } => format!("no volume for claim {claim} can be reached from here"),
            Reason::NoPlaceToSpread { key } => format!("has no label {key}, over which the Pod is spread"),
            Reason::Uneven { key, skew, most } => {
                format!("one more Pod here would be {skew} more than at the emptiest {key}; at most {most}")
            }
            Reason::NotNear => "none of the Pods that it wants to be with is here".to_owned(),
            Reason::NotFar => "a Pod that it keeps away from is here".to_owned(),
            Reason::OthersStayFar => "a Pod that is here keeps it away".to_owned(),
            Reason::Insufficient { resource, needs, free, .. } => {
                let holders = if resource.contains('/') { self.held(node, resource) } else { String::new() };
                format!("{resource}: needs {needs}, free {free}{holders}")
            }
        }
    }

    /// Of another class; or the label that differs.
    fn not_selected(&self, pod: &Value, node: &str, class: Option<&str>) -> String {
        let own = self.classes.get(node).map(Vec::as_slice).unwrap_or_default();
        if let Some(wanted) = class.filter(|wanted| own.iter().all(|name| name != wanted)) {
            return match own.first() {
                Some(other) => format!("class {other} is not {wanted}"),
                None => format!("belongs to no class, so not to {wanted}"),
            };
        }
        let labels =
            self.world.nodes.iter().find(|one| one["metadata"]["name"] == node).map(|one| &one["metadata"]["labels"]);
        let selector = pod["spec"]["nodeSelector"].as_object().into_iter().flatten();
        let differs = selector.filter_map(|(key, wanted)| {
            let label = labels.and_then(|labels| labels[key].as_str());
            let wanted = wanted.as_str().filter(|wanted| label != Some(wanted))?;
            Some(match label {
                Some(label) => format!("label {key} is {label}, the Pod wants {wanted}"),
                None => format!("has no label {key}, the Pod wants {wanted}"),
            })
        });
        differs.into_iter().next().unwrap_or_else(|| "does not match the Pod's node affinity".to_owned())
    }

    fn held(&self, node: &str, resource: &str) -> String {
        let holders = self.holders(node, resource);
        if holders.is_empty() {
            return String::new();
        }
        let words: Vec<String> =
            holders.iter().map(|(holder, amount)| format!("{} holds {amount}", holder.name)).collect();
        format!("   ({})", words.join(", "))
    }

    /// Who holds how much on a node, the most first.
    fn holders(&self, node: &str, resource: &str) -> Vec<(Holder, Quantity)> {
        let mut held: BTreeMap<Holder, Quantity> = BTreeMap::new();
        for pod in self.world.pods.iter().filter(|pod| is_on(pod, node)) {
            if let Some(amount) = apimachinery::pod::requests(pod).get(resource).filter(|amount| !amount.is_zero()) {
                *held.entry(Holder::of(pod)).or_insert(Quantity::ZERO) += *amount;
            }
        }
        let mut held: Vec<_> = held.into_iter().collect();
        held.sort_by(|(a, held_a), (b, held_b)| held_b.cmp(held_a).then_with(|| a.cmp(b)));
        held
    }

    /// Services whose end would let the Pod be placed: on each node the one that holds least of what suffices, or all
    /// of the largest that together do. Each is tried by placing the Pod again without them.
    pub(super) fn room(&self, pod: &Value) -> Vec<String> {
        let mut ways: Vec<(usize, Quantity, String)> = Vec::new();
        for (node, reasons) in scheduler::fits(pod, &self.world) {
            if let [Reason::Insufficient { resource, needs, free, .. }] = reasons.as_slice() {
                ways.extend(self.way(pod, &node, resource, *needs - *free));
            }
        }
        ways.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        ways.dedup_by(|a, b| a.2 == b.2);
        ways.into_iter().take(WAYS).map(|(.., way)| way).collect()
    }

    fn way(&self, pod: &Value, node: &str, resource: &str, short: Quantity) -> Option<(usize, Quantity, String)> {
        let own = Holder::of(pod);
        let mut holders = self.holders(node, resource);
        holders.retain(|(holder, _)| holder.kind != POD && *holder != own);
        let chosen: Vec<(Holder, Quantity)> = match holders.iter().rev().find(|(_, amount)| *amount >= short) {
            Some(one) => vec![one.clone()],
            None => holders,
        };
        let without: Vec<Arc<Value>> = self
            .world
            .pods
            .iter()
            .filter(|pod| chosen.iter().all(|(holder, _)| Holder::of(pod) != *holder))
            .cloned()
            .collect();
        let without = World { pods: without, ..self.world.clone() };
        let fits = scheduler::fits(pod, &without).get(node).is_some_and(Vec::is_empty);
        let freed = chosen.iter().fold(Quantity::ZERO, |sum, (_, amount)| sum + *amount);
        let commands: Vec<String> = chosen.iter().map(|(holder, _)| holder.delete()).collect();
        let words = format!("free {short} × {resource} on {node}: {} (frees {freed})", commands.join(" and "));
        fits.then_some((chosen.len(), freed, words))
    }
}

const POD: &str = "pod";

impl Holder {
    fn of(pod: &Value) -> Self {
        let labels = &pod["metadata"]["labels"];
        let owner = OWNERS.iter().find_map(|(label, kind)| Some((*kind, labels[label].as_str()?)));
        let (kind, name) = owner.unwrap_or((POD, text(pod, "/metadata/name")));
        Self { kind, namespace: text(pod, "/metadata/namespace").to_owned(), name: name.to_owned() }
    }

    fn delete(&self) -> String {
        format!("kubectl delete {} {} -n {}", self.kind, self.name, self.namespace)
    }
}

fn is_on(pod: &Value, node: &str) -> bool {
    pod["spec"]["nodeName"] == node && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}
