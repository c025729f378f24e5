//! The replicas of a role are updated one at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::{condition, object};
use embedded::Change;
use plan::labels::{LEADER_WORKER_SET_NAME, ROLE_NAME};
use serde_json::Value;

use crate::initial_objects::EDITED_IMAGE;
use crate::invariant::Invariant;
use crate::world::World;

const SETS: &str = "leaderworkersets.leaderworkerset.x-k8s.io";

/// A ready replica of a role is updated only if each replica with the new template has been ready since its own update. A replica
/// without nodes does not delay the others.
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
    /// Whether it has been ready or without nodes since its last update, or was not updated since it was created.
    is_settled: bool,
}

// === impl Invariant for Rollouts ===

impl Invariant for Rollouts {
    fn name(&self) -> &'static str {
        "a role is updated one replica at a time"
    }

    fn after_change(&mut self, _world: &World, change: &Change) -> Result<(), String> {
        match (change.resource.as_str(), &change.new) {
            ("pods", Some(pod)) => {
                self.pods.insert(change.name.clone(), Arc::clone(pod));
                if let Some(set) = object::label(pod, LEADER_WORKER_SET_NAME) {
                    self.settle(set);
                }
            }
            ("pods", None) => drop(self.pods.remove(&change.name)),
            (SETS, Some(set)) if object::label(set, ROLE_NAME).is_some() => return self.observe(change, set),
            (SETS, _) => drop(self.sets.remove(&change.name)),
            _ => {}
        }
        Ok(())
    }
}

impl Rollouts {
    /// Records a LeaderWorkerSet, and checks its update.
    fn observe(&mut self, change: &Change, set: &Arc<Value>) -> Result<(), String> {
        let old = change.old.as_deref().filter(|old| object::uid(old) == object::uid(set));
        let is_updated = old.is_some_and(|old| template(old) != template(set));
        let is_edited = image(set).is_some_and(|image| image.starts_with(EDITED_IMAGE));
        let was_settled = self.sets.get(&change.name).is_none_or(|replica| replica.is_settled);
        let is_settled = !is_updated && was_settled;
        self.sets.insert(change.name.clone(), Replica { set: Arc::clone(set), is_settled });
        self.settle(&change.name);
        let was_ready = old.is_some_and(|old| old["status"]["readyReplicas"] == old["spec"]["replicas"]);
        if !is_updated || is_edited || !was_ready {
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
        let Some(replica) = self.sets.get_mut(name) else { return };
        let members = || self.pods.values().filter(|pod| object::label(pod, LEADER_WORKER_SET_NAME) == Some(name));
        let is_current = |pod: &Arc<Value>| pod["spec"]["containers"][0]["image"].as_str() == image(&replica.set);
        let is_ready =
            |pod: &&Arc<Value>| is_current(pod) && condition::is_true(pod, "Ready") && !object::is_deleting(pod);
        let is_unschedulable = |pod: &Arc<Value>| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            is_current(pod) && conditions.into_iter().any(|condition| condition["reason"] == "Unschedulable")
        };
        let is_complete = members().filter(is_ready).count() as u64 >= size(&replica.set);
        replica.is_settled |= is_complete || members().any(is_unschedulable);
    }
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
        for index in [0, 1] {
            rollouts.after_change(&world, &change(SETS, None, set(index, "1"))).unwrap();
        }
        rollouts.after_change(&world, &change(SETS, Some(set(0, "1")), set(0, "2"))).unwrap();
        rollouts.after_change(&world, &change("pods", None, pod(0, image, &condition))).unwrap();
        let result = rollouts.after_change(&world, &change(SETS, Some(set(1, "1")), set(1, "2")));
        let error =
            "LeaderWorkerSet split-decode-1 is updated, LeaderWorkerSet split-decode-0 was not ready since its update";
        assert_eq!(result, if is_accepted { Ok(()) } else { Err(error.to_owned()) });
    }
}
