//! Failures to apply the objects of a service, and problems of its workloads; no I/O.

use cluster::{ApplyOutcome, ApplyResult, ObjectOwner};

use crate::condition_reason::ConditionReason;
use crate::kinds::{CONTROLLER_REVISION, OME_SERVICE};
use crate::readiness::{RESTARTS_TO_FAIL, WorkloadProblem, WorkloadReason, workload_problem};
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

/// Returns the first failure to apply an object whose kind `includes_kind` accepts, as reason and message. A message
/// about kinds that are not served names all of them. A failed ControllerRevision is ignored: it blocks no workload.
#[must_use]
pub(crate) fn apply_failure(
    applied: &[ApplyResult],
    includes_kind: impl Fn(&str) -> bool,
) -> Option<(ConditionReason, String)> {
    let results =
        || applied.iter().filter(|result| result.kind != CONTROLLER_REVISION.kind && includes_kind(&result.kind));
    results().find_map(|result| match &result.outcome {
        ApplyOutcome::NotOwned(owner) => {
            Some((ConditionReason::ObjectNotOurs, not_owned_message(&result.object(), owner)))
        }
        ApplyOutcome::KindNotServed => Some((ConditionReason::KindMissing, kinds_not_served_message(results()))),
        ApplyOutcome::Rejected(message) => {
            Some((ConditionReason::ObjectRefused, format!("Failed to apply {}: {message}", result.object())))
        }
        ApplyOutcome::Unchanged
        | ApplyOutcome::Created
        | ApplyOutcome::Updated
        | ApplyOutcome::Terminating
        | ApplyOutcome::Deferred => None,
    })
}

/// Formats the message about an object of another owner. If the owner is an InferenceService, both services produce the
/// same object name.
fn not_owned_message(object: &str, owner: &ObjectOwner) -> String {
    let other_owner = match owner {
        ObjectOwner::Controller { kind, name } if *kind == OME_SERVICE.kind => {
            return format!(
                "{object} is already owned by {kind} {name}, which produces the same object name; rename one of the services, or the role"
            );
        }
        ObjectOwner::Controller { kind, name } => format!("{kind} {name}"),
        ObjectOwner::FieldManager => "another field manager (no controller owner reference)".to_owned(),
    };
    format!("{object} is owned by {other_owner}; rename the service or delete the object")
}

fn kinds_not_served_message<'a>(applied: impl Iterator<Item = &'a ApplyResult>) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for result in applied.filter(|result| result.outcome == ApplyOutcome::KindNotServed) {
        if !kinds.contains(&result.kind.as_str()) {
            kinds.push(&result.kind);
        }
    }
    let projects: Vec<&str> = kinds.iter().map(|kind| project_of_kind(kind)).collect();
    format!(
        "The cluster does not serve {}; install {} to run this service",
        join_with_and(&kinds),
        join_with_and(&projects)
    )
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
    let object = || cluster::kind_and_name(&workload.planned);
    let Some(live) = &workload.live else {
        let message = "not created yet".to_owned();
        return Some(WorkloadProblem {
            reason: WorkloadReason::Starting,
            waits_for_group: false,
            object: object(),
            message,
            failed: false,
        });
    };
    let problem = workload_problem(&live.object, live.pods())?;
    let crashes = i64::try_from(workload.recent_crashes).unwrap_or(i64::MAX);
    if crashes < RESTARTS_TO_FAIL || problem.failed || problem.reason == WorkloadReason::Unschedulable {
        return Some(problem);
    }
    let message =
        format!("its Pods crashed {crashes} times in 10 minutes and were recreated; see the logs of the latest Pod");
    Some(WorkloadProblem {
        reason: WorkloadReason::CrashLoop,
        waits_for_group: false,
        object: object(),
        message,
        failed: true,
    })
}

/// Returns a problem if the update of the workload was deferred by the rollout.
#[must_use]
pub(crate) fn deferred_update(applied: &[ApplyResult], workload: &PlannedWorkload) -> Option<WorkloadProblem> {
    let result = applied.iter().find(|result| result.is_of(&workload.planned))?;
    let message = "the update is deferred; the previous template is still in use".to_owned();
    (result.outcome == ApplyOutcome::Deferred).then_some(WorkloadProblem {
        reason: WorkloadReason::RollingOut,
        waits_for_group: false,
        object: cluster::kind_and_name(&workload.planned),
        message,
        failed: false,
    })
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
        assert_eq!(apply_failure(&results, |_| true), Some((ConditionReason::KindMissing, expect)));
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
