//! The scheduler: binds Pods to nodes, or says why it cannot, once per reason.
//!
//! A turn is a pure function of Pods and nodes ([`assign`]); it runs after something changed that could make a
//! difference, and otherwise not at all. `schedulerName` `default-scheduler` and `volcano` are both served here; Pods of a
//! Volcano PodGroup are placed together ([`gang`]); who fits nowhere may take the room of Pods of lower priority
//! ([`preempt`]). One file has the rules of one of kube-scheduler's plugins: [`filter`] what needs no other Pod,
//! [`host_ports`], [`claims`], [`spread`] and [`affinity`]; [`score`] chooses among the nodes that are left.

mod affinity;
mod budget;
mod candidate;
mod claims;
mod filter;
mod gang;
mod host_ports;
mod neighbours;
mod preempt;
mod score;
mod spread;
mod term;
mod world;

pub use filter::Reason;
pub(crate) use filter::tolerates;
pub use world::{Storage, World};

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::Server;
use crate::object;
use crate::ports::Ports;
use crate::watch::Change;
use crate::workloads::condition::{self, Condition};
use crate::workloads::disruption::BUDGETS;
use crate::workloads::volume_claim;
use candidate::{Candidate, candidates, named};
use filter::{Preemption, Rules, Unfit};
use futures::FutureExt;

const POD_GROUPS: &str = "podgroups.scheduling.volcano.sh";
const GROUP_NAME: &str = "scheduling.k8s.io/group-name";

/// What became of one pending Pod.
#[derive(Debug)]
struct Verdict {
    pod: Arc<Value>,
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Bind {
        node: String,
    },
    Wait {
        reason: &'static str,
        message: String,
        /// The node that was promised to it stays promised.
        keeps_nomination: bool,
    },
    /// It waits for the room that others leave.
    Preempt {
        node: String,
        victims: Vec<Arc<Value>>,
        message: String,
    },
}

/// Runs the scheduler until `stop`.
pub async fn run(server: Server, ports: Ports, stop: CancellationToken) {
    let mut changes = server.subscribe();
    server.keep_ready(&["pods", "nodes", POD_GROUPS]);
    loop {
        turn(&server, &ports);
        loop {
            let change = tokio::select! {
                () = stop.cancelled() => return,
                change = changes.next() => change,
            };
            if change.as_ref().map_or(true, matters) {
                break;
            }
        }
        // One turn looks at all that has changed by now.
        while changes.next().now_or_never().is_some() {}
    }
}

/// Whether a change could let a Pod be placed: a new Pod or group, room that came free, a node that is different.
fn matters(change: &Change) -> bool {
    let of = |object: &Option<Arc<Value>>, pointer: &str| object.as_ref().and_then(|o| o.pointer(pointer).cloned());
    let differs = |pointer: &str| of(&change.old, pointer) != of(&change.new, pointer);
    match change.resource.as_str() {
        "pods" => {
            let finished = |pod: &Option<Arc<Value>>| pod.as_ref().is_none_or(|pod| is_finished(pod));
            change.old.is_none() || finished(&change.new) || differs("/spec") || differs("/metadata/labels")
        }
        "nodes" => {
            let room = |node: &Option<Arc<Value>>| node.as_ref().map(|node| candidate::allocatable(node));
            differs("/spec") || differs("/metadata/labels") || room(&change.old) != room(&change.new)
        }
        "namespaces" => differs("/metadata/labels"),
        POD_GROUPS | volume_claim::VOLUMES | volume_claim::CLASSES => differs("/spec"),
        volume_claim::CLAIMS => differs("/spec") || differs("/status/phase"),
        _ => false,
    }
}

fn turn(server: &Server, ports: &Ports) {
    let world = World {
        pods: server.list("pods"),
        nodes: server.list("nodes"),
        groups: server.list(POD_GROUPS),
        namespaces: server.list("namespaces"),
        budgets: server.list(BUDGETS),
        storage: Some(Storage {
            claims: server.list(volume_claim::CLAIMS),
            volumes: server.list(volume_claim::VOLUMES),
            classes: server.list(volume_claim::CLASSES),
        }),
    };
    for group in &world.groups {
        show_phase(server, group, &world.pods);
    }
    for verdict in assign(&world) {
        let now = object::time(ports.clock.now());
        if let Err(status) = carry_out(server, &verdict, &now) {
            // Somebody changed the Pod meanwhile; that change starts the next turn.
            tracing::debug!(pod = object::name(&verdict.pod), %status, "not scheduled");
        }
    }
}

