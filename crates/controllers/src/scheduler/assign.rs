//! Computes the scheduling decisions for all pending Pods of a snapshot, without side effects.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::{catch_panic, object};
use serde_json::Value;

use super::decision::{Decision, Outcome, Schedule, SchedulingFailure};
use super::gang;
use super::node_info::{NodeInfo, find_node, node_infos};
use super::pod_info::{bound_members, is_pending, pod_group_of, priority};
use super::preemption::PreemptionEvaluator;
use super::schedule_one::schedule_pod;
use super::snapshot::{self, SchedulingSnapshot};

/// Pods that are scheduled together: one Pod, or the pending Pods of a gang.
struct SchedulingUnit {
    /// Namespace and name of the PodGroup.
    group: Option<(String, String)>,
    pods: Vec<Arc<Value>>,
}

/// Returns a decision for every pending Pod, except those whose UIDs are in `delayed` and their gangs. Pods are scheduled
/// in order of descending priority, then creation time, then name. The creation time of a gang is that of its PodGroup.
pub(super) fn schedule_pending(snapshot: &SchedulingSnapshot, delayed: &BTreeSet<String>) -> Schedule {
    let groups = snapshot::index_by_name(&snapshot.groups);
    let find_group = |(namespace, name): &(String, String)| groups.get(&(namespace.as_str(), name.as_str())).copied();
    let is_delayed = |unit: &SchedulingUnit| unit.pods.iter().any(|pod| delayed.contains(object::uid(pod)));
    let units = scheduling_units(snapshot, find_group).into_iter().filter(|unit| !is_delayed(unit)).collect();
    let start = || {
        let (mut node_infos, failures) = node_infos(&snapshot.pods, &snapshot.nodes);
        let mut evaluator = PreemptionEvaluator::new(snapshot);
        let schedule = move |unit: &SchedulingUnit| match &unit.group {
            Some(key) => {
                let bound = bound_members(key, &snapshot.pods);
                gang::schedule_gang(&key.1, find_group(key), &unit.pods, &bound, &mut node_infos, snapshot)
            }
            None => {
                let mut decide = |pod: &Arc<Value>| schedule_single(pod, &mut node_infos, &mut evaluator, snapshot);
                unit.pods.iter().map(|pod| Decision { pod: Arc::clone(pod), outcome: decide(pod) }).collect()
            }
        };
        (schedule, failures)
    };
    schedule_units(units, start)
}

/// Returns the pending Pods in the order in which they are scheduled; a gang has the position of its first Pod.
fn scheduling_units<'a>(
    snapshot: &'a SchedulingSnapshot,
    find_group: impl Fn(&(String, String)) -> Option<&'a Value>,
) -> Vec<SchedulingUnit> {
    let mut pending: Vec<&Arc<Value>> = snapshot.pods.iter().filter(|pod| is_pending(pod)).collect();
    pending.sort_by_cached_key(|pod| {
        let group = pod_group_of(pod).as_ref().and_then(&find_group);
        let created = object::text(group.unwrap_or(pod), "/metadata/creationTimestamp").to_owned();
        (Reverse(priority(pod)), created, object::namespace(pod).to_owned(), object::name(pod).to_owned())
    });
    let mut units: Vec<SchedulingUnit> = Vec::new();
    let mut gangs: BTreeMap<(String, String), usize> = BTreeMap::new();
    for pod in pending {
        let group = pod_group_of(pod);
        let gang = group.as_ref().and_then(|group| gangs.get(group)).and_then(|index| units.get_mut(*index));
        if let Some(gang) = gang {
            gang.pods.push(Arc::clone(pod));
            continue;
        }
        if let Some(group) = &group {
            gangs.insert(group.clone(), units.len());
        }
        units.push(SchedulingUnit { group, pods: vec![Arc::clone(pod)] });
    }
    units
}

