//! The state of the plugins that depend on other Pods: topology spread constraints and Pod affinity.

use std::sync::Arc;

use serde_json::Value;

use super::inter_pod_affinity::InterPodAffinity;
use super::node_info::NodeInfo;
use super::pod_topology_spread::PodTopologySpread;
use super::reason::FilterFailure;

/// The state for one incoming Pod. Preemption updates it while simulating the removal of other Pods.
#[derive(Debug, Clone)]
pub(super) struct InterPodState<'a> {
    pod: &'a Value,
    namespaces: &'a [Arc<Value>],
    affinity: InterPodAffinity,
    spread: PodTopologySpread,
}

impl<'a> InterPodState<'a> {
    pub(super) fn pre_filter(pod: &'a Value, node_infos: &[NodeInfo], namespaces: &'a [Arc<Value>]) -> Self {
        let affinity = InterPodAffinity::pre_filter(pod, node_infos, namespaces);
        Self { pod, namespaces, affinity, spread: PodTopologySpread::pre_filter(pod, node_infos) }
    }

    /// Returns why the Pod does not fit on the node, or `None`. As in kube-scheduler, `PodTopologySpread` runs first.
    pub(super) fn filter(&self, node: &Value) -> Option<FilterFailure> {
        self.spread.filter(self.pod, node).or_else(|| self.affinity.filter(node))
    }

    pub(super) fn add_pod(&mut self, existing_pod: &Value, node: &Value) {
        self.update(existing_pod, node, 1);
    }

    pub(super) fn remove_pod(&mut self, existing_pod: &Value, node: &Value) {
        self.update(existing_pod, node, -1);
    }

    fn update(&mut self, existing_pod: &Value, node: &Value, delta: i64) {
        self.affinity.update(self.pod, existing_pod, node, delta, self.namespaces);
        self.spread.update(self.pod, existing_pod, node, delta);
    }
}
