//! Status of a Deployment, and the progress of its rollout.

use apimachinery::condition::{self, Condition};
use apimachinery::{object, time};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::RESOURCE;
use super::replica_sets::ReplicaSets;
use crate::workloads::action::Plan;
use crate::workloads::replica_set::replicas;
use crate::workloads::rolling_update;

/// Updates the status and its conditions.
pub(super) fn sync_status(plan: &mut Plan, deployment: &Value, replica_sets: &ReplicaSets, now: Timestamp) {
    let old: Vec<_> = replica_sets.old.iter().map(rolling_update::ReplicaCounts::new).collect();
    let new = replica_sets.new.as_ref().map(rolling_update::ReplicaCounts::new).unwrap_or_default();
    let sum =
        |field: fn(&rolling_update::ReplicaCounts) -> i64| old.iter().map(field).fold(field(&new), i64::saturating_add);
    let available = sum(|c| c.available);
    let strategy = rolling_update::RollingUpdateStrategy::new(deployment);
    let counts = [
        ("replicas", sum(|c| c.current)),
        ("updatedReplicas", new.current),
        ("readyReplicas", sum(|c| c.ready)),
        ("availableReplicas", available),
        ("unavailableReplicas", sum(|c| c.replicas).saturating_sub(available).max(0)),
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
    let timestamp = object::format_time(now);
    let is_available = available >= strategy.min_available();
    set_condition(&mut status, available_condition(is_available), &timestamp, false);
    sync_progress(plan, deployment, replica_sets, &mut status, now);
    plan.update_status(RESOURCE, deployment, status);
}

/// Returns the `Available` condition.
fn available_condition(is_available: bool) -> Condition<'static> {
    let (reason, message) = if is_available {
        ("MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    Condition { type_: "Available", status: is_available, reason, message }
}

/// Updates the `Progressing` condition. `lastUpdateTime` is updated whenever the rollout progresses. The progress
/// deadline is counted from it.
fn sync_progress(plan: &mut Plan, deployment: &Value, replica_sets: &ReplicaSets, status: &mut Value, now: Timestamp) {
    let Some(new) = &replica_sets.new else { return };
    let timestamp = object::format_time(now);
    let count = |s: &Value, name: &str| s.get(name).and_then(Value::as_i64).unwrap_or(0);
    let old_replicas = |s: &Value| count(s, "replicas").saturating_sub(count(s, "updatedReplicas"));
    let desired = replicas(deployment);
    let is_complete = count(status, "updatedReplicas") == desired
        && count(status, "replicas") == desired
        && count(status, "availableReplicas") == desired;
    let name = object::name(new);
    let previous = deployment.get("status").unwrap_or(&Value::Null);
    let has_progressed =
        ["updatedReplicas", "readyReplicas", "availableReplicas"].iter().any(|f| count(status, f) > count(previous, f))
            || old_replicas(status) < old_replicas(previous);
    let current = condition::find(status, "Progressing").cloned();
    let reason = current.as_ref().map(|c| object::text(c, "/reason").to_owned());
    if is_complete {
        let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
        let condition =
            Condition { type_: "Progressing", status: true, reason: "NewReplicaSetAvailable", message: &message };
        set_condition(status, condition, &timestamp, reason.as_deref() != Some("NewReplicaSetAvailable"));
        return;
    }
    let was_complete = reason.as_deref() == Some("NewReplicaSetAvailable");
    let has_started = was_complete && current.as_ref().is_some_and(|c| is_new_rollout(c, new, &replica_sets.old));
    if reason.is_none() || has_progressed || has_started {
        let message = format!("ReplicaSet \"{name}\" is progressing.");
        let condition =
            Condition { type_: "Progressing", status: true, reason: "ReplicaSetUpdated", message: &message };
        set_condition(status, condition, &timestamp, true);
        if let Some(deadline) = deadline(deployment, status) {
            plan.requeue_at(deadline);
        }
        return;
    }
    // The deadline does not apply to a rollout that was complete before a Pod became unavailable.
    if was_complete {
        return;
    }
    match deadline(deployment, status) {
        Some(deadline) if deadline <= now => {
            let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
            let condition = Condition {
                type_: "Progressing",
                status: false,
                reason: "ProgressDeadlineExceeded",
                message: &message,
            };
            let is_new = reason.as_deref() != Some("ProgressDeadlineExceeded");
            set_condition(status, condition, &timestamp, is_new);
        }
        Some(deadline) => plan.requeue_at(deadline),
        None => {}
    }
}

/// Whether a rollout has started since `complete` reported the completion of one. When a rollout is complete, its
/// ReplicaSet already exists and the others are scaled to 0.
fn is_new_rollout(complete: &Value, new: &Value, old: &[Value]) -> bool {
    let time_at = |value, pointer| object::text(value, pointer).parse::<Timestamp>().ok();
    let completed_at = time_at(complete, "/lastUpdateTime");
    old.iter().any(|set| replicas(set) > 0) || time_at(new, "/metadata/creationTimestamp") > completed_at
}

/// Returns when `progressDeadlineSeconds` of the rollout expires.
fn deadline(deployment: &Value, status: &Value) -> Option<Timestamp> {
    let seconds = deployment.pointer("/spec/progressDeadlineSeconds").and_then(Value::as_i64).unwrap_or(600);
    let since = object::text(condition::find(status, "Progressing")?, "/lastUpdateTime");
    Some(time::add_seconds(since.parse().ok()?, seconds))
}

/// Sets a condition. Updates its `lastUpdateTime` if `touch` is set or the condition changes.
fn set_condition(status: &mut Value, condition: Condition<'_>, now: &str, touch: bool) {
    let previous = condition::find(status, condition.type_).cloned();
    condition::set(status, condition, now);
    let Some(mut entry) = condition::find(status, condition.type_).cloned() else { return };
    let is_unchanged = previous.as_ref().is_some_and(|previous| {
        ["/status", "/reason", "/message"].iter().all(|p| previous.pointer(p) == entry.pointer(p))
    });
    let update_time = previous
        .as_ref()
        .filter(|_| is_unchanged && !touch)
        .map_or(now, |b| object::text(b, "/lastUpdateTime"))
        .to_owned();
    entry["lastUpdateTime"] = json!(update_time);
    condition::upsert(status, condition.type_, entry);
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::workloads::action::Action;

    /// A rollout was complete at 12:00, and one of three Pods of the new ReplicaSet is available.
    #[rstest]
    #[case::pod_became_unavailable("11:00", 0, "NewReplicaSetAvailable", "2026-01-01T12:00:00Z")]
    #[case::template_changed("12:30", 3, "ReplicaSetUpdated", "2026-01-01T13:00:00Z")]
    #[case::template_changed_with_recreate("12:30", 0, "ReplicaSetUpdated", "2026-01-01T13:00:00Z")]
    #[case::rolled_back("11:00", 3, "ReplicaSetUpdated", "2026-01-01T13:00:00Z")]
    fn completion_ends_with_next_rollout(
        #[case] created_at: &str,
        #[case] old_replicas: i64,
        #[case] reason: &str,
        #[case] updated_at: &str,
    ) {
        let replica_set = |name: &str, created_at: &str, replicas: i64, available: i64| {
            json!({
                "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T{created_at}:00Z")},
                "spec": {"replicas": replicas},
                "status": {"replicas": available, "readyReplicas": available, "availableReplicas": available},
            })
        };
        let deployment = json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": 3},
            "status": {
                "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
                "conditions": [{
                    "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable",
                    "message": "ReplicaSet \"web-1\" has successfully progressed.",
                    "lastUpdateTime": "2026-01-01T12:00:00Z", "lastTransitionTime": "2026-01-01T12:00:00Z",
                }],
            },
        });
        let replica_sets = ReplicaSets {
            new: Some(replica_set("web-1", created_at, 3, 1)),
            old: vec![replica_set("web-0", "10:00", old_replicas, old_replicas)],
        };
        let mut plan = Plan::default();
        sync_status(&mut plan, &deployment, &replica_sets, "2026-01-01T13:00:00Z".parse().unwrap());
        let [Action::UpdateStatus { object, .. }] = plan.actions.as_slice() else { panic!("{plan:?}") };
        let condition = condition::find(&object["status"], "Progressing").unwrap();
        assert_eq!(condition["reason"], reason);
        assert_eq!(condition["lastUpdateTime"], updated_at);
    }
}
