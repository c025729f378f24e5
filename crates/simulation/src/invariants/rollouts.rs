//! The replicas of a role are updated one at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::{condition, object};
use embedded::Change;
use plan::labels::{GROUP_NAME, LEADER_WORKER_SET_NAME, ROLE_NAME};
use serde_json::Value;

use crate::initial_objects::EDITED_IMAGE;
use crate::invariant::Invariant;
use crate::world::World;

const POD_GROUPS: &str = "podgroups.scheduling.volcano.sh";
const SETS: &str = "leaderworkersets.leaderworkerset.x-k8s.io";

/// A ready replica of a role is updated only if each replica with the new template has been ready since its own update. A replica
/// without nodes does not delay the others. Replicas that add Pods to a gang without subgroups are updated together, because none of
/// the Pods starts before the gang is complete.
///
/// What happened since the update counts, not the present state: the operator may not have observed that a Pod failed again.
#[derive(Default)]
pub(crate) struct Rollouts {
    /// The LeaderWorkerSets of roles, by name.
    sets: BTreeMap<String, Replica>,
    /// The Pods of LeaderWorkerSets, by name.
    pods: BTreeMap<String, Arc<Value>>,
}

/// A replica of a role.
struct Replica {
    set: Arc<Value>,
    /// Whether it has been ready or without nodes since its last update, waited for nodes when it was updated, or was not updated
    /// since it was created.
    is_settled: bool,
}

// === impl Invariant for Rollouts ===

impl Invariant for Rollouts {
    fn name(&self) -> &'static str {
        "a role is updated one replica at a time"
    }

    fn after_change(&mut self, world: &World, change: &Change) -> Result<(), String> {
        match (change.resource.as_str(), &change.new) {
            ("pods", Some(pod)) => {
                self.pods.insert(change.name.clone(), Arc::clone(pod));
                if let Some(set) = object::label(pod, LEADER_WORKER_SET_NAME) {
                    self.settle(set);
                }
            }
            ("pods", None) => drop(self.pods.remove(&change.name)),
            (SETS, Some(set)) if object::label(set, ROLE_NAME).is_some() => return self.observe(world, change, set),
            (SETS, _) => drop(self.sets.remove(&change.name)),
            _ => {}
        }
        Ok(())
    }
}

impl Rollouts {
    /// Records a LeaderWorkerSet, and checks its update.
    fn observe(&mut self, world: &World, change: &Change, set: &Arc<Value>) -> Result<(), String> {
        let old = change.old.as_deref().filter(|old| object::uid(old) == object::uid(set));
        let is_updated = old.is_some_and(|old| template(old) != template(set));
        let is_edited = image(set).is_some_and(|image| image.starts_with(EDITED_IMAGE));
        let was_settled = self.sets.get(&change.name).is_none_or(|replica| replica.is_settled);
        let waited_for_nodes = old.is_some_and(|old| self.current_pods(&change.name, old).any(is_unschedulable));
        let is_settled = if is_updated { waited_for_nodes } else { was_settled };
        self.sets.insert(change.name.clone(), Replica { set: Arc::clone(set), is_settled });
        self.settle(&change.name);
        let is_reported_ready = |old: &Value| old["status"]["readyReplicas"] == old["spec"]["replicas"];
        let was_ready = old.is_some_and(|old| is_reported_ready(old) && self.has_ready_pods(&change.name, old));
        if !is_updated || is_edited || !was_ready || old.is_some_and(|old| completes_gang(world, old, set)) {
            return Ok(());
        }
        let is_replica = |(name, other): &(&String, &Replica)| {
            **name != change.name
                && cluster::controller_uid(&other.set) == cluster::controller_uid(set)
                && object::label(&other.set, ROLE_NAME) == object::label(set, ROLE_NAME)
                && (image(&other.set), size(&other.set)) == (image(set), size(set))
        };
        match self.sets.iter().filter(is_replica).find(|(_, other)| !other.is_settled) {
            None => Ok(()),
            Some((other, _)) => Err(format!(
                "LeaderWorkerSet {} is updated, LeaderWorkerSet {other} was not ready since its update",
                change.name
            )),
        }
    }

    /// Records that a replica is ready, or waits for nodes.
    fn settle(&mut self, name: &str) {
        let Some(set) = self.sets.get(name).map(|replica| Arc::clone(&replica.set)) else { return };
        let is_settled = self.has_ready_pods(name, &set) || self.current_pods(name, &set).any(is_unschedulable);
        if let Some(replica) = self.sets.get_mut(name) {
            replica.is_settled |= is_settled;
        }
    }

