//! Which nodes a Pod can run on: asks the plugins of kube-scheduler, each in a file of its own, in its order.

use serde_json::Value;

use super::candidate::Candidate;
use super::claims::Claims;
use super::neighbours::Neighbours;
use super::reason::{Reason, Unfit};
use super::world::World;
use super::{host_ports, node_affinity, resources, taints};

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
        taints::unschedulable(pod, node)
            .or_else(|| taints::tainted(pod, node))
            .or_else(|| node_affinity::not_selected(pod, node))
            .map(Unfit::lasting)
            .or_else(|| host_ports::taken(pod, candidate).map(|port| Unfit::curable(Reason::PortTaken { port })))
            .or_else(|| resources::insufficient(pod, candidate))
            .or_else(|| self.claims.refuse(node).map(Unfit::lasting))
            .or_else(|| self.neighbours.refuse(node))
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::pod::Amounts;
    use apimachinery::quantity::Quantity;
    use rstest::rstest;
    use serde_json::json;

    use super::super::candidate::requests;
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
}
