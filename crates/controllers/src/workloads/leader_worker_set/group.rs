//! The groups of a LeaderWorkerSet.

use std::sync::Arc;

use apimachinery::{object, pod};
use serde_json::Value;

use super::labels::{GROUP_INDEX, NAME, REVISION, SIZE, WORKER_INDEX};
use super::spec::LeaderWorkerSetSpec;

/// The existing Pods of one group.
pub(super) struct Group {
    pub(super) index: i64,
    pub(super) leader: Option<Arc<Value>>,
    pub(super) workers: Vec<Arc<Value>>,
}

/// Returns the groups with index `0..replicas`, and groups with a higher index that still have Pods.
pub(super) fn groups(spec: &LeaderWorkerSetSpec<'_>, pods: &[Arc<Value>]) -> Vec<Group> {
    let owned: Vec<&Arc<Value>> = pods
        .iter()
        .filter(|pod| object::namespace(pod) == spec.namespace && object::label(pod, NAME) == Some(spec.name))
        .collect();
    let index = |pod: &Value| object::label(pod, GROUP_INDEX).unwrap_or_default().parse::<i64>().unwrap_or(-1);
    let count = owned.iter().map(|pod| index(pod) + 1).max().unwrap_or(0).max(spec.replicas);
    (0..count)
        .map(|group_index| {
            let members = || owned.iter().filter(|pod| index(pod) == group_index);
            Group {
                index: group_index,
                leader: members().find(|p| object::label(p, WORKER_INDEX) == Some("0")).map(|p| Arc::clone(p)),
                workers: members()
                    .filter(|p| object::label(p, WORKER_INDEX) != Some("0"))
                    .map(|p| Arc::clone(p))
                    .collect(),
            }
        })
        .filter(|group| group.index < spec.replicas || group.leader.is_some() || !group.workers.is_empty())
        .collect()
}

/// Returns the template revision of a Pod.
pub(super) fn revision_of(pod: &Value) -> &str {
    object::label(pod, REVISION).unwrap_or_default()
}

/// Returns the size that a group was created with.
pub(super) fn group_size(leader: &Value) -> i64 {
    let annotations = leader.pointer("/metadata/annotations");
    annotations.and_then(|a| a.get(SIZE)?.as_str()?.parse().ok()).unwrap_or(1)
}

// === impl Group ===

impl Group {
    /// Whether the leader has the current revision.
    pub(super) fn is_current(&self, spec: &LeaderWorkerSetSpec<'_>) -> bool {
        self.leader.as_ref().is_some_and(|leader| !object::is_deleting(leader) && revision_of(leader) == spec.revision)
    }

    /// Whether the leader and all workers are active and ready.
    pub(super) fn is_ready(&self) -> bool {
        let Some(leader) = &self.leader else { return false };
        let workers = i64::try_from(self.workers.len()).unwrap_or(0);
        workers == group_size(leader) - 1
            && self.workers.iter().chain([leader]).all(|pod| pod::is_active(pod) && pod::is_ready(pod))
    }
}
