//! What becomes of every pending Pod, given everything. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::candidate::{Candidate, candidates, named};
use super::place::place;
use super::world::{self, World};
use super::{Outcome, Verdict, bound_of, gang, group_of, is_pending, preempt, priority};
use crate::object;

/// What to do with every pending Pod, given everything: highest priority first, then oldest, then by name. A gang is as
/// old as its group.
pub(super) fn assign(world: &World) -> Vec<Verdict> {
    let mut candidates = candidates(&world.pods, &world.nodes);
    let mut tenants = preempt::Tenants::of(world);
    let groups = world::by_name(&world.groups);
    let group_named = |(namespace, name): &(String, String)| groups.get(&(namespace.as_str(), name.as_str())).copied();
    let mut pending: Vec<&Arc<Value>> = world.pods.iter().filter(|pod| is_pending(pod)).collect();
    pending.sort_by_cached_key(|pod| {
        let group = group_of(pod).as_ref().and_then(group_named);
        let created = object::text(group.unwrap_or(pod), "/metadata/creationTimestamp").to_owned();
        (Reverse(priority(pod)), created, object::namespace(pod).to_owned(), object::name(pod).to_owned())
    });
    let mut gangs: BTreeMap<(String, String), Vec<Arc<Value>>> = BTreeMap::new();
    for pod in &pending {
        if let Some(group) = group_of(pod) {
            gangs.entry(group).or_default().push(Arc::clone(pod));
        }
    }
    let mut verdicts = Vec::new();
    for pod in pending {
        let Some(key) = group_of(pod) else {
            verdicts.push(Verdict { pod: Arc::clone(pod), outcome: single(pod, &mut candidates, &mut tenants, world) });
            continue;
        };
        // The whole gang has the place of its first Pod.
        let Some(members) = gangs.remove(&key) else { continue };
        let bound = bound_of(&key, &world.pods);
        verdicts.extend(gang::assign(&key.1, group_named(&key), &members, &bound, &mut candidates, world));
    }
    verdicts
}

/// One Pod by itself; the room that it waits for is nobody else's.
fn single(
    pod: &Arc<Value>,
    candidates: &mut [Candidate],
    tenants: &mut preempt::Tenants<'_>,
    world: &World,
) -> Outcome {
    let outcome = match place(pod, candidates, world) {
        Outcome::Wait { reason: "Unschedulable", message, keeps_nomination } => tenants
            .instead(pod, candidates, world)
            .unwrap_or(Outcome::Wait { reason: "Unschedulable", message, keeps_nomination }),
        outcome => outcome,
    };
    let promised = match &outcome {
        Outcome::Preempt { node, .. } => node.as_str(),
        Outcome::Wait { keeps_nomination: true, .. } => object::text(pod, "/status/nominatedNodeName"),
        Outcome::Wait { .. } | Outcome::Bind { .. } => "",
    };
    if let Some(candidate) = named(candidates, promised) {
        candidate.take(pod);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::GROUP_NAME;
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

    fn bound(verdicts: &[Verdict]) -> Vec<(&str, Option<&str>)> {
        let node = |verdict: &Verdict| match &verdict.outcome {
            Outcome::Bind { node } => Some(node.clone()),
            Outcome::Wait { .. } | Outcome::Preempt { .. } => None,
        };
        verdicts.iter().map(|v| (object::name(&v.pod), node(v).map(|n| &*Box::leak(n.into_boxed_str())))).collect()
    }

    #[test]
    fn one_turn_does_not_give_a_gpu_twice() {
        let pods = [pod("a", 8, None), pod("b", 8, None), pod("c", 8, None)];
        let world = World { pods: pods.into(), nodes: vec![node("y", 8), node("x", 8)], ..World::default() };
        let verdicts = assign(&world);
        assert_eq!(bound(&verdicts), [("a", Some("x")), ("b", Some("y")), ("c", None)]);
        let Outcome::Wait { message, .. } = &verdicts[2].outcome else { panic!() };
        assert!(
            message.starts_with("0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: "),
            "{message}"
        );
    }

    #[test]
    fn a_gang_is_placed_together_or_not_at_all() {
        let group = |minimum: u64| {
            Arc::new(json!({"metadata": {"name": "g", "namespace": "n"}, "spec": {"minMember": minimum}}))
        };
        let pods = [pod("a", 8, Some("g")), pod("b", 8, Some("g"))];
        let world = World { pods: pods.into(), nodes: vec![node("x", 8)], groups: vec![group(2)], ..World::default() };
        let none = assign(&world);
        assert_eq!(bound(&none), [("a", None), ("b", None)]);
        let both = assign(&World { nodes: vec![node("x", 8), node("y", 8)], ..world });
        assert_eq!(bound(&both), [("a", Some("x")), ("b", Some("y"))]);
    }
}
