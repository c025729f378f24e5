//! The status of a LeaderWorkerSet.

use apimachinery::condition::{self, Condition};
use apimachinery::object;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::RESOURCE;
use super::group::Group;
use super::labels::{NAME, WORKER_INDEX};
use super::spec::LeaderWorkerSetSpec;
use crate::workloads::action::Plan;

/// Updates counts and conditions if they changed.
pub(super) fn update(plan: &mut Plan, spec: &LeaderWorkerSetSpec<'_>, groups: &[Group], now: Timestamp) {
    let leaders = groups.iter().filter(|g| g.leader.as_ref().is_some_and(|l| !object::is_deleting(l))).count();
    let ready = groups.iter().filter(|g| g.is_ready()).count();
    let updated = groups.iter().filter(|g| g.is_current(spec)).count();
    // Groups below the partition and additional ones are not part of the update.
    let is_part = |group: &&Group| (spec.rolling_update.partition..spec.replicas).contains(&group.index);
    let part_of_update: Vec<&Group> = groups.iter().filter(is_part).filter(|g| g.leader.is_some()).collect();
    let ready_replicas = groups.iter().filter(|g| g.index < spec.replicas && g.is_ready()).count();
    let mut status = Map::new();
    if let Some(conditions) = spec.set.pointer("/status/conditions") {
        status.insert("conditions".to_owned(), conditions.clone());
    }
    status.insert("hpaPodSelector".to_owned(), json!(format!("{NAME}={},{WORKER_INDEX}=0", spec.name)));
    if let Some(generation) = spec.set.pointer("/metadata/generation") {
        status.insert("observedGeneration".to_owned(), generation.clone());
    }
    for (field, count) in [("replicas", leaders), ("readyReplicas", ready), ("updatedReplicas", updated)] {
        status.insert(field.to_owned(), json!(count));
    }
    let mut status = Value::Object(status);
    let is_available = i64::try_from(ready_replicas).unwrap_or(0) == spec.replicas
        && part_of_update.iter().all(|group| group.is_current(spec) && group.is_ready());
    let is_updating = part_of_update.iter().any(|group| group.is_outdated(spec));
    let timestamp = object::format_time(now);
    for (type_, is_true, reason, message) in [
        ("Available", is_available, "AllGroupsReady", "All replicas are ready"),
        ("Progressing", !is_available, "GroupsProgressing", "Replicas are progressing"),
        ("UpdateInProgress", !is_available && is_updating, "GroupsUpdating", "Rolling Upgrade is in progress"),
    ] {
        // A condition that was never `True` is omitted instead of being set to `False`.
        if is_true || condition::find(&status, type_).is_some() {
            // `UpdateInProgress` stays true until all groups are available.
            let is_true = is_true
                || type_ == "UpdateInProgress"
                    && !is_available
                    && condition::find(&status, type_).is_some_and(|c| object::text(c, "/status") == "True");
            condition::set(&mut status, Condition { type_, status: is_true, reason, message }, &timestamp);
        }
    }
    plan.update_status(RESOURCE, spec.set, status);
}