fn carry_out(server: &Server, verdict: &Verdict, now: &str) -> Result<(), apimachinery::status::Status> {
    match &verdict.outcome {
        Outcome::Bind { node } => bind(server, &verdict.pod, node),
        Outcome::Wait { reason, message, keeps_nomination } => {
            let nominated = object::text(&verdict.pod, "/status/nominatedNodeName");
            refuse(server, &verdict.pod, reason, message, if *keeps_nomination { nominated } else { "" }, now)
        }
        Outcome::Preempt { node, victims, message } => {
            victims.iter().for_each(|victim| make_room(server, victim, &verdict.pod, node, now));
            refuse(server, &verdict.pod, "Unschedulable", message, node, now)
        }
    }
}

/// Writes the phase of a group where it is new. PodGroups have no status face.
fn show_phase(server: &Server, group: &Value, pods: &[Arc<Value>]) {
    let key = (object::namespace(group).to_owned(), object::name(group).to_owned());
    let phase = gang::phase(group, &bound_of(&key, pods));
    if object::text(group, "/status/phase") == phase {
        return;
    }
    let mut shown = group.clone();
    let status = object::members(&mut shown).entry("status").or_insert_with(|| json!({}));
    object::members(status).insert("phase".to_owned(), json!(phase));
    if let Err(status) = server.update(POD_GROUPS, shown) {
        tracing::debug!(group = key.1, %status, "the phase was not written");
    }
}

/// The Pods of a group that have a node.
fn bound_of(group: &(String, String), pods: &[Arc<Value>]) -> Vec<Arc<Value>> {
    pods.iter().filter(|pod| is_bound(pod) && group_of(pod).as_ref() == Some(group)).cloned().collect()
}

fn bind(server: &Server, pod: &Value, node: &str) -> Result<(), apimachinery::status::Status> {
    let (namespace, name) = (object::namespace(pod), object::name(pod));
    let stored = server.bind(namespace, name, node)?;
    let message = format!("Successfully assigned {namespace}/{name} to {node}");
    server.event(&stored, "Normal", "Scheduled", &message, "default-scheduler");
    Ok(())
}

/// Sends a Pod of lower priority away.
fn make_room(server: &Server, victim: &Value, winner: &Value, node: &str, now: &str) {
    let (namespace, name) = (object::namespace(victim), object::name(victim));
    let message = format!("Preempted by pod {} on node {node}", object::uid(winner));
    server.event(victim, "Normal", "Preempted", &message, "default-scheduler");
    let mut marked = victim.clone();
    let status = object::members(&mut marked).entry("status").or_insert_with(|| json!({}));
    let message = "default-scheduler: preempting to accommodate a higher priority pod";
    let target = Condition { kind: "DisruptionTarget", status: true, reason: "PreemptionByScheduler", message };
    condition::set(status, target, now);
    // The deletion does not depend on it.
    let _ = server.update_status("pods", marked);
    if let Err(status) = server.delete("pods", namespace, name, Some(object::uid(victim))) {
        tracing::debug!(namespace, name, %status, "a victim was not deleted");
    }
}

/// Writes the reason and the promised node where they are new; the same again writes nothing and tells nobody.
fn refuse(
    server: &Server,
    pod: &Value,
    reason: &str,
    message: &str,
    nominated: &str,
    now: &str,
) -> Result<(), apimachinery::status::Status> {
    let mut refused = pod.clone();
    let status = object::members(&mut refused).entry("status").or_insert_with(|| json!({}));
    match nominated {
        "" => object::members(status).remove("nominatedNodeName"),
        node => object::members(status).insert("nominatedNodeName".to_owned(), json!(node)),
    };
    condition::set(status, Condition { kind: "PodScheduled", status: false, reason, message }, now);
    if refused == *pod {
        return Ok(());
    }
    let stored = server.update_status("pods", refused)?;
    if reason == "Unschedulable" {
        server.event(&stored, "Warning", "FailedScheduling", message, "default-scheduler");
    }
    Ok(())
}

