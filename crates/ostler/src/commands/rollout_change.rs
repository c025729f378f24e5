//! What the latest rollout of a service changed, and what helps if it fails; no I/O.

use cluster::{ConditionStatus, metadata_field};
use jiff::Timestamp;
use operator::{ConditionReason, WorkloadReason, revision_content, revision_number};
use plan::DecisionRecord;
use serde_json::Value;

/// What the latest rollout of a service changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RolloutChange {
    /// The spec of the service; an earlier revision has another spec.
    Spec,
    /// The runtime, the model or the accelerator class; the spec of the service is that of the revision before.
    Runtime,
    /// The service has no earlier revision.
    Created,
}

/// A rollout that failed or makes no progress.
pub(super) struct FailedRollout<'a> {
    /// The service.
    pub service: &'a Value,
    /// Its revisions, sorted by number.
    pub revisions: &'a [Value],
    /// Condition `Ready`.
    pub ready: &'a Value,
    /// Whether the spec of the service has a feasible plan.
    pub is_planned: bool,
    /// Whether the rollout had completed before the failure.
    pub is_rolled_out: bool,
    /// Whether the spec of the previous revision could be deployed.
    pub is_undo_deployable: bool,
}

/// What helps after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Roll back the service.
    Undo,
    /// Revert the change of the runtime, the model or the accelerator class.
    RevertRuntime,
    /// Rename the service or delete an object of another owner.
    ResolveNameConflict,
    /// Free accelerators, add nodes or make the service smaller.
    FindCapacity,
    /// Correct the service or its runtime.
    Correct,
}

// === impl RolloutChange ===

impl RolloutChange {
    /// Compares the current `spec` with the two latest of `revisions`, which are sorted by number. The operator creates a revision
    /// only with a plan, so if the spec is that of a revision and has no plan, another object has changed since.
    pub(super) fn of(spec: &Value, revisions: &[Value], is_planned: bool) -> Self {
        let current = revision_content(spec);
        let mut latest = revisions.iter().rev().map(|revision| revision_content(&revision["data"]["spec"]) == current);
        match (latest.next(), latest.next()) {
            (None, _) => Self::Created,
            (Some(false), _) => Self::Spec,
            (Some(true), _) if !is_planned => Self::Runtime,
            (Some(true), None) => Self::Created,
            (Some(true), Some(false)) => Self::Spec,
            (Some(true), Some(true)) => Self::Runtime,
        }
    }
}

// === impl FailedRollout ===

impl FailedRollout<'_> {
    /// Returns what helps: a rollback only if an edit of the spec caused the failure and the earlier spec can be deployed.
    pub(super) fn remedy(&self) -> Remedy {
        match RolloutChange::of(&self.service["spec"], self.revisions, self.is_planned) {
            _ if self.ready["reason"] == ConditionReason::ObjectNotOurs.as_str() && !self.is_undo_deployable => {
                Remedy::ResolveNameConflict
            }
            RolloutChange::Spec if self.is_undo_deployable && !self.is_rolled_out && !self.precedes_revision() => {
                Remedy::Undo
            }
            _ if self.ready["reason"] == WorkloadReason::Unschedulable.as_str() => Remedy::FindCapacity,
            RolloutChange::Runtime => Remedy::RevertRuntime,
            RolloutChange::Spec | RolloutChange::Created => Remedy::Correct,
        }
    }

    /// Returns whether the service was not ready before its spec was edited: the previous spec does not work either.
    fn precedes_revision(&self) -> bool {
        let timestamp = |text: Option<&str>| text.and_then(|text| text.parse::<Timestamp>().ok());
        let content = revision_content(&self.service["spec"]);
        let current = self.revisions.last().filter(|revision| revision_content(&revision["data"]["spec"]) == content);
        let created = timestamp(current.map(|revision| metadata_field(revision, "creationTimestamp")));
        let unready_since = timestamp(self.ready["lastTransitionTime"].as_str());
        let is_unready = self.ready["status"] == ConditionStatus::False.as_str();
        is_unready && unready_since.zip(created).is_some_and(|(unready_since, created)| unready_since < created)
    }
}

// === impl Remedy ===