/// Schedules the units in order with the function that `start` returns. If it panics, its state may be incomplete: all
/// other units are scheduled again from the start.
fn schedule_units<F>(mut units: Vec<SchedulingUnit>, start: impl Fn() -> (F, Vec<SchedulingFailure>)) -> Schedule
where
    F: FnMut(&SchedulingUnit) -> Vec<Decision>,
{
    let mut unit_failures = Vec::new();
    loop {
        let (mut schedule, mut failures) = start();
        let mut decisions = Vec::new();
        let failed = units.iter().enumerate().find_map(|(index, unit)| match catch_panic(|| schedule(unit)) {
            Ok(unit_decisions) => {
                decisions.extend(unit_decisions);
                None
            }
            Err(panic) => Some((index, panic)),
        });
        let Some((index, panic)) = failed else {
            failures.append(&mut unit_failures);
            return Schedule { decisions, failures };
        };
        unit_failures.push(SchedulingFailure { pods: units.remove(index).pods, panic });
    }
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
    use std::cell::Cell;

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
        let decisions = schedule_pending(&snapshot, &BTreeSet::new()).decisions;
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
        let unschedulable = schedule_pending(&snapshot, &BTreeSet::new()).decisions;
        assert_eq!(bound_nodes(&unschedulable), [("a", None), ("b", None)]);
        let snapshot = SchedulingSnapshot { nodes: vec![node("x", 8), node("y", 8)], ..snapshot };
        let schedulable = schedule_pending(&snapshot, &BTreeSet::new()).decisions;
        assert_eq!(bound_nodes(&schedulable), [("a", Some("x")), ("b", Some("y"))]);
    }

    /// Schedules nothing and panics for the Pods whose names start with `broken`.
    fn schedule_and_panic(snapshot: &SchedulingSnapshot) -> (Vec<String>, Vec<Vec<String>>) {
        let starts = Cell::new(0);
        let start = || {
            starts.set(starts.get() + 1);
            let mut reserved = 0;
            let schedule = move |unit: &SchedulingUnit| {
                reserved += 1;
                assert!(!unit.pods.iter().any(|pod| object::name(pod).starts_with("broken")));
                let message = reserved.to_string();
                let outcome = Outcome::Wait { reason: "Unschedulable", message, retains_nomination: false };
                unit.pods.iter().map(|pod| Decision { pod: Arc::clone(pod), outcome: outcome.clone() }).collect()
            };
            (schedule, Vec::new())
        };
        let schedule = schedule_units(scheduling_units(snapshot, |_| None), start);
        assert_eq!(starts.get(), schedule.failures.len() + 1);
        let decisions = schedule.decisions.iter().map(|decision| match &decision.outcome {
            Outcome::Wait { message, .. } => format!("{} {message}", object::name(&decision.pod)),
            outcome => panic!("{outcome:?}"),
        });
        let names = |pods: &[Arc<Value>]| pods.iter().map(|pod| object::name(pod).to_owned()).collect();
        (decisions.collect(), schedule.failures.iter().map(|failure| names(&failure.pods)).collect())
    }

    #[test]
    fn panics_affect_only_their_pod_or_gang() {
        let pods = [
            pod("a", 1, None),
            pod("b", 1, Some("g")),
            pod("broken-single", 1, None),
            pod("broken-member", 1, Some("g")),
            pod("c", 1, None),
        ];
        let snapshot = SchedulingSnapshot { pods: pods.into(), ..SchedulingSnapshot::default() };
        let (decisions, failures) = schedule_and_panic(&snapshot);
        assert_eq!(decisions, ["a 1", "c 2"], "state of failed attempts is discarded");
        assert_eq!(failures, [vec!["b", "broken-member"], vec!["broken-single"]]);
    }

    #[test]
    fn delayed_pods_and_their_gangs_are_not_scheduled() {
        let with_uid = |pod: Arc<Value>| {
            let mut pod = Value::clone(&pod);
            pod["metadata"]["uid"] = pod["metadata"]["name"].clone();
            Arc::new(pod)
        };
        let pods = [pod("a", 1, None), pod("b", 1, None), pod("c", 1, Some("g")), pod("d", 1, Some("g"))];
        let snapshot = SchedulingSnapshot {
            pods: pods.map(with_uid).into(),
            nodes: vec![node("x", 8)],
            ..SchedulingSnapshot::default()
        };
        let delayed = BTreeSet::from(["b".to_owned(), "d".to_owned()]);
        assert_eq!(bound_nodes(&schedule_pending(&snapshot, &delayed).decisions), [("a", Some("x"))]);
    }
}
