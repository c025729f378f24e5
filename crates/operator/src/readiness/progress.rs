//! Progress of a workload: desired and observed replicas.

use cluster::{find_condition, generation};
use serde_json::Value;

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
        (self.existing - self.updated).max(0)
    }
}

/// Returns whether a Deployment has completed the rollout of its Pod template, even if Pods became unready since then.
pub(crate) fn is_rollout_complete(deployment: &Value) -> bool {
    let progressing = find_condition(&deployment["status"]["conditions"], "Progressing");
    let progress = Progress::from_workload(deployment);
    // The controller updates the condition only after it has created the Pods of a new template.
    let is_replacing = progress.outdated() > 0 || (progress.existing == 0 && progress.desired > 0);
    progressing.is_some_and(|progressing| progressing["reason"] == "NewReplicaSetAvailable") && !is_replacing
}

/// Returns `replica is` for 1 and `replicas are` for other counts.
pub(crate) fn replicas_are<T: From<u8> + PartialEq>(count: T) -> &'static str {
    if count == T::from(1) { "replica is" } else { "replicas are" }
}