impl Remedy {
    /// Formats a hint for `service`, whose name on the command line is `title`.
    pub(super) fn hint(self, title: &str, service: &Value) -> String {
        let explain = format!("run `ostler explain {title}` to see the cause");
        match self {
            Self::Undo => format!("run `ostler rollout undo {title}` to roll back"),
            Self::RevertRuntime => format!("{explain}, and {}", revert_runtime(service)),
            Self::ResolveNameConflict => {
                format!("{explain}, and rename the service or delete the object that the message names")
            }
            Self::FindCapacity => format!("run `ostler explain {title}` to see what would help"),
            Self::Correct => format!("{explain}, and correct the service or its runtime"),
        }
    }
}

/// Returns whether a service with this reason of `Ready` has a plan.
pub(super) fn has_plan(reason: &str) -> bool {
    let is_of_workloads = |known: &&ConditionReason| {
        matches!(
            known,
            ConditionReason::Workload(_)
                | ConditionReason::Ready
                | ConditionReason::ObjectRefused
                | ConditionReason::ObjectNotOurs
                | ConditionReason::KindMissing
                | ConditionReason::RouteNotAccepted
                | ConditionReason::RolloutPaused
        )
    };
    ConditionReason::OF_SERVICES.iter().filter(is_of_workloads).any(|known| known.as_str() == reason)
}

/// Describes how to revert the change of the runtime, the model or the accelerator class of `service`.
pub(super) fn revert_runtime(service: &Value) -> String {
    match runtime_resource(service) {
        Some(runtime) => {
            format!("revert the change of its runtime (`kubectl edit {runtime}`), model or accelerator class")
        }
        None => "revert the change of its runtime, model or accelerator class".to_owned(),
    }
}

/// Returns the runtime of `service` as an argument of kubectl: the selected one, or else the one that the spec names.
fn runtime_resource(service: &Value) -> Option<String> {
    let recorded = DecisionRecord::from_status(&service["status"]).and_then(|record| record.runtime);
    let (name, is_namespaced) = match &recorded {
        Some(runtime) => (runtime.name.as_str(), runtime.scope == decide::Scope::Namespace),
        None => {
            let runtime = &service["spec"]["runtime"];
            (runtime["name"].as_str()?, runtime["kind"] == operator::kinds::SERVING_RUNTIME.kind)
        }
    };
    Some(match is_namespaced {
        true => format!("servingruntime.ome.io/{name} -n {}", metadata_field(service, "namespace")),
        false => format!("clusterservingruntime.ome.io/{name}"),
    })
}

