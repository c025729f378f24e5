//! The groups of a LeaderWorkerSet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::{object, pod};
use serde_json::Value;

use super::labels::{GROUP_INDEX, NAME, REVISION, SIZE, WORKER_INDEX};
use super::rolling_update::GroupState;
use super::spec::LeaderWorkerSetSpec;
use crate::workloads::action::BURST_REPLICAS;

/// The existing Pods of one group.
pub(super) struct Group {
    pub(super) index: i64,
    pub(super) leader: Option<Arc<Value>>,
    pub(super) workers: Vec<Arc<Value>>,
}

/// Returns the existing groups, sorted by index.
pub(super) fn existing_groups(spec: &LeaderWorkerSetSpec<'_>, pods: &[Arc<Value>]) -> Vec<Group> {
    let mut groups: BTreeMap<i64, Group> = BTreeMap::new();
    let has_set_label =
        |pod: &&Arc<Value>| object::namespace(pod) == spec.namespace && object::label(pod, NAME) == Some(spec.name);
    for pod in pods.iter().filter(has_set_label) {
        let index = object::label(pod, GROUP_INDEX).and_then(|index| index.parse().ok());
        let Some(index) = index.filter(|index| *index >= 0 && is_owned(spec, pod, *index)) else { continue };
        let group = groups.entry(index).or_insert_with(|| Group::empty(index));
        if object::label(pod, WORKER_INDEX) != Some("0") {
            group.workers.push(Arc::clone(pod));
        } else if group.leader.is_none() {
            group.leader = Some(Arc::clone(pod));
        }
    }
    groups.into_values().collect()
}

/// Adds the first missing ones of the groups with index `0..count`: as many as one burst can create. Sorted by index.
pub(super) fn with_missing_groups(mut groups: Vec<Group>, count: i64) -> Vec<Group> {
    let existing: BTreeSet<i64> = groups.iter().map(|group| group.index).collect();
    let missing = (0..count).filter(|index| !existing.contains(index)).take(BURST_REPLICAS);
    groups.extend(missing.map(Group::empty));
    groups.sort_by_key(|group| group.index);
    groups
}

/// Whether a set with this name or the leader of the group controls the Pod; anyone can copy the labels. Pods of a deleted
/// set or leader with the same name belong to the group until the garbage collection removes them.
fn is_owned(spec: &LeaderWorkerSetSpec<'_>, pod: &Value, group_index: i64) -> bool {
    let Some(owner) = object::controller_of(pod) else { return false };
    match object::text(owner, "/kind") {
        "LeaderWorkerSet" => object::text(owner, "/name") == spec.name,
        "Pod" => object::text(owner, "/name") == format!("{}-{group_index}", spec.name),
        _ => false,
    }
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
    /// Returns a group without Pods.
    fn empty(index: i64) -> Self {
        Self { index, leader: None, workers: Vec::new() }
    }

    /// Whether the leader has the current revision.
    pub(super) fn is_current(&self, spec: &LeaderWorkerSetSpec<'_>) -> bool {
        self.leader.as_ref().is_some_and(|leader| !object::is_deleting(leader) && revision_of(leader) == spec.revision)
    }

    /// Returns the state for a rolling update.
    pub(super) fn state(&self, spec: &LeaderWorkerSetSpec<'_>) -> GroupState {
        GroupState { index: self.index, is_ready: self.is_ready(), is_outdated: self.is_outdated(spec) }
    }

    /// Whether the leader has an earlier revision. A group that is recreated because it is broken is not outdated.
    pub(super) fn is_outdated(&self, spec: &LeaderWorkerSetSpec<'_>) -> bool {
        self.leader.as_ref().is_some_and(|leader| revision_of(leader) != spec.revision)
    }

    /// Whether the leader and all workers are active and ready.
    pub(super) fn is_ready(&self) -> bool {
        let Some(leader) = &self.leader else { return false };
        let workers = i64::try_from(self.workers.len()).unwrap_or(0);
        workers == group_size(leader).saturating_sub(1)
            && self.workers.iter().chain([leader]).all(|pod| pod::is_active(pod) && pod::is_ready(pod))
    }
}