    /// Returns whether all Pods of a replica have its template and are ready.
    fn has_ready_pods(&self, name: &str, set: &Value) -> bool {
        let is_ready = |pod: &&Arc<Value>| condition::is_true(pod, "Ready") && !object::is_deleting(pod);
        self.current_pods(name, set).filter(is_ready).count() as u64 >= size(set)
    }

    /// Returns the Pods of a replica that have its template.
    fn current_pods(&self, name: &str, set: &Value) -> impl Iterator<Item = &Arc<Value>> {
        let is_current = move |pod: &&Arc<Value>| {
            object::label(pod, LEADER_WORKER_SET_NAME) == Some(name)
                && pod["spec"]["containers"][0]["image"].as_str() == image(set)
        };
        self.pods.values().filter(is_current)
    }
}

/// Returns whether an update adds Pods to a gang that starts only once it is complete.
fn completes_gang(world: &World, old: &Value, new: &Value) -> bool {
    let group = |set| template(set)["workerTemplate"]["metadata"]["annotations"][GROUP_NAME].as_str();
    let Some(name) = group(new).filter(|_| group(old).is_none() || size(old) < size(new)) else { return false };
    let group = world.server().get(POD_GROUPS, "default", name);
    group.is_none_or(|group| !group["spec"]["subGroupPolicy"].is_array())
}

fn is_unschedulable(pod: &Arc<Value>) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["reason"] == "Unschedulable")
}

fn template(set: &Value) -> &Value {
    &set["spec"]["leaderWorkerTemplate"]
}

fn image(set: &Value) -> Option<&str> {
    template(set)["workerTemplate"]["spec"]["containers"][0]["image"].as_str()
}

/// Returns the number of Pods of a replica.
fn size(set: &Value) -> u64 {
    template(set)["size"].as_u64().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::initial_objects::initial_server;
    use crate::seed::Seed;

    fn set(index: u8, image: &str) -> Value {
        json!({"metadata": {"name": format!("split-decode-{index}"), "uid": index.to_string(), "labels": {ROLE_NAME: "decode"},
                "ownerReferences": [{"uid": "split", "controller": true}]},
            "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 1,
                "workerTemplate": {"spec": {"containers": [{"image": image}]}}}},
            "status": {"readyReplicas": 1}})
    }

    fn pod(index: u8, image: &str, condition: &Value) -> Value {
        json!({"metadata": {"name": format!("split-decode-{index}-0"), "labels": {LEADER_WORKER_SET_NAME: format!("split-decode-{index}")}},
            "spec": {"containers": [{"image": image}]}, "status": {"conditions": [condition]}})
    }

    fn change(resource: &str, old: Option<Value>, new: Value) -> Change {
        let name = object::name(&new).to_owned();
        let (old, new) = (old.map(Arc::new), Some(Arc::new(new)));
        Change { resource: resource.to_owned(), namespace: "default".to_owned(), name, old, new }
    }

    /// The first replica is updated, then its Pod changes, then the second replica is updated.
    #[rstest]
    #[case::ready("2", json!({"type": "Ready", "status": "True"}), true)]
    #[case::not_ready("2", json!({"type": "Ready", "status": "False"}), false)]
    #[case::earlier_template("1", json!({"type": "Ready", "status": "True"}), false)]
    #[case::without_nodes("2", json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}), true)]
    #[tokio::test(start_paused = true)]
    async fn next_replica_waits_for_the_updated_one(
        #[case] image: &str,
        #[case] condition: Value,
        #[case] is_accepted: bool,
    ) {
        let world = World::start(initial_server().unwrap(), Seed(0), None);
        let mut rollouts = Rollouts::default();
        let ready = json!({"type": "Ready", "status": "True"});
        for index in [0, 1] {
            rollouts.after_change(&world, &change(SETS, None, set(index, "1"))).unwrap();
            rollouts.after_change(&world, &change("pods", None, pod(index, "1", &ready))).unwrap();
        }
        rollouts.after_change(&world, &change(SETS, Some(set(0, "1")), set(0, "2"))).unwrap();
        rollouts.after_change(&world, &change("pods", None, pod(0, image, &condition))).unwrap();
        let result = rollouts.after_change(&world, &change(SETS, Some(set(1, "1")), set(1, "2")));
        let error =
            "LeaderWorkerSet split-decode-1 is updated, LeaderWorkerSet split-decode-0 was not ready since its update";
        assert_eq!(result, if is_accepted { Ok(()) } else { Err(error.to_owned()) });
    }
}
