//! The status of a LeaderWorkerSet.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::action::Plan;
use super::super::condition::{self, Condition};
use super::{Group, NAME, RESOURCE, Spec, WORKER_INDEX};
use crate::object;

/// Writes the counts and conditions where they are new.
pub(super) fn write(plan: &mut Plan, spec: &Spec<'_>, groups: &[Group], now: Timestamp) {
    let leaders = groups.iter().filter(|g| g.leader.as_ref().is_some_and(|l| !object::is_deleting(l))).count();
    let ready = groups.iter().filter(|g| g.is_ready(spec)).count();
    let updated = groups.iter().filter(|g| g.is_current(spec)).count();
    let both = groups.iter().filter(|g| g.index < spec.replicas && g.is_current(spec) && g.is_ready(spec)).count();
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
    let done = i64::try_from(both).unwrap_or(0) == spec.replicas;
    let updating = groups.iter().any(|g| g.leader.is_some() && !g.is_current(spec));
    let at = object::time(now);
    for (kind, holds, reason, message) in [
        ("Available", done, "AllGroupsReady", "All replicas are ready"),
        ("Progressing", !done, "GroupsProgressing", "Replicas are progressing"),
        ("UpdateInProgress", !done && updating, "GroupsUpdating", "Rolling Upgrade is in progress"),
    ] {
        // A condition that never held is not written as False.
        if holds || condition::find(&status, kind).is_some() {
            // An update stays in progress until everything is available.
            let holds = holds
                || kind == "UpdateInProgress"
                    && !done
                    && condition::find(&status, kind).is_some_and(|c| object::text(c, "/status") == "True");
            condition::set(&mut status, Condition { kind, status: holds, reason, message }, &at);
        }
    }
    plan.status(RESOURCE, spec.set, status);
}
