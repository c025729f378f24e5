//! The status of a Deployment, and whether its rollout moves.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::super::action::Plan;
use super::super::condition::{self, Condition};
use super::super::replica_set::replicas;
use super::super::rolling;
use super::{Family, RESOURCE};
use crate::object;

/// Keeps `status` with its conditions.
pub(super) fn status(plan: &mut Plan, deployment: &Value, family: &Family, now: Timestamp) {
    let old: Vec<_> = family.old.iter().map(rolling::Counts::of).collect();
    let new = family.new.as_ref().map(rolling::Counts::of).unwrap_or_default();
    let sum = |field: fn(&rolling::Counts) -> i64| old.iter().map(field).sum::<i64>() + field(&new);
    let available = sum(|c| c.available);
    let strategy = rolling::Strategy::of(deployment);
    let counts = [
        ("replicas", sum(|c| c.current)),
        ("updatedReplicas", new.current),
        ("readyReplicas", sum(|c| c.ready)),
        ("availableReplicas", available),
        ("unavailableReplicas", (sum(|c| c.replicas) - available).max(0)),
    ];
    let mut status = Map::new();
    for field in ["collisionCount", "conditions"] {
        if let Some(value) = deployment.pointer(&format!("/status/{field}")) {
            status.insert(field.to_owned(), value.clone());
        }
    }
    if let Some(generation) = deployment.pointer("/metadata/generation") {
        status.insert("observedGeneration".to_owned(), generation.clone());
    }
    for (field, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        status.insert(field.to_owned(), json!(count));
    }
    let mut status = Value::Object(status);
    let at = object::time(now);
    let enough = available >= strategy.desired - strategy.max_unavailable;
    set_condition(&mut status, availability(enough), &at, false);
    progress(plan, deployment, family, &mut status, now);
    plan.status(RESOURCE, deployment, status);
}

fn availability(enough: bool) -> Condition<'static> {
    let (reason, message) = if enough {
        ("MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    Condition { kind: "Available", status: enough, reason, message }
}

/// The `Progressing` condition. `lastUpdateTime` moves on every step forward; the deadline counts from it.
fn progress(plan: &mut Plan, deployment: &Value, family: &Family, status: &mut Value, now: Timestamp) {
    let Some(new) = &family.new else { return };
    let at = object::time(now);
    let field = |s: &Value, name: &str| s.get(name).and_then(Value::as_i64).unwrap_or(0);
    let desired = replicas(deployment);
    let complete = field(status, "updatedReplicas") == desired
        && field(status, "replicas") == desired
        && field(status, "availableReplicas") == desired;
    let name = object::name(new);
    let before = deployment.get("status").unwrap_or(&Value::Null);
    let moved =
        ["updatedReplicas", "readyReplicas", "availableReplicas"].iter().any(|f| field(status, f) > field(before, f))
            || (field(status, "replicas") - field(status, "updatedReplicas"))
                < (field(before, "replicas") - field(before, "updatedReplicas"));
    let current = condition::find(status, "Progressing").cloned();
    let reason = current.as_ref().map(|c| object::text(c, "/reason").to_owned());
    if complete {
        let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
        let condition =
            Condition { kind: "Progressing", status: true, reason: "NewReplicaSetAvailable", message: &message };
        set_condition(status, condition, &at, reason.as_deref() != Some("NewReplicaSetAvailable"));
        return;
    }
    let finished = reason.as_deref() == Some("NewReplicaSetAvailable");
    if reason.is_none() || moved || finished && message_names_other(current.as_ref(), name) {
        let message = format!("ReplicaSet \"{name}\" is progressing.");
        let condition = Condition { kind: "Progressing", status: true, reason: "ReplicaSetUpdated", message: &message };
        set_condition(status, condition, &at, true);
        if let Some(deadline) = deadline(deployment, status) {
            plan.wake_at(deadline);
        }
        return;
    }
    // A finished rollout that lost a Pod is not a rollout: no deadline.
    if finished {
        return;
    }
    match deadline(deployment, status) {
        Some(deadline) if deadline <= now => {
            let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
            let condition =
                Condition { kind: "Progressing", status: false, reason: "ProgressDeadlineExceeded", message: &message };
            let first = reason.as_deref() != Some("ProgressDeadlineExceeded");
            set_condition(status, condition, &at, first);
        }
        Some(deadline) => plan.wake_at(deadline),
        None => {}
    }
}

fn message_names_other(condition: Option<&Value>, name: &str) -> bool {
    !condition.is_some_and(|c| object::text(c, "/message").contains(&format!("\"{name}\"")))
}

fn deadline(deployment: &Value, status: &Value) -> Option<Timestamp> {
    let seconds = deployment.pointer("/spec/progressDeadlineSeconds").and_then(Value::as_i64).unwrap_or(600);
    let since = object::text(condition::find(status, "Progressing")?, "/lastUpdateTime");
    since.parse::<Timestamp>().ok()?.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Deployment conditions also carry `lastUpdateTime`; it moves when `touch` or when anything else does.
fn set_condition(status: &mut Value, condition: Condition<'_>, now: &str, touch: bool) {
    let before = condition::find(status, condition.kind).cloned();
    condition::set(status, condition, now);
    let Some(mut entry) = condition::find(status, condition.kind).cloned() else { return };
    let same = before
        .as_ref()
        .is_some_and(|before| ["/status", "/reason", "/message"].iter().all(|p| before.pointer(p) == entry.pointer(p)));
    let since =
        before.as_ref().filter(|_| same && !touch).map_or(now, |b| object::text(b, "/lastUpdateTime")).to_owned();
    entry["lastUpdateTime"] = json!(since);
    condition::put(status, condition.kind, entry);
}
