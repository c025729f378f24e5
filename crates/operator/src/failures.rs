//! Failures to apply the objects of a service, and problems of its workloads; no I/O.

use std::fmt;

use cluster::{ApplyOutcome, ApplyResult, ObjectOwner, kind_and_name};

use crate::condition_reason::{ConditionReason, WorkloadReason};
use crate::kinds::{CONTROLLER_REVISION, OME_SERVICE};
use crate::readiness::{RESTARTS_TO_FAIL, WorkloadProblem, workload_problem};
use crate::workloads::PlannedWorkload;

/// Kinds of optional APIs and the project that provides each.
const INTEGRATIONS: [(&str, &str); 6] = [
    ("LeaderWorkerSet", "LeaderWorkerSet (leaderworkerset.x-k8s.io)"),
    ("PodGroup", "Volcano (scheduling.volcano.sh)"),
    ("InferencePool", "the Gateway API Inference Extension (inference.networking.k8s.io)"),
    ("HTTPRoute", "the Gateway API (gateway.networking.k8s.io)"),
    ("ScaledObject", "KEDA (keda.sh)"),
    ("HTTPScaledObject", "the HTTP add-on of KEDA (http.keda.sh)"),
];

/// Why an object of a service was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApplyFailure<'a> {
    /// Another owner has an object of this name.
    NotOwned(&'a ApplyResult, &'a ObjectOwner),
    /// The cluster does not serve these kinds.
    KindsNotServed(Vec<&'a str>),
    /// The operator has not listed this kind, for the given reason if the list failed.
    KindNotListed(&'a str, Option<&'a str>),
    /// The API server rejected the object with this message.
    Rejected(&'a ApplyResult, &'a str),
}

// === impl ApplyFailure ===

impl From<&ApplyFailure<'_>> for ConditionReason {
    fn from(failure: &ApplyFailure<'_>) -> ConditionReason {
        match failure {
            ApplyFailure::NotOwned(..) => ConditionReason::ObjectNotOurs,
            ApplyFailure::KindsNotServed(_) => ConditionReason::KindMissing,
            ApplyFailure::KindNotListed(..) => ConditionReason::ClusterNotRead,
            ApplyFailure::Rejected(..) => ConditionReason::ObjectRefused,
        }
    }
}

/// The message of a condition.
impl fmt::Display for ApplyFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Both services produce the same object name.
            ApplyFailure::NotOwned(result, ObjectOwner::Controller { kind, name }) if *kind == OME_SERVICE.kind => {
                let object = result.object();
                write!(f, "{object} is already owned by {kind} {name}, which produces the same object name; ")?;
                f.write_str("rename one of the services, or the role")
            }
            ApplyFailure::NotOwned(result, owner) => {
                let (object, owner) = (result.object(), owner_name(owner));
                write!(f, "{object} is owned by {owner}; rename the service or delete the object")
            }
            ApplyFailure::KindsNotServed(kinds) => {
                let projects: Vec<&str> = kinds.iter().map(|kind| project_of_kind(kind)).collect();
                let (kinds, projects) = (join_with_and(kinds), join_with_and(&projects));
                write!(f, "The cluster does not serve {kinds}; install {projects} to run this service")
            }
            ApplyFailure::KindNotListed(kind, None) => write!(f, "Waiting for the operator to list {kind}"),
            ApplyFailure::KindNotListed(kind, Some(error)) => {
                write!(f, "The operator failed to list {kind}: {error}")
            }
            ApplyFailure::Rejected(result, message) => write!(f, "Failed to apply {}: {message}", result.object()),
        }
    }
}

