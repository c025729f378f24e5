//! Explains why no node can schedule a Pod: what each node lacks, and which workloads use it.

use std::collections::BTreeMap;
use std::sync::Arc;

use decide::ProposedChange;
use embedded::{SchedulingSnapshot, UnschedulableReason, filter_nodes};
use serde_json::Value;

use super::deletions::{self, Deletion};
use super::fields::{text, text_of};
use super::node_remedies::{can_schedule_after, node_remedies};
use super::scale_down::{self, ScaleDown};
use super::service_pods::is_other_revision;
use crate::report::tree::{Reason, TreeNode, group_by_reason};

/// Maximum number of lines for nodes.
const MAX_LINES: usize = 12;

/// Current nodes, Pods and classes.
pub(super) struct PlacementAnalysis {
    snapshot: SchedulingSnapshot,
    /// Names of the classes of each node.
    node_classes: BTreeMap<String, Vec<String>>,
}

// === impl PlacementAnalysis ===

impl PlacementAnalysis {
    pub(super) fn new(nodes: &[Value], pods: &[Value], supply: &[Value]) -> Self {
        let to_shared = |objects: &[Value]| objects.iter().cloned().map(Arc::new).collect();
        let mut node_classes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for class in supply.iter().filter(|object| object["kind"] == "AcceleratorClass") {
            for node in class["status"]["nodes"].as_array().into_iter().flatten() {
                node_classes.entry(text_of(node)).or_default().push(text(class, "/metadata/name").to_owned());
            }
        }
        Self {
            snapshot: SchedulingSnapshot {
                nodes: to_shared(nodes),
                pods: to_shared(pods),
                ..SchedulingSnapshot::default()
            },
            node_classes,
        }
    }

    /// Returns a line per reason with the nodes that it applies to, or no lines if a node can schedule the Pod.
    pub(super) fn node_rejections(&self, pod: &Value, class: Option<&str>) -> Vec<TreeNode> {
        let rejections = filter_nodes(pod, &self.snapshot);
        if rejections.values().any(Vec::is_empty) {
            return Vec::new();
        }
        let line = |(node, reasons): (&String, &Vec<UnschedulableReason>)| {
            let reasons = reasons.iter().map(|reason| self.describe(reason, pod, node, class));
            (node.clone(), Reason::message(reasons.collect::<Vec<_>>().join("; ")))
        };
        group_by_reason("", rejections.iter().map(line), MAX_LINES)
    }

    /// Returns the number of nodes.
    pub(super) fn node_count(&self) -> usize {
        self.snapshot.nodes.len()
    }

    /// Describes why `node` cannot schedule the Pod.
    fn describe(&self, reason: &UnschedulableReason, pod: &Value, node: &str, class: Option<&str>) -> String {
        match reason {
            UnschedulableReason::Unschedulable => "is cordoned".to_owned(),
            UnschedulableReason::UntoleratedTaint { key, value } if value.is_empty() => {
                format!("taint {key} is not tolerated")
            }
            UnschedulableReason::UntoleratedTaint { key, value } => format!("taint {key}={value} is not tolerated"),
            UnschedulableReason::NodeAffinity => self.selector_mismatch(pod, node, class),
            UnschedulableReason::TooManyPods { limit } => format!("already runs {limit} Pods, its maximum"),
            UnschedulableReason::InsufficientResource { resource, allocatable, .. } if allocatable.is_zero() => {
                format!("has no {resource}")
            }
            UnschedulableReason::HostPortConflict { port } => format!("host port {port} is in use"),
            UnschedulableReason::VolumeNodeAffinity { claim } => {
                format!("the volume of PersistentVolumeClaim {claim} is bound to another node")
            }
            UnschedulableReason::NoMatchingVolume { claim } => {
                format!("no volume for PersistentVolumeClaim {claim} is accessible from this node")
            }
            UnschedulableReason::MissingTopologyLabel { key } => {
                format!("has no label {key}, which a topology spread constraint requires")
            }
            UnschedulableReason::TopologySkew { key, skew, max_skew } => {
                format!("the topology spread over {key} would have skew {skew}, maximum {max_skew}")
            }
            UnschedulableReason::PodAffinity => "does not match the Pod's affinity to other Pods".to_owned(),
            UnschedulableReason::PodAntiAffinity => "runs a Pod that matches the Pod's anti-affinity".to_owned(),
            UnschedulableReason::ExistingPodAntiAffinity => "runs a Pod whose anti-affinity matches the Pod".to_owned(),
            UnschedulableReason::InsufficientResource { resource, requested, free, .. } => {
                let usage = if resource.contains('/') { self.usage_suffix(node, resource) } else { String::new() };
                format!("{resource}: requested {requested}, free {free}{usage}")
            }
        }
    }

