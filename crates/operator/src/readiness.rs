//! Readiness of workloads, computed from their objects and Pods without a client.
//!
//! If there are several problems, the most urgent one is reported: first images that cannot be pulled, then crashes,
//! then unschedulable Pods, and last Pods that are starting. Ties are broken by Pod name.

mod container;
mod pod;
mod workload_reason;

use cluster::{generation, is_terminating, kind_and_name};
use serde_json::Value;

use crate::condition_reason::ConditionReason;
pub(crate) use container::has_crashed;
pub use container::{crashed_container, last_log_line};
pub(crate) use pod::is_pod_ready;
pub use pod::pod_problem;
pub use workload_reason::WorkloadReason;

/// Number of restarts after which a crashing Pod counts as failed.
pub(crate) const RESTARTS_TO_FAIL: i64 = 3;

/// Desired and observed replicas of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Whether the controller of the workload has observed the current generation.
    pub observed: bool,
    /// Desired replicas.
    pub desired: i64,
    /// Existing replicas of any revision.
    pub existing: i64,
    /// Replicas of the current revision.
    pub updated: i64,
    /// Ready replicas.
    pub ready: i64,
}

/// Problem that keeps a workload or a Pod from being ready.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadProblem {
    /// Reason, as reported in conditions.
    pub reason: WorkloadReason,
    /// Whether the Pod could be scheduled and only waits for other Pods of its group, whose problems are reported
    /// first.
    pub waits_for_group: bool,
    /// The Pod or workload, as `Kind name`.
    pub object: String,
    /// Complete message, including the message of the scheduler or the kubelet.
    pub message: String,
    /// Whether the problem needs action and justifies phase `Failed`.
    pub failed: bool,
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
    fn has_current_pods(&self) -> bool {
        self.observed && (self.updated > 0 || self.existing == 0)
    }

    /// Returns the number of replicas of earlier revisions. Such a replica may be ready although the current revision
    /// does not work.
    fn outdated(&self) -> i64 {
        (self.existing - self.updated).max(0)
    }
}

// === impl WorkloadProblem ===

impl WorkloadProblem {
    /// Returns the reason of a condition for this problem.
    #[must_use]
    pub fn condition_reason(&self) -> ConditionReason {
        ConditionReason::Workload(self.reason)
    }
}

/// Returns the most urgent problem of a workload, or `None` if its rollout is complete.
#[must_use]
pub(crate) fn workload_problem<'a>(
    workload: &'a Value,
    pods: impl IntoIterator<Item = &'a Value>,
) -> Option<WorkloadProblem> {
    let progress = Progress::from_workload(workload);
    if is_terminating(workload) {
        let message = "waiting for its deletion; it will then be recreated".to_owned();
        return Some(WorkloadProblem {
            reason: WorkloadReason::Starting,
            waits_for_group: false,
            object: kind_and_name(workload),
            message,
            failed: false,
        });
    }
    if progress.is_complete() {
        return None;
    }
    let pods = pods.into_iter().filter(|_| progress.has_current_pods());
    let most_urgent = pods.filter_map(pod_problem).chain(replica_failure(workload)).min();
    Some(most_urgent.unwrap_or_else(|| progress_problem(workload, &progress)))
}

/// Returns the error of a workload controller that cannot create Pods, for example because of a quota.
fn replica_failure(workload: &Value) -> Option<WorkloadProblem> {
    let failure = condition(workload, "ReplicaFailure").filter(|failure| failure["status"] == "True")?;
    let message = failure["message"].as_str().unwrap_or("Pods cannot be created").to_owned();
    Some(WorkloadProblem {
        reason: WorkloadReason::PodsNotCreated,
        waits_for_group: false,
        object: kind_and_name(workload),
        message,
        failed: true,
    })
}

fn progress_problem(workload: &Value, progress: &Progress) -> WorkloadProblem {
    let Progress { desired, updated, ready, observed, .. } = progress;
    let paused = if workload["spec"]["paused"] == true {
        "; the rollout is paused, run `ostler rollout resume` to resume it"
    } else {
        ""
    };
    let (reason, message) = match progress.outdated() {
        _ if !observed && workload["status"]["observedGeneration"].is_i64() => (
            WorkloadReason::Starting,
            format!("waiting for its controller to observe generation {}", generation(workload)),
        ),
        _ if !observed || ready < desired => {
            (WorkloadReason::Starting, format!("{ready} of {desired} {} ready", replicas_are(*desired)))
        }
        0 => (WorkloadReason::RollingOut, format!("{updated} of {desired} {} updated{paused}", replicas_are(*desired))),
        outdated => {
            let message = format!(
                "{updated} of {desired} {} updated; {outdated} old {} pending termination{paused}",
                replicas_are(*desired),
                replicas_are(outdated)
            );
            (WorkloadReason::RollingOut, message)
        }
    };
    WorkloadProblem { reason, waits_for_group: false, object: kind_and_name(workload), message, failed: false }
}

/// Returns `replica is` for 1 and `replicas are` for other counts.
pub(crate) fn replicas_are<T: From<u8> + PartialEq>(count: T) -> &'static str {
    if count == T::from(1) { "replica is" } else { "replicas are" }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    cluster::find_condition(&object["status"]["conditions"], kind)
}

#[cfg(test)]
mod tests;