/// Returns the first failure to apply an object whose kind `includes_kind` accepts. A failed ControllerRevision is
/// ignored: it blocks no workload.
#[must_use]
pub(crate) fn apply_failure(applied: &[ApplyResult], includes_kind: impl Fn(&str) -> bool) -> Option<ApplyFailure<'_>> {
    let is_included = |result: &&ApplyResult| result.kind != CONTROLLER_REVISION.kind && includes_kind(&result.kind);
    let results: Vec<&ApplyResult> = applied.iter().filter(is_included).collect();
    results.iter().find_map(|result| match &result.outcome {
        ApplyOutcome::NotOwned(owner) => Some(ApplyFailure::NotOwned(result, owner)),
        ApplyOutcome::KindNotServed => Some(ApplyFailure::KindsNotServed(kinds_not_served(&results))),
        ApplyOutcome::KindNotListed(error) => Some(ApplyFailure::KindNotListed(&result.kind, error.as_deref())),
        ApplyOutcome::Rejected(message) => Some(ApplyFailure::Rejected(result, message)),
        ApplyOutcome::Unchanged
        | ApplyOutcome::Created
        | ApplyOutcome::Updated
        | ApplyOutcome::Terminating
        | ApplyOutcome::Deferred => None,
    })
}

/// Returns all kinds that are not served, each once, so that one message names all projects to install.
fn kinds_not_served<'a>(results: &[&'a ApplyResult]) -> Vec<&'a str> {
    let mut kinds: Vec<&str> = Vec::new();
    for result in results.iter().filter(|result| result.outcome == ApplyOutcome::KindNotServed) {
        if !kinds.contains(&result.kind.as_str()) {
            kinds.push(&result.kind);
        }
    }
    kinds
}

/// Formats an owner that is not a service.
fn owner_name(owner: &ObjectOwner) -> String {
    match owner {
        ObjectOwner::Controller { kind, name } => format!("{kind} {name}"),
        ObjectOwner::FieldManager => "another field manager (no controller owner reference)".to_owned(),
    }
}

/// Returns the project to install for `kind`.
fn project_of_kind(kind: &str) -> &str {
    INTEGRATIONS.iter().find(|(name, _)| *name == kind).map_or(kind, |(_, project)| *project)
}