    /// Describes a node of another class, or the label that does not match the Pod's node selector.
    fn selector_mismatch(&self, pod: &Value, node: &str, class: Option<&str>) -> String {
        let node_classes = self.node_classes.get(node).map(Vec::as_slice).unwrap_or_default();
        if let Some(class) = class.filter(|class| node_classes.iter().all(|name| name != class)) {
            return match node_classes.first() {
                Some(other) => format!("belongs to class {other}, not {class}"),
                None => format!("belongs to no class, expected {class}"),
            };
        }
        let labels = self
            .snapshot
            .nodes
            .iter()
            .find(|candidate| candidate["metadata"]["name"] == node)
            .map(|node| &node["metadata"]["labels"]);
        let selector = pod["spec"]["nodeSelector"].as_object().into_iter().flatten();
        let mismatches = selector.filter_map(|(key, value)| {
            let label = labels.and_then(|labels| labels[key].as_str());
            let required = value.as_str().filter(|required| label != Some(required))?;
            Some(match label {
                Some(label) => format!("label {key} is {label}, the Pod requires {required}"),
                None => format!("has no label {key}, the Pod requires {required}"),
            })
        });
        mismatches.into_iter().next().unwrap_or_else(|| "does not match the Pod's node affinity".to_owned())
    }

    /// Lists the workloads that use the resource: `   (chat uses 4, sum uses 2)`.
    fn usage_suffix(&self, node: &str, resource: &str) -> String {
        let workloads = deletions::workloads(&self.snapshot, node, resource);
        if workloads.is_empty() {
            return String::new();
        }
        let usages: Vec<String> =
            workloads.iter().map(|(workload, quantity)| format!("{} uses {quantity}", workload.name)).collect();
        format!("   ({})", usages.join(", "))
    }

    /// Returns whether a node can schedule the Pod once Pods of other revisions of its Deployment have stopped.
    pub(super) fn fits_without_earlier_revision(&self, pod: &Value) -> bool {
        let pods = self.snapshot.pods.iter().filter(|other| !is_other_revision(pod, other)).cloned().collect();
        let snapshot = SchedulingSnapshot { pods, ..self.snapshot.clone() };
        filter_nodes(pod, &snapshot).values().any(Vec::is_empty)
    }

    /// Returns whether all of the Pods run after `changes`.
    pub(super) fn can_schedule_after(&self, changes: &[&ProposedChange], pods: &[&Value]) -> bool {
        can_schedule_after(changes, pods, &self.snapshot, |node, class| {
            let classes = self.node_classes.get(text(node, "/metadata/name"));
            classes.is_some_and(|classes| classes.iter().any(|name| name == class))
        })
    }

    /// Returns nodes to uncordon or to add, each of which lets all of the Pods run.
    pub(super) fn node_remedies(&self, pods: &[&Value]) -> Vec<String> {
        node_remedies(pods, &self.snapshot)
    }

    /// Returns fewer replicas of other services, each of which lets all of the Pods run.
    pub(super) fn sufficient_scale_downs(&self, pods: &[&Value], services: &[Value]) -> Vec<ScaleDown> {
        scale_down::sufficient_scale_downs(pods, &self.snapshot, services)
    }

    /// Returns deletions of other services, each of which lets all of the Pods run.
    pub(super) fn sufficient_deletions(&self, pods: &[&Value]) -> Vec<Deletion> {
        deletions::sufficient_deletions(pods, &self.snapshot)
    }
}
