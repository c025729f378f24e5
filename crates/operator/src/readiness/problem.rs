//! Problems that keep workloads and Pods from being ready.

use crate::condition_reason::{ConditionReason, WorkloadReason};

/// Number of restarts after which a crashing Pod counts as failed.
pub(crate) const RESTARTS_TO_FAIL: i64 = 3;

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

// === impl WorkloadProblem ===

impl WorkloadProblem {
    /// Returns a problem of `object` that may resolve by itself.
    pub(crate) fn new(reason: WorkloadReason, object: String, message: impl Into<String>) -> WorkloadProblem {
        WorkloadProblem { reason, waits_for_group: false, object, message: message.into(), failed: false }
    }

    /// Returns whether the Pod waits for a node: its template and its containers are not the cause.
    #[must_use]
    pub(crate) fn is_waiting_for_node(&self) -> bool {
        matches!(
            self.reason,
            WorkloadReason::Unschedulable | WorkloadReason::WaitingForQuota | WorkloadReason::SchedulingGated
        )
    }

    /// Returns a problem of `object` that needs action.
    pub(crate) fn failed(reason: WorkloadReason, object: String, message: impl Into<String>) -> WorkloadProblem {
        WorkloadProblem { failed: true, ..WorkloadProblem::new(reason, object, message) }
    }
}

impl From<&WorkloadProblem> for ConditionReason {
    fn from(problem: &WorkloadProblem) -> ConditionReason {
        ConditionReason::Workload(problem.reason)
    }
}
