//! A gang is never partially bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::object;
use embedded::Change;
use plan::labels::{GROUP_NAME, TASK_SPEC};
use serde_json::Value;

use crate::invariant::Invariant;
use crate::world::World;

const POD_GROUPS: &str = "podgroups.scheduling.volcano.sh";
/// Labels that a replica's Pods share.
const REPLICA: [&str; 2] = ["leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"];
/// Annotation with the number of Pods of a replica.
const REPLICA_SIZE: &str = "leaderworkerset.sigs.k8s.io/size";

/// When a Pod of a gang is bound, the other Pods of its replica are, and the minimum of its PodGroup is reached. A lost node
/// may take Pods of a gang away later.
#[derive(Default)]
pub(crate) struct Gangs {
    /// UIDs of the Pods that were bound while the PodGroup was that of a person.
    bound_without_gang: BTreeSet<String>,
}

// === impl Invariant for Gangs ===

impl Invariant for Gangs {
    fn name(&self) -> &'static str {
        "a gang is never partially bound"
    }

    fn after_change(&mut self, world: &World, change: &Change) -> Result<(), String> {
        let is_bound_now = change.resource == "pods"
            && change.new.as_deref().is_some_and(is_bound)
            && !change.old.as_deref().is_some_and(is_bound);
        let Some(pod) = change.new.as_deref().filter(|_| is_bound_now) else { return Ok(()) };
        if group_of(pod).is_some_and(|group| is_foreign(world, group)) {
            self.bound_without_gang.insert(object::uid(pod).to_owned());
        }
        if requires_replica(world, pod) {
            check_replica(world, pod)?;
        }
        check_minimum(world, pod)
    }

    fn after_quiet(&mut self, world: &World) -> Result<(), String> {
        let pods = world.server().list("pods");
        let mut bound = pods.iter().filter(|pod| is_bound(pod) && !self.bound_without_gang.contains(object::uid(pod)));
        bound.try_for_each(|pod| check_replica(world, pod))
    }
}

/// Returns whether the PodGroup requires all Pods of the replica of a Pod. It does not if the replica is removed or becomes smaller: the
/// PodGroup changes first.
fn requires_replica(world: &World, pod: &Value) -> bool {
    let Some(group) = group_of(pod).and_then(|group| world.server().get(POD_GROUPS, "default", group)) else {
        return true;
    };
    let annotations = &pod["metadata"]["annotations"];
    let size = annotations[REPLICA_SIZE].as_str().and_then(|size| size.parse().ok()).unwrap_or(1);
    let task = annotations[TASK_SPEC].as_str().unwrap_or_default();
    let minimums = group["spec"]["minTaskMember"].as_object();
    minimums.is_none_or(|minimums| minimums.get(task).and_then(Value::as_u64).is_some_and(|minimum| minimum >= size))
}

/// Checks that the other Pods of the replica of a bound Pod are bound.
fn check_replica(world: &World, pod: &Value) -> Result<(), String> {
    let replica = |pod: &Value| REPLICA.map(|label| object::label(pod, label).map(str::to_owned));
    let is_waiting =
        |member: &Value| replica(member) == replica(pod) && !is_bound(member) && !object::is_deleting(member);
    match members(world, pod).iter().find(|member| is_waiting(member)) {
        None => Ok(()),
        Some(waiting) => {
            let (bound, waiting) = (object::name(pod), object::name(waiting));
            Err(format!("Pod {bound} is bound, Pod {waiting} of the same replica is not"))
        }
    }
}

/// Checks that the minimum of the PodGroup of a bound Pod is reached.
fn check_minimum(world: &World, pod: &Value) -> Result<(), String> {
    let group = group_of(pod).and_then(|group| world.server().get(POD_GROUPS, "default", group));
    let minimum = group.and_then(|group| group["spec"]["minMember"].as_u64()).unwrap_or_default();
    let members = members(world, pod);
    let bound = members.iter().filter(|member| is_bound(member)).count();
    if members.is_empty() || bound as u64 >= minimum {
        return Ok(());
    }
    Err(format!("Pod {} is bound, of its gang {bound} Pods of at least {minimum}", object::name(pod)))
}

/// Returns the Pods of the gang of a Pod. A PodGroup of a person requires no gang.
fn members(world: &World, pod: &Value) -> Vec<Arc<Value>> {
    let Some(group) = group_of(pod) else { return Vec::new() };
    if is_foreign(world, group) {
        return Vec::new();
    }
    let mut pods = world.server().list("pods");
    pods.retain(|other| group_of(other) == Some(group));
    pods
}

/// Returns whether a PodGroup is that of a person.
fn is_foreign(world: &World, group: &str) -> bool {
    world.foreign().contains_key(&(POD_GROUPS.to_owned(), "default".to_owned(), group.to_owned()))
}

fn is_bound(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

fn group_of(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][GROUP_NAME].as_str()
}