/// What to do with every pending Pod, given everything: highest priority first, then oldest, then by name. A gang is as
/// old as its group.
fn assign(world: &World) -> Vec<Verdict> {
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

/// `spec.priority`.
fn priority(pod: &Value) -> i64 {
    pod.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or(0)
}

/// The best node for one Pod, which then is among its tenants.
fn place(pod: &Arc<Value>, candidates: &mut [Candidate], world: &World) -> Outcome {
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        let message = "Scheduling is blocked due to non-empty scheduling gates".to_owned();
        return Outcome::Wait { reason: "SchedulingGated", message, keeps_nomination: false };
    }
    let rules = Rules::of(pod, candidates, world);
    if let Some(obstacle) = rules.claims.obstacle.as_ref().filter(|_| !candidates.is_empty()) {
        let message = filter::explain_obstacle(obstacle, candidates.len());
        return Outcome::Wait { reason: "Unschedulable", message, keeps_nomination: false };
    }
    let (fitting, refusals) = sift(&rules, candidates);
    let Some(best) = best(pod, &fitting, candidates, world) else {
        let message = filter::explain(&refusals, Preemption::Nobody);
        return Outcome::Wait { reason: "Unschedulable", message, keeps_nomination: false };
    };
    match candidates.get_mut(best) {
        Some(candidate) => {
            candidate.take(pod);
            Outcome::Bind { node: candidate.name().to_owned() }
        }
        None => Outcome::Wait { reason: "Unschedulable", message: String::new(), keeps_nomination: false },
    }
}

/// Where among the candidates the Pod fits, and why not elsewhere.
fn sift(rules: &Rules<'_>, candidates: &[Candidate]) -> (Vec<usize>, Vec<Unfit>) {
    let mut fitting = Vec::new();
    let mut refusals = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        match rules.unfit(candidate) {
            Some(unfit) => refusals.push(unfit),
            None => fitting.push(index),
        }
    }
    (fitting, refusals)
}

/// The first of those with the highest score.
fn best(pod: &Value, fitting: &[usize], candidates: &[Candidate], world: &World) -> Option<usize> {
    if let [only] = fitting {
        return Some(*only);
    }
    let chosen: Vec<&Candidate> = fitting.iter().filter_map(|index| candidates.get(*index)).collect();
    let scores = score::scores(pod, &chosen, candidates, &world.namespaces);
    let highest = fitting.iter().zip(scores).max_by_key(|(index, score)| (*score, Reverse(**index)));
    highest.map(|(index, _)| *index)
}

/// For every node, in order of their names: why it does not take `pod`; nothing where it would. Pods hold what they
/// request on the node they are bound to.
#[must_use]
pub fn fits(pod: &Value, world: &World) -> BTreeMap<String, Vec<Reason>> {
    let candidates = candidates(&world.pods, &world.nodes);
    let rules = Rules::of(pod, &candidates, world);
    let verdict = |candidate: &Candidate| {
        let reasons = rules.unfit(candidate).map(|unfit| unfit.reasons).unwrap_or_default();
        (candidate.name().to_owned(), reasons)
    };
    candidates.iter().map(verdict).collect()
}

fn is_finished(pod: &Value) -> bool {
    matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed")
}

fn is_bound(pod: &Value) -> bool {
    !object::text(pod, "/spec/nodeName").is_empty() && !is_finished(pod)
}

fn is_pending(pod: &Value) -> bool {
    object::text(pod, "/spec/nodeName").is_empty()
        && !object::is_deleting(pod)
        && !is_finished(pod)
        && matches!(object::text(pod, "/spec/schedulerName"), "" | "default-scheduler" | "volcano")
}

/// The Volcano PodGroup of a Pod, by namespace and name.
fn group_of(pod: &Value) -> Option<(String, String)> {
    if object::text(pod, "/spec/schedulerName") != "volcano" {
        return None;
    }
    let name = pod.pointer("/metadata/annotations")?.get(GROUP_NAME)?.as_str()?;
    Some((object::namespace(pod).to_owned(), name.to_owned()))
}

#[cfg(test)]
mod gang_tests;
#[cfg(test)]
mod neighbour_tests;
#[cfg(test)]
mod preempt_tests;
#[cfg(test)]
mod tests {
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
