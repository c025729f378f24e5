//! Progress of a workload: desired and observed replicas.

use cluster::{controller_of, find_condition, generation, is_terminating};
use jiff::Timestamp;
use serde_json::Value;

use crate::FIELD_MANAGER;
use crate::kinds::LEADER_WORKER_SET;
use crate::workloads::LiveWorkload;

/// Desired and observed replicas of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Whether the controller of the workload has observed the current generation.
    pub(crate) observed: bool,
    /// Desired replicas.
    pub(crate) desired: i64,
    /// Existing replicas of any revision.
    pub(crate) existing: i64,
    /// Replicas of the current revision.
    pub(crate) updated: i64,
    /// Ready replicas.
    pub(crate) ready: i64,
}

// === impl Progress ===

impl Progress {
    /// Reads the status of a Deployment or LeaderWorkerSet, which use the same field names.
    #[must_use]
    pub(crate) fn from_workload(workload: &Value) -> Progress {
        let status = &workload["status"];
        let observed_generation = status["observedGeneration"].as_i64();
        let count = |name: &str| status[name].as_i64().unwrap_or_default();
        Progress {
            // LeaderWorkerSet versions before 0.7 do not report `observedGeneration`.
            observed: status.is_object() && observed_generation.is_none_or(|observed| observed >= generation(workload)),
            desired: workload["spec"]["replicas"].as_i64().unwrap_or(1),
            existing: count("replicas"),
            updated: count("updatedReplicas"),
            ready: count("readyReplicas"),
        }
    }

    /// Returns whether all desired replicas are updated and ready and no outdated replica exists. Always true for zero
    /// replicas.
    #[must_use]
    pub(crate) fn is_complete(&self) -> bool {
        self.observed && self.updated >= self.desired && self.ready >= self.desired && self.outdated() == 0
    }

    /// Returns whether the Pods reflect the current revision. Problems of Pods of earlier revisions are not reported.
    pub(super) fn has_current_pods(&self) -> bool {
        self.observed && (self.updated > 0 || self.existing == 0)
    }

    /// Returns the number of replicas of earlier revisions. Such a replica may be ready although the current revision
    /// does not work.
    pub(crate) fn outdated(&self) -> i64 {
        self.existing.saturating_sub(self.updated).max(0)
    }
}

/// Returns whether a Deployment or a LeaderWorkerSet has completed the rollout of its Pod templates, even if Pods became unready
/// since then.
pub(crate) fn is_rollout_complete(workload: &LiveWorkload) -> bool {
    match workload.object["kind"] == LEADER_WORKER_SET.kind {
        true => !is_updating_groups(&workload.object),
        false => is_deployment_complete(workload),
    }
}

/// Returns whether a LeaderWorkerSet updates its groups: from the first outdated group until all groups are ready.
fn is_updating_groups(set: &Value) -> bool {
    let updating = find_condition(&set["status"]["conditions"], "UpdateInProgress");
    updating.is_some_and(|updating| updating["status"] == "True")
}

fn is_deployment_complete(deployment: &LiveWorkload) -> bool {
    let progressing = find_condition(&deployment.object["status"]["conditions"], "Progressing");
    let progress = Progress::from_workload(&deployment.object);
    let has_no_pods = progress.existing == 0 && progress.desired > 0;
    let is_current = |progressing: &Value| {
        progressing["reason"] == "NewReplicaSetAvailable"
            && is_about_replica_set_of(progressing, deployment.pods())
            && (!has_no_pods || is_later_than_apply(progressing, &deployment.object))
    };
    progressing.is_some_and(is_current) && progress.outdated() == 0
}

/// Returns whether the condition `Progressing` was updated after the operator applied the Deployment. The controller updates the
/// condition only once it has created the Pods of a new template, so that the condition is that of the previous one while a
/// Deployment is recreated. A later condition shows that the only Pod was evicted.
fn is_later_than_apply(progressing: &Value, deployment: &Value) -> bool {
    let time = |value: &Value| value.as_str()?.parse::<Timestamp>().ok();
    let entries = deployment["metadata"]["managedFields"].as_array().into_iter().flatten();
    let applied =
        entries.filter(|entry| entry["manager"] == FIELD_MANAGER).filter_map(|entry| time(&entry["time"])).max();
    applied.zip(time(&progressing["lastUpdateTime"])).is_some_and(|(applied, updated)| updated >= applied)
}

