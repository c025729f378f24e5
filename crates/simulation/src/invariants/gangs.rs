//! A gang is never partially bound.

use std::sync::Arc;

use apimachinery::object;
use embedded::Change;
use plan::labels::GROUP_NAME;
use serde_json::Value;

use crate::invariant::Invariant;
use crate::world::World;

const POD_GROUPS: &str = "podgroups.scheduling.volcano.sh";
/// Labels that a replica's Pods share.
const REPLICA: [&str; 2] = ["leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"];

/// When a Pod of a gang is bound, the other Pods of its replica are, and the minimum of its PodGroup is reached. A lost node
/// may take Pods of a gang away later.
pub(crate) struct Gangs;

// === impl Invariant for Gangs ===

impl Invariant for Gangs {
    fn name(&self) -> &'static str {
        "a gang is never partially bound"
    }

    fn after_change(&mut self, world: &World, change: &Change) -> Result<(), String> {
        let is_bound_now = change.resource == "pods"
            && change.new.as_deref().is_some_and(is_bound)
            && !change.old.as_deref().is_some_and(is_bound);
        match change.new.as_deref() {
            Some(pod) if is_bound_now => check_replica(world, pod).and_then(|()| check_minimum(world, pod)),
            _ => Ok(()),
        }
    }

    fn after_quiet(&mut self, world: &World) -> Result<(), String> {
        world.server().list("pods").iter().filter(|pod| is_bound(pod)).try_for_each(|pod| check_replica(world, pod))
    }
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
    if world.foreign().contains_key(&(POD_GROUPS.to_owned(), "default".to_owned(), group.to_owned())) {
        return Vec::new();
    }
    let mut pods = world.server().list("pods");
    pods.retain(|other| group_of(other) == Some(group));
    pods
}

fn is_bound(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

fn group_of(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][GROUP_NAME].as_str()
}
