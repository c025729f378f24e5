//! Computes the scheduling decisions for all pending Pods of a snapshot, without side effects.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::object;
use serde_json::Value;

use super::decision::{Decision, Outcome};
use super::gang;
use super::node_info::{NodeInfo, find_node, node_infos};
use super::pod_info::{bound_members, is_pending, pod_group_of, priority};
use super::preemption::PreemptionEvaluator;
use super::schedule_one::schedule_pod;
use super::snapshot::{self, SchedulingSnapshot};

/// Returns a decision for every pending Pod. Pods are scheduled in order of descending priority, then creation time,
/// then name. The creation time of a gang is that of its PodGroup.
pub(super) fn schedule_pending(snapshot: &SchedulingSnapshot) -> Vec<Decision> {
    let mut node_infos = node_infos(&snapshot.pods, &snapshot.nodes);
    let mut evaluator = PreemptionEvaluator::new(snapshot);
    let groups = snapshot::index_by_name(&snapshot.groups);
    let find_group = |(namespace, name): &(String, String)| groups.get(&(namespace.as_str(), name.as_str())).copied();
    let mut pending: Vec<&Arc<Value>> = snapshot.pods.iter().filter(|pod| is_pending(pod)).collect();
    pending.sort_by_cached_key(|pod| {
        let group = pod_group_of(pod).as_ref().and_then(find_group);
        let created = object::text(group.unwrap_or(pod), "/metadata/creationTimestamp").to_owned();
        (Reverse(priority(pod)), created, object::namespace(pod).to_owned(), object::name(pod).to_owned())
    });
    let mut gangs: BTreeMap<(String, String), Vec<Arc<Value>>> = BTreeMap::new();
    for pod in &pending {
        if let Some(group) = pod_group_of(pod) {
            gangs.entry(group).or_default().push(Arc::clone(pod));
        }
    }
    let mut decisions = Vec::new();
    for pod in pending {
        let Some(key) = pod_group_of(pod) else {
            decisions.push(Decision {
                pod: Arc::clone(pod),
                outcome: schedule_single(pod, &mut node_infos, &mut evaluator, snapshot),
            });
            continue;
        };
        // The gang is scheduled at the queue position of its first Pod.
        let Some(members) = gangs.remove(&key) else { continue };
        let bound = bound_members(&key, &snapshot.pods);
        decisions.extend(gang::schedule_gang(&key.1, find_group(&key), &members, &bound, &mut node_infos, snapshot));
    }
    decisions
}

/// Schedules one Pod that belongs to no gang. If the Pod has a nominated node, its requests are reserved there.
fn schedule_single(
    pod: &Arc<Value>,
    node_infos: &mut [NodeInfo],
    evaluator: &mut PreemptionEvaluator<'_>,
    snapshot: &SchedulingSnapshot,
) -> Outcome {
    let outcome = match schedule_pod(pod, node_infos, snapshot) {
        Outcome::Wait { reason: "Unschedulable", message, retains_nomination } => evaluator
            .preempt(pod, node_infos, snapshot)
            .unwrap_or(Outcome::Wait { reason: "Unschedulable", message, retains_nomination }),
        outcome => outcome,
    };
    let nominated = match &outcome {
        Outcome::Preempt { node, .. } => node.as_str(),
        Outcome::Wait { retains_nomination: true, .. } => object::text(pod, "/status/nominatedNodeName"),
        Outcome::Wait { .. } | Outcome::Bind { .. } => "",
    };
    if let Some(node_info) = find_node(node_infos, nominated) {
        node_info.add_pod(pod);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::pod_info::GROUP_NAME;
    use super::*;

    fn node(name: &str, gpus: i64) -> Arc<Value> {
        let allocatable = json!({"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": gpus.to_string()});
        Arc::new(json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}}))
    }

    fn pod(name: &str, gpus: i64, group: Option<&str>) -> Arc<Value> {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "n"},
            "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
        });
        if let Some(group) = group {
            pod["metadata"]["annotations"] = json!({GROUP_NAME: group});
            pod["spec"]["schedulerName"] = json!("volcano");
        }
        Arc::new(pod)
    }

    fn bound_nodes(decisions: &[Decision]) -> Vec<(&str, Option<&str>)> {
        let node = |decision: &Decision| match &decision.outcome {
            Outcome::Bind { node } => Some(node.clone()),
            Outcome::Wait { .. } | Outcome::Preempt { .. } => None,
        };
        decisions.iter().map(|v| (object::name(&v.pod), node(v).map(|n| &*Box::leak(n.into_boxed_str())))).collect()
    }

    #[test]
    fn allocates_each_gpu_once_per_cycle() {
        let pods = [pod("a", 8, None), pod("b", 8, None), pod("c", 8, None)];
        let snapshot = SchedulingSnapshot {
            pods: pods.into(),
            nodes: vec![node("y", 8), node("x", 8)],
            ..SchedulingSnapshot::default()
        };
        let decisions = schedule_pending(&snapshot);
        assert_eq!(bound_nodes(&decisions), [("a", Some("x")), ("b", Some("y")), ("c", None)]);
        let Outcome::Wait { message, .. } = &decisions[2].outcome else { panic!() };
        assert!(
            message.starts_with("0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: "),
            "{message}"
        );
    }

    #[test]
    fn places_gang_entirely_or_not_at_all() {
        let group = |min_member: u64| {
            Arc::new(json!({"metadata": {"name": "g", "namespace": "n"}, "spec": {"minMember": min_member}}))
        };
        let pods = [pod("a", 8, Some("g")), pod("b", 8, Some("g"))];
        let snapshot = SchedulingSnapshot {
            pods: pods.into(),
            nodes: vec![node("x", 8)],
            groups: vec![group(2)],
            ..SchedulingSnapshot::default()
        };
        let unschedulable = schedule_pending(&snapshot);
        assert_eq!(bound_nodes(&unschedulable), [("a", None), ("b", None)]);
        let schedulable = schedule_pending(&SchedulingSnapshot { nodes: vec![node("x", 8), node("y", 8)], ..snapshot });
        assert_eq!(bound_nodes(&schedulable), [("a", Some("x")), ("b", Some("y"))]);
    }
}