/// Returns whether the condition `Progressing` does not name a ReplicaSet, or names that of all `pods` that remain. The
/// Deployment controller of Kubernetes 1.37 retains the condition of the previous ReplicaSet if its status update conflicts
/// when it creates the next one.
fn is_about_replica_set_of<'a>(progressing: &Value, mut pods: impl Iterator<Item = &'a Value>) -> bool {
    let Some(name) = named_replica_set(progressing) else { return true };
    pods.all(|pod| is_terminating(pod) || controller_of(pod).is_none_or(|controller| controller["name"] == name))
}

/// Returns the ReplicaSet that the condition `Progressing` of a Deployment names.
pub(super) fn named_replica_set(progressing: &Value) -> Option<&str> {
    let message = progressing["message"].as_str()?;
    message.strip_prefix("ReplicaSet \"")?.split_once('"').map(|(name, _)| name)
}

/// Returns `replica is` for 1 and `replicas are` for other counts.
pub(crate) fn replicas_are<T: From<u8> + PartialEq>(count: T) -> &'static str {
    if count == T::from(1) { "replica is" } else { "replicas are" }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const UPDATED: &str = r#"ReplicaSet "chat-2" has successfully progressed."#;
    const PREVIOUS: &str = r#"ReplicaSet "chat-1" has successfully progressed."#;

    /// Columns: reason and message of `Progressing`, existing and updated replicas, ReplicaSet of the Pod, expected result.
    #[rstest]
    #[case::complete("NewReplicaSetAvailable", UPDATED, (1, 1), "chat-2", true)]
    #[case::no_replica_set_named("NewReplicaSetAvailable", "", (1, 1), "chat-2", true)]
    #[case::in_progress("ReplicaSetUpdated", UPDATED, (1, 1), "chat-2", false)]
    #[case::replica_to_replace("NewReplicaSetAvailable", UPDATED, (2, 1), "chat-2", false)]
    #[case::no_replica_of_unknown_time("NewReplicaSetAvailable", UPDATED, (0, 0), "chat-2", false)]
    #[case::condition_of_the_previous_replica_set("NewReplicaSetAvailable", PREVIOUS, (1, 1), "chat-2", false)]
    fn rollout_is_complete(
        #[case] reason: &str,
        #[case] message: &str,
        #[case] (existing, updated): (u32, u32),
        #[case] replica_set: &str,
        #[case] expected: bool,
    ) {
        let progressing = json!({"type": "Progressing", "reason": reason, "message": message});
        let status = json!({"replicas": existing, "updatedReplicas": updated, "conditions": [progressing]});
        let pod = |name: &str, deleted: Option<&str>| {
            let owner = json!({"controller": true, "kind": "ReplicaSet", "name": name});
            Arc::new(json!({"metadata": {"ownerReferences": [owner], "deletionTimestamp": deleted}}))
        };
        let deployment = LiveWorkload {
            object: Arc::new(json!({"spec": {"replicas": 1}, "status": status})),
            pods: vec![pod(replica_set, None), pod("chat-0", Some("2026-01-01T00:00:00Z"))],
            providers: Vec::new(),
        };
        assert_eq!(is_rollout_complete(&deployment), expected);
    }

    /// While a Deployment is recreated, the condition is that of the previous template.
    #[rstest]
    #[case::evicted("2026-01-01T00:01:00Z", true)]
    #[case::evicted_in_the_same_second("2026-01-01T00:00:30Z", true)]
    #[case::recreated("2026-01-01T00:00:00Z", false)]
    fn evicted_pod_is_not_a_rollout(#[case] completed: &str, #[case] expected: bool) {
        let progressing = json!({"type": "Progressing", "reason": "NewReplicaSetAvailable", "message": UPDATED,
            "lastUpdateTime": completed});
        let applied = json!({"manager": FIELD_MANAGER, "operation": "Apply", "time": "2026-01-01T00:00:30Z"});
        let object = json!({"metadata": {"managedFields": [applied]}, "spec": {"replicas": 1},
            "status": {"replicas": 0, "conditions": [progressing]}});
        let deployment = LiveWorkload { object: Arc::new(object), pods: Vec::new(), providers: Vec::new() };
        assert_eq!(is_rollout_complete(&deployment), expected);
    }
}