/// Returns the latest of `revisions` whose spec differs from `spec`.
pub(super) fn previous_revision<'a>(spec: &Value, revisions: &'a [Value]) -> Option<&'a Value> {
    let current = revision_content(spec);
    let differs = |revision: &&Value| revision_content(&revision["data"]["spec"]) != current;
    revisions.iter().filter(differs).max_by_key(|revision| revision_number(revision))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn spec(image: &str) -> Value {
        json!({"engine": {"runner": {"image": image}}})
    }

    /// Returns revisions with these images, created at 10:01, 10:02, …
    fn revisions(images: &[&str]) -> Vec<Value> {
        let revision = |(index, image): (usize, &&str)| {
            let created = format!("2026-01-01T10:{:02}:00Z", index + 1);
            json!({"metadata": {"creationTimestamp": created}, "revision": index + 1, "data": {"spec": spec(image)}})
        };
        images.iter().enumerate().map(revision).collect()
    }

    fn service(image: &str) -> Value {
        json!({"metadata": {"namespace": "n", "name": "chat"}, "spec": spec(image)})
    }

    /// Columns: images of the revisions, the current image, whether it has a plan, what the latest rollout changed.
    #[rstest]
    #[case::no_revision(&[], "a", false, RolloutChange::Created)]
    #[case::first_revision(&["a"], "a", true, RolloutChange::Created)]
    #[case::edited(&["a", "b"], "b", true, RolloutChange::Spec)]
    #[case::edit_without_a_plan(&["a"], "b", false, RolloutChange::Spec)]
    #[case::runtime_after_an_edit(&["a", "b", "b"], "b", true, RolloutChange::Runtime)]
    #[case::edit_after_a_runtime(&["a", "a", "b"], "b", true, RolloutChange::Spec)]
    #[case::only_runtime(&["a", "a"], "a", true, RolloutChange::Runtime)]
    #[case::runtime_without_a_plan(&["a", "b"], "b", false, RolloutChange::Runtime)]
    #[case::runtime_of_the_first_revision_without_a_plan(&["a"], "a", false, RolloutChange::Runtime)]
    fn determines_what_the_latest_rollout_changed(
        #[case] images: &[&str],
        #[case] current: &str,
        #[case] is_planned: bool,
        #[case] expected: RolloutChange,
    ) {
        assert_eq!(RolloutChange::of(&spec(current), &revisions(images), is_planned), expected);
    }

    /// Columns: images of the revisions, the current image is the last one; reason of `Ready` and minute since which it is false;
    /// whether the rollout had completed, and whether the previous spec could be deployed; the remedy.
    #[rstest]
    #[case::edited_spec(&["a", "b"], "ImagePullFailed", 2, (false, true), Remedy::Undo)]
    #[case::rejected_edit(&["a", "b"], "ObjectRefused", 2, (false, true), Remedy::Undo)]
    #[case::edit_of_a_service_that_was_not_ready(&["a", "b"], "ImagePullFailed", 1, (false, true), Remedy::Correct)]
    #[case::failure_after_the_rollout(&["a", "b"], "ImagePullFailed", 30, (true, true), Remedy::Correct)]
    #[case::previous_spec_has_no_plan(&["a", "b"], "ImagePullFailed", 2, (false, false), Remedy::Correct)]
    #[case::rejected_runtime(&["a", "b", "b"], "ObjectRefused", 3, (false, true), Remedy::RevertRuntime)]
    #[case::first_revision(&["a"], "ImagePullFailed", 1, (false, false), Remedy::Correct)]
    #[case::first_revision_does_not_fit(&["a"], "Unschedulable", 1, (false, false), Remedy::FindCapacity)]
    #[case::edit_does_not_fit(&["a", "b"], "Unschedulable", 2, (false, true), Remedy::Undo)]
    #[case::scaled_after_a_runtime_changed(&["a", "a"], "Unschedulable", 2, (true, false), Remedy::FindCapacity)]
    #[case::object_of_others(&["a", "b"], "ObjectNotOurs", 2, (false, false), Remedy::ResolveNameConflict)]
    #[case::edit_that_renames_an_object(&["a", "b"], "ObjectNotOurs", 2, (false, true), Remedy::Undo)]
    #[case::object_of_others_and_a_runtime(&["a", "a"], "ObjectNotOurs", 2, (false, false), Remedy::ResolveNameConflict)]
    fn proposes_undo_only_for_an_edited_spec(
        #[case] images: &[&str],
        #[case] reason: &str,
        #[case] minute: i64,
        #[case] (is_rolled_out, is_undo_deployable): (bool, bool),
        #[case] expected: Remedy,
    ) {
        let since = format!("2026-01-01T10:{minute:02}:05Z");
        let rollout = FailedRollout {
            service: &service(images[images.len() - 1]),
            revisions: &revisions(images),
            ready: &json!({"status": "False", "reason": reason, "lastTransitionTime": since}),
            is_planned: true,
            is_rolled_out,
            is_undo_deployable,
        };
        assert_eq!(rollout.remedy(), expected);
    }

    #[test]
    fn hint_names_the_runtime() {
        let mut service = service("a");
        let hint = |service: &Value| Remedy::RevertRuntime.hint("isvc/chat", service);
        let explain = "run `ostler explain isvc/chat` to see the cause, and revert the change of its runtime";
        assert_eq!(hint(&service), format!("{explain}, model or accelerator class"));
        service["spec"]["runtime"] = json!({"name": "own", "kind": "ServingRuntime"});
        assert!(hint(&service).starts_with(&format!("{explain} (`kubectl edit servingruntime.ome.io/own -n n`),")));
        service["status"] = json!({"decision": {"reason": "Selected", "message": "m", "runtime": {"name": "vllm"}}});
        assert!(hint(&service).starts_with(&format!("{explain} (`kubectl edit clusterservingruntime.ome.io/vllm`),")));
    }

    #[rstest]
    #[case("CrashLoop", true)]
    #[case("ObjectNotOurs", true)]
    #[case("Ready", true)]
    #[case("InvalidSpec", false)]
    #[case("RuntimeUnreadable", false)]
    #[case("NoCompatibleRuntime", false)]
    #[case("SchedulerConflict", false)]
    fn reason_states_whether_there_is_a_plan(#[case] reason: &str, #[case] expected: bool) {
        assert_eq!(has_plan(reason), expected);
    }
}
