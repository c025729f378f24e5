//! Runs the Filter plugins for one Pod, in the order of kube-scheduler.

use serde_json::Value;

use super::inter_pod::InterPodState;
use super::node_info::NodeInfo;
use super::reason::{FilterFailure, UnschedulableReason};
use super::snapshot::SchedulingSnapshot;
use super::volume_binding::VolumeBinding;
use super::{node_affinity, node_ports, resources, taints};

/// PreFilter state of all plugins for one Pod (`framework.CycleState`).
#[derive(Debug, Clone)]
pub(super) struct CycleState<'a> {
    pub(super) pod: &'a Value,
    pub(super) volume_binding: VolumeBinding<'a>,
    pub(super) inter_pod: InterPodState<'a>,
}

impl<'a> CycleState<'a> {
    pub(super) fn pre_filter(pod: &'a Value, node_infos: &[NodeInfo], snapshot: &'a SchedulingSnapshot) -> Self {
        let volume_binding = snapshot
            .storage
            .as_ref()
            .map_or_else(VolumeBinding::default, |storage| VolumeBinding::pre_filter(pod, storage));
        Self { pod, volume_binding, inter_pod: InterPodState::pre_filter(pod, node_infos, &snapshot.namespaces) }
    }

    /// Returns `None` if the Pod fits on the node, otherwise the failure of the first plugin that rejects the node.
    pub(super) fn filter(&self, node_info: &NodeInfo) -> Option<FilterFailure> {
        let (pod, node) = (self.pod, node_info.node.as_ref());
        taints::node_unschedulable(pod, node)
            .or_else(|| taints::untolerated_taint(pod, node))
            .or_else(|| node_affinity::filter(pod, node))
            .map(FilterFailure::unresolvable)
            .or_else(|| {
                node_ports::conflicting_port(pod, node_info)
                    .map(|port| FilterFailure::resolvable(UnschedulableReason::HostPortConflict { port }))
            })
            .or_else(|| resources::filter(pod, node_info))
            .or_else(|| self.volume_binding.filter(node).map(FilterFailure::unresolvable))
            .or_else(|| self.inter_pod.filter(node))
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::{Quantity, ResourceList};
    use rstest::rstest;
    use serde_json::json;

    use super::super::node_info::requests;
    use super::*;

    fn node_info() -> NodeInfo {
        let node = json!({
            "metadata": {"name": "n1", "labels": {"gpu": "h100"}},
            "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "nvidia.com/gpu": "8"}},
        });
        let mut node_info = NodeInfo::new(node.into());
        node_info.requested = ResourceList::from([("cpu".to_owned(), Quantity::from_units(3))]);
        node_info
    }

    fn filter(pod: &Value) -> Option<FilterFailure> {
        let node_infos = [node_info()];
        CycleState::pre_filter(pod, &node_infos, &SchedulingSnapshot::default()).filter(&node_infos[0])
    }

    const TOLERATIONS: &str = r#"[{"key": "gpu", "operator": "Exists"}]"#;

    #[rstest]
    #[case::taint(json!({}), Some(("node(s) had untolerated taint(s)", false)))]
    #[case::tolerated(json!({"tolerations": "T"}), None)]
    #[case::by_value(json!({"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}), None)]
    #[case::selector(json!({"tolerations": "T", "nodeSelector": {"gpu": "a100"}}), Some(("node(s) didn't match Pod's node affinity/selector", false)))]
    #[case::full(json!({"tolerations": "T", "containers": [{"resources": {"requests": {"cpu": "2"}}}]}), Some(("Insufficient cpu", true)))]
    #[case::never(json!({"tolerations": "T", "containers": [{"resources": {"limits": {"nvidia.com/gpu": 9}}}]}), Some(("Insufficient nvidia.com/gpu", false)))]
    #[case::fits(json!({"tolerations": "T", "containers": [{"resources": {"limits": {"nvidia.com/gpu": 8, "cpu": "1"}}}]}), None)]
    fn rejects_nodes(#[case] mut spec: Value, #[case] expect: Option<(&str, bool)>) {
        if spec["tolerations"] == "T" {
            spec["tolerations"] = serde_json::from_str(TOLERATIONS).unwrap();
        }
        let failure = filter(&json!({"spec": spec}));
        let failure =
            failure.map(|failure| (failure.reasons.iter().map(ToString::to_string).collect(), failure.resolvable));
        assert_eq!(failure, expect.map(|(reason, resolvable)| (vec![reason.to_owned()], resolvable)));
    }

    #[test]
    fn reports_requested_free_and_allocatable() {
        let spec = json!({"tolerations": serde_json::from_str::<Value>(TOLERATIONS).unwrap(),
            "containers": [{"resources": {"requests": {"cpu": "2"}}}]});
        let units = Quantity::from_units;
        let insufficient = UnschedulableReason::InsufficientResource {
            resource: "cpu".to_owned(),
            requested: units(2),
            free: units(1),
            allocatable: units(4),
        };
        assert_eq!(filter(&json!({"spec": spec})).unwrap().reasons, [insufficient]);
    }

    #[test]
    fn requests_of_init_containers_count_by_maximum() {
        let cpu = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let pod = json!({"spec": {"containers": [cpu("1"), cpu("1")], "initContainers": [cpu("3"), cpu("1")]}});
        assert_eq!(requests(&pod)["cpu"].to_string(), "3");
    }
}