/// Joins words as `a, b and c`.
fn join_with_and(items: &[&str]) -> String {
    match items {
        [] => String::new(),
        [item] => (*item).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Returns the most urgent problem of a planned workload, or `None` if it is ready.
#[must_use]
pub(crate) fn planned_workload_problem(workload: &PlannedWorkload) -> Option<WorkloadProblem> {
    let object = kind_and_name(&workload.planned);
    let Some(live) = &workload.live else {
        return Some(WorkloadProblem::new(WorkloadReason::Starting, object, "not created yet"));
    };
    let problem = workload_problem(&live.object, live.pods().chain(live.providers()))?;
    if problem.reason == WorkloadReason::Unschedulable && workload.gang_creation_end.is_some() {
        return Some(WorkloadProblem { reason: WorkloadReason::Starting, ..problem });
    }
    let crashes = i64::try_from(workload.recent_crashes).unwrap_or(i64::MAX);
    if crashes < RESTARTS_TO_FAIL || problem.failed || problem.is_waiting_for_node() {
        return Some(problem);
    }
    let message =
        format!("its Pods crashed {crashes} times in 10 minutes and were recreated; see the logs of the latest Pod");
    Some(WorkloadProblem::failed(WorkloadReason::CrashLoop, object, message))
}

/// Returns a problem if the update of the workload was deferred by the rollout.
#[must_use]
pub(crate) fn deferred_update(applied: &[ApplyResult], workload: &PlannedWorkload) -> Option<WorkloadProblem> {
    let result = applied.iter().find(|result| result.is_of(&workload.planned))?;
    let message = "the update is deferred; the previous template is still in use";
    let problem = WorkloadProblem::new(WorkloadReason::RollingOut, kind_and_name(&workload.planned), message);
    (result.outcome == ApplyOutcome::Deferred).then_some(problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::NamespacedName;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn applied(kind: &str, outcome: ApplyOutcome) -> ApplyResult {
        ApplyResult { kind: kind.to_owned(), key: NamespacedName::new("n", "s"), outcome }
    }

    // spec: TOP-71
    #[rstest]
    #[case::known_project(&["PodGroup"], "PodGroup; install Volcano (scheduling.volcano.sh)")]
    #[case::unknown_kind(&["Widget"], "Widget; install Widget")]
    #[case::lists_each_kind_once(&["PodGroup", "LeaderWorkerSet", "LeaderWorkerSet"],
        "PodGroup and LeaderWorkerSet; install Volcano (scheduling.volcano.sh) and LeaderWorkerSet (leaderworkerset.x-k8s.io)")]
    #[case::three_kinds(&["A", "B", "C"], "A, B and C; install A, B and C")]
    fn names_missing_integrations(#[case] kinds: &[&str], #[case] expect: &str) {
        let results: Vec<ApplyResult> = kinds.iter().map(|kind| applied(kind, ApplyOutcome::KindNotServed)).collect();
        let expect = format!("The cluster does not serve {expect} to run this service");
        let failure = apply_failure(&results, |_| true).unwrap();
        assert_eq!((ConditionReason::from(&failure), failure.to_string()), (ConditionReason::KindMissing, expect));
    }

    #[rstest]
    #[case::in_progress(None, "Waiting for the operator to list PodGroup")]
    #[case::forbidden(Some("podgroups is forbidden"), "The operator failed to list PodGroup: podgroups is forbidden")]
    fn unlisted_kind_is_not_missing(#[case] error: Option<&str>, #[case] expect: &str) {
        let results = [applied("PodGroup", ApplyOutcome::KindNotListed(error.map(str::to_owned)))];
        let failure = apply_failure(&results, |_| true).unwrap();
        assert_eq!(
            (ConditionReason::from(&failure), failure.to_string()),
            (ConditionReason::ClusterNotRead, expect.to_owned())
        );
    }

    #[rstest]
    #[case::other_service(
        "InferenceService",
        "Deployment n/s is already owned by InferenceService j, which produces the same object name; \
        rename one of the services, or the role"
    )]
    #[case::other_controller("Job", "Deployment n/s is owned by Job j; rename the service or delete the object")]
    fn names_the_other_owner(#[case] kind: &str, #[case] expect: &str) {
        let owner = ObjectOwner::Controller { kind: kind.to_owned(), name: "j".to_owned() };
        let results = [applied("Deployment", ApplyOutcome::NotOwned(owner))];
        assert_eq!(apply_failure(&results, |_| true).unwrap().to_string(), expect);
    }

    #[test]
    fn deferred_updates_and_missing_history_are_no_failures() {
        let results = [
            applied("LeaderWorkerSet", ApplyOutcome::Deferred),
            applied("ControllerRevision", ApplyOutcome::KindNotServed),
        ];
        assert_eq!(apply_failure(&results, |_| true), None);
    }

    #[rstest]
    #[case::below_threshold(2, Value::Null, WorkloadReason::Starting, false)]
    #[case::at_threshold(3, Value::Null, WorkloadReason::CrashLoop, true)]
    #[case::unschedulable_is_no_crash(3, json!([{"type": "PodScheduled", "status": "False"}]), WorkloadReason::Unschedulable, false)]
    fn counts_crashes_of_replaced_pods(
        #[case] crashes: usize,
        #[case] conditions: Value,
        #[case] code: WorkloadReason,
        #[case] failed: bool,
    ) {
        let set = json!({"kind": "LeaderWorkerSet", "metadata": {"name": "s"}, "status": {}});
        let pod = json!({"metadata": {"name": "s-0"}, "status": {"phase": "Pending", "conditions": conditions}});
        let workload =
            PlannedWorkload { recent_crashes: crashes, ..PlannedWorkload::new(set.clone(), Some(set), vec![pod]) };
        let problem = planned_workload_problem(&workload).unwrap();
        assert_eq!((problem.reason, problem.failed), (code, failed));
    }
}
