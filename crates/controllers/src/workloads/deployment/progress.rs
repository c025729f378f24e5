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
    let complete_message = format!("ReplicaSet \"{name}\" has successfully progressed.");
    let was_complete = reason.as_deref() == Some("NewReplicaSetAvailable");
    if is_complete {
        let condition = Condition {
            type_: "Progressing",
            status: true,
            reason: "NewReplicaSetAvailable",
            message: &complete_message,
        };
        set_condition(status, condition, &timestamp, !was_complete);
        return;
    }
    // A rollout that was complete remains so when the Deployment is scaled, or when a Pod becomes unavailable.
    let is_new_rollout = || {
        old_replicas(status) > 0
            || replica_sets.old.iter().any(|set| replicas(set) > 0)
            || current.as_ref().is_some_and(|condition| condition["message"] != complete_message)
    };
    if was_complete && !is_new_rollout() {
        return;
    }
    if reason.is_none() || was_complete || has_progressed {
        let message = format!("ReplicaSet \"{name}\" is progressing.");
        let condition =
            Condition { type_: "Progressing", status: true, reason: "ReplicaSetUpdated", message: &message };
        set_condition(status, condition, &timestamp, true);
        if let Some(deadline) = deadline(deployment, status) {
            plan.requeue_at(deadline);
        }
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

    /// The rollout of 3 replicas of a ReplicaSet was complete at 12:00. Columns: that ReplicaSet, replicas of the other one, desired
    /// and available replicas of the current ReplicaSet `web-1`, expected reason and update of `Progressing`.
    #[rstest]
    #[case::pod_became_unavailable("web-1", 0, 3, 1, "NewReplicaSetAvailable", "2026-01-01T12:00:00Z")]
    #[case::scaled_up("web-1", 0, 5, 4, "NewReplicaSetAvailable", "2026-01-01T12:00:00Z")]
    #[case::scaled_down("web-1", 0, 1, 2, "NewReplicaSetAvailable", "2026-01-01T12:00:00Z")]
    #[case::template_changed("web-0", 3, 3, 1, "ReplicaSetUpdated", "2026-01-01T13:00:00Z")]
    #[case::template_changed_with_recreate("web-0", 0, 3, 1, "ReplicaSetUpdated", "2026-01-01T13:00:00Z")]
    #[case::template_changed_with_scale("web-0", 0, 5, 4, "ReplicaSetUpdated", "2026-01-01T13:00:00Z")]
    #[case::rolled_back("web-1", 3, 3, 1, "ReplicaSetUpdated", "2026-01-01T13:00:00Z")]
    fn completion_ends_with_next_rollout(
        #[case] completed: &str,
        #[case] old_replicas: i64,
        #[case] desired: i64,
        #[case] available: i64,
        #[case] reason: &str,
        #[case] updated_at: &str,
    ) {
        let replica_set = |name: &str, replicas: i64, available: i64| {
            json!({
                "metadata": {"name": name},
                "spec": {"replicas": replicas},
                "status": {"replicas": available, "readyReplicas": available, "availableReplicas": available},
            })
        };
        let deployment = json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": desired},
            "status": {
                "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
                "conditions": [{
                    "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable",
                    "message": format!("ReplicaSet \"{completed}\" has successfully progressed."),
                    "lastUpdateTime": "2026-01-01T12:00:00Z", "lastTransitionTime": "2026-01-01T12:00:00Z",
                }],
            },
        });
        let replica_sets = ReplicaSets {
            new: Some(replica_set("web-1", desired, available)),
            old: vec![replica_set("web-0", old_replicas, old_replicas)],
        };
        let mut plan = Plan::default();
        sync_status(&mut plan, &deployment, &replica_sets, "2026-01-01T13:00:00Z".parse().unwrap());
        let [Action::UpdateStatus { object, .. }] = plan.actions.as_slice() else { panic!("{plan:?}") };
        let condition = condition::find(&object["status"], "Progressing").unwrap();
        assert_eq!(condition["reason"], reason);
        assert_eq!(condition["lastUpdateTime"], updated_at);
    }
}
