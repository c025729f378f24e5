//! Renders the status of rollouts, and the changes between revisions.

use cluster::{find_condition, find_current_condition, generation, metadata_field};
use decide::Warning;
use operator::{ConditionReason, WorkloadReason, is_rollout_paused, revision_number};
use plan::DecisionRecord;
use serde_json::Value;

use super::ready_message::ready_message;
use super::table::table;

/// Maximum number of changes that a line lists.
const MAX_CHANGES: usize = 3;
/// Longest value in characters; longer ones are truncated.
const MAX_VALUE_WIDTH: usize = 60;

/// Reasons of `Ready` that require a change by the user, in addition to those of decisions and plans. Role-based services
/// report them with the condition `Failed` as well.
const TERMINAL_REASONS: [ConditionReason; 10] = [
    ConditionReason::Workload(WorkloadReason::ImagePullFailed),
    ConditionReason::Workload(WorkloadReason::ContainerCreateFailed),
    ConditionReason::Workload(WorkloadReason::PodFailed),
    ConditionReason::Workload(WorkloadReason::PodsNotCreated),
    ConditionReason::KindMissing,
    ConditionReason::ObjectNotOurs,
    ConditionReason::ObjectRefused,
    ConditionReason::InvalidSpec,
    ConditionReason::RuntimeUnreadable,
    ConditionReason::ModelUnreadable,
];
/// Reasons of decisions that require a change by the user. Decisions do not fail for lack of free capacity, which may become
/// free.
const TERMINAL_DECISIONS: [api::Code; 6] = [
    decide::code::runtime::NO_ELIGIBLE_ACCELERATOR,
    decide::code::outcome::NO_COMPATIBLE_RUNTIME,
    decide::code::outcome::MODEL_NOT_FOUND,
    decide::code::outcome::MODEL_DISABLED,
    decide::code::outcome::RUNTIME_NOT_FOUND,
    decide::code::outcome::NO_ENGINE_CONTAINER,
];

/// Reasons of `Ready` while the rollout proceeds normally.
const PROGRESSING_REASONS: [ConditionReason; 4] = [
    ConditionReason::Workload(WorkloadReason::Starting),
    ConditionReason::Workload(WorkloadReason::WaitingForActuation),
    ConditionReason::Workload(WorkloadReason::NotReadyYet),
    ConditionReason::Workload(WorkloadReason::RollingOut),
];

/// Phase of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RolloutPhase {
    /// Replicas are created, updated or starting.
    Progressing,
    /// A problem that may resolve by itself, such as missing capacity or a crashing engine.
    Degraded,
    /// The service is ready in its current generation.
    Complete,
    /// The rollout waits for `ostler rollout resume`.
    Paused,
    /// The rollout does not continue without a change by the user.
    Failed,
}

/// The change of a field.
struct FieldChange {
    path: Vec<String>,
    description: String,
}

/// Returns the phase of the rollout of a service, and a message.
pub(crate) fn progress(service: &Value) -> (RolloutPhase, String) {
    let Some(ready) = find_current_condition(service, "Ready") else {
        let message = format!("Waiting for the operator to observe generation {}", generation(service));
        return (RolloutPhase::Progressing, message);
    };
    let has_failed =
        find_condition(&service["status"]["conditions"], "Failed").is_some_and(|failed| failed["status"] == "True");
    let text = |field: &str| ready[field].as_str().unwrap_or_default();
    let message = ready_message(&service["status"]["components"], ready);
    match () {
        () if ready["status"] == "True" && message.is_empty() => {
            (RolloutPhase::Complete, "successfully rolled out".to_owned())
        }
        () if ready["status"] == "True" => (RolloutPhase::Complete, format!("successfully rolled out: {message}")),
        () if has_failed || is_terminal(text("reason")) || lacks_nodes(service, text("reason")) => {
            (RolloutPhase::Failed, format!("rollout failed: {message}"))
        }
        () if is_rollout_paused(service) => (RolloutPhase::Paused, format!("rollout paused: {message}")),
        () if text("reason") == ConditionReason::RolloutPaused.as_str() => {
            (RolloutPhase::Progressing, "Waiting for the operator to resume the rollout".to_owned())
        }
        () if PROGRESSING_REASONS.iter().any(|reason| reason.as_str() == text("reason")) => {
            (RolloutPhase::Progressing, message)
        }
        () => (RolloutPhase::Degraded, message),
    }
}

fn is_terminal(reason: &str) -> bool {
    let mut codes = TERMINAL_DECISIONS.iter().chain(plan::code::error::ALL);
    TERMINAL_REASONS.iter().any(|terminal| terminal.as_str() == reason) || codes.any(|code| code.as_str() == reason)
}

/// Returns whether the Pods of the service would not fit on its nodes even without other workloads. `reason` is that of `Ready`.
fn lacks_nodes(service: &Value, reason: &str) -> bool {
    let record = || DecisionRecord::from_status(&service["status"]);
    reason == WorkloadReason::Unschedulable.as_str() && record().is_some_and(|record| is_too_large(&record.warnings))
}

/// Returns whether a service with these warnings requires more accelerators than its nodes have.
pub(crate) fn is_too_large(warnings: &[Warning]) -> bool {
    warnings.iter().any(|warning| warning.code == decide::code::warning::TOO_FEW_NODES.as_str())
}

/// Renders a row per revision, newest last.
pub(crate) fn history(revisions: &[Value]) -> String {
    let previous = std::iter::once(None).chain(revisions.iter().map(Some));
    let row = |(previous, revision): (Option<&Value>, &Value)| {
        let change = match previous {
            Some(previous) if previous["data"] == revision["data"] => {
                "(runtime or accelerator class changed)".to_owned()
            }
            Some(previous) => describe_changes(&previous["data"]["spec"], &revision["data"]["spec"]),
            None => "(oldest revision)".to_owned(),
        };
        vec![revision_number(revision).to_string(), metadata_field(revision, "creationTimestamp").to_owned(), change]
    };
    let rows: Vec<Vec<String>> = previous.zip(revisions).map(row).collect();
    table(&["REVISION", "CREATED", "CHANGE"], &rows)
}

/// Describes the changes from one spec to another: `roles[decode] … containers[vllm].image: a → b`.
pub(crate) fn describe_changes(before: &Value, after: &Value) -> String {
    let mut changes = Vec::new();
    collect_changes(&mut Vec::new(), before, after, &mut changes);
    let (mut descriptions, mut last_segment) = (Vec::new(), "");
    for FieldChange { path, description } in changes.iter().take(MAX_CHANGES) {
        let first_segment = path.first().map_or("", String::as_str);
        descriptions.push(format!("{}{description}", abbreviated_path(path, first_segment == last_segment)));
        last_segment = first_segment;
    }
    match (descriptions.is_empty(), changes.len() - descriptions.len()) {
        (true, _) => "no changes".to_owned(),
        (false, 0) => descriptions.join(", "),
        (false, more) => format!("{}, … {more} more", descriptions.join(", ")),
    }
}

/// Abbreviates a long path to its first segment (unless `omit_first`) and the segments from the last list item onward.
fn abbreviated_path(path: &[String], omit_first: bool) -> String {
    let [first, rest @ ..] = path else { return String::new() };
    if rest.len() <= 2 {
        return path.join(".");
    }
    let item = rest.iter().rposition(|segment| segment.ends_with(']'));
    let tail_start = item.unwrap_or(rest.len()).clamp(rest.len() - 2, rest.len() - 1);
    let tail = rest.get(tail_start..).unwrap_or_default().join(".");
    if omit_first { format!("… {tail}") } else { format!("{first} … {tail}") }
}

fn collect_changes(path: &mut Vec<String>, before: &Value, after: &Value, changes: &mut Vec<FieldChange>) {
    match (before, after) {
        _ if before == after => {}
        (Value::Object(old), Value::Object(new)) => {
            let added_keys = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added_keys) {
                path.push(key.clone());
                collect_changes(path, &before[key], &after[key], changes);
                path.pop();
            }
        }
        (Value::Array(old), Value::Array(new)) if has_named_items(old) && has_named_items(new) => {
            let added_items = new.iter().filter(|item| !old.iter().any(|other| other["name"] == item["name"]));
            let list = path.pop().unwrap_or_default();
            for item in old.iter().chain(added_items) {
                let find_item = |list: &[Value]| list.iter().find(|other| other["name"] == item["name"]).cloned();
                path.push(format!("{list}[{}]", item["name"].as_str().unwrap_or_default()));
                collect_changes(
                    path,
                    &find_item(old).unwrap_or_default(),
                    &find_item(new).unwrap_or_default(),
                    changes,
                );
                path.pop();
            }
            path.push(list);
        }
        _ => changes.push(FieldChange { path: path.clone(), description: describe_difference(before, after) }),
    }
}

fn has_named_items(list: &[Value]) -> bool {
    list.iter().all(|item| item["name"].is_string())
}

fn describe_difference(before: &Value, after: &Value) -> String {
    match (before, after) {
        (Value::Null, _) => " added".to_owned(),
        (_, Value::Null) => " removed".to_owned(),
        (Value::Array(old), Value::Array(new)) if is_string_list(old) && is_string_list(new) => {
            describe_argument_changes(old, new)
        }
        (before, after) => format!(": {} → {}", truncate(before), truncate(after)),
    }
}

fn is_string_list(list: &[Value]) -> bool {
    list.iter().all(Value::is_string)
}

/// Describes the change of an argument list without its common prefix and suffix.
fn describe_argument_changes(old: &[Value], new: &[Value]) -> String {
    let prefix = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[prefix..], &new[prefix..]);
    let suffix = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let line = |list: &[Value]| {
        let arguments: Vec<&str> = list[..list.len() - suffix].iter().filter_map(Value::as_str).collect();
        truncate(&Value::from(arguments.join(" ")))
    };
    match (line(old), line(new)) {
        (old, new) if old.is_empty() => format!(": {new} added"),
        (old, new) if new.is_empty() => format!(": {old} removed"),
        (old, new) => format!(": {old} → {new}"),
    }
}

fn truncate(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if text.chars().count() <= MAX_VALUE_WIDTH {
        return text;
    }
    text.chars().take(MAX_VALUE_WIDTH - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn service(observed: i64, status: &str, reason: &str, failed: &str, paused: bool) -> Value {
        let annotations = if paused { json!({"fusioninfer.io/rollout-paused": "true"}) } else { json!({}) };
        json!({"apiVersion": "fusioninfer.io/v1alpha1", "metadata": {"generation": 4, "annotations": annotations},
            "status": {"conditions": [
                {"type": "Failed", "status": failed},
                {"type": "Ready", "status": status, "reason": reason, "message": "m", "observedGeneration": observed}]}})
    }

    /// Returns a service with a Pod that cannot be scheduled and a warning of its decision.
    fn unschedulable(code: &str) -> Value {
        let mut service = service(4, "False", "Unschedulable", "False", false);
        let warnings = json!([{"code": code, "message": "w"}]);
        service["status"]["decision"] =
            json!({"feasible": true, "reason": "Selected", "message": "s", "warnings": warnings});
        service
    }

    #[rstest]
    #[case::not_observed(
        service(3, "True", "Ready", "False", false),
        RolloutPhase::Progressing,
        "Waiting for the operator to observe generation 4"
    )]
    #[case::complete(service(4, "True", "Ready", "False", false), RolloutPhase::Complete, "successfully rolled out: m")]
    #[case::starting(service(4, "False", "NotReadyYet", "False", false), RolloutPhase::Progressing, "m")]
    #[case::failed(service(4, "False", "CrashLoop", "True", false), RolloutPhase::Failed, "rollout failed: m")]
    #[case::missing_kind(service(4, "False", "KindMissing", "False", false), RolloutPhase::Failed, "rollout failed: m")]
    #[case::unschedulable(service(4, "False", "Unschedulable", "False", false), RolloutPhase::Degraded, "m")]
    #[case::crashing(service(4, "False", "CrashLoop", "False", false), RolloutPhase::Degraded, "m")]
    #[case::no_eligible_class(
        service(4, "False", "NoEligibleAccelerator", "False", false),
        RolloutPhase::Failed,
        "rollout failed: m"
    )]
    #[case::waits_for_free_accelerators(unschedulable("NoFreeCapacity"), RolloutPhase::Degraded, "m")]
    #[case::too_few_nodes(unschedulable("TooFewNodes"), RolloutPhase::Failed, "rollout failed: m")]
    #[case::no_runtime(
        service(4, "False", "NoCompatibleRuntime", "False", false),
        RolloutPhase::Failed,
        "rollout failed: m"
    )]
    #[case::plan_error(
        service(4, "False", "SchedulerConflict", "False", false),
        RolloutPhase::Failed,
        "rollout failed: m"
    )]
    #[case::paused(service(4, "False", "RolloutPaused", "False", true), RolloutPhase::Paused, "rollout paused: m")]
    #[case::resumed(
        service(4, "False", "RolloutPaused", "False", false),
        RolloutPhase::Progressing,
        "Waiting for the operator to resume the rollout"
    )]
    fn determines_phase_and_message(#[case] service: Value, #[case] phase: RolloutPhase, #[case] message: &str) {
        assert_eq!(progress(&service), (phase, message.to_owned()));
    }

    fn role(image: &str, gpus: u32) -> Value {
        let container = json!({"name": "v", "image": image, "resources": {"limits": {"gpu": gpus}}});
        json!({"roles": [{"name": "d", "template": {"spec": {"containers": [container]}}}]})
    }

    #[rstest]
    #[case::image(json!({"roles": [{"name": "d", "template": {"image": "a"}}]}), json!({"roles": [{"name": "d", "template": {"image": "b"}}]}),
        "roles[d].template.image: a → b")]
    #[case::added_role(json!({"roles": [{"name": "d"}]}), json!({"roles": [{"name": "d"}, {"name": "e"}]}), "roles[e] added")]
    #[case::removed_field(json!({"a": 1, "b": 2}), json!({"a": 1}), "b removed")]
    #[case::added_argument(json!({"args": ["x"]}), json!({"args": ["x", "y"]}), "args: y added")]
    #[case::removed_argument(json!({"args": ["x", "y", "z"]}), json!({"args": ["x", "z"]}), "args: y removed")]
    #[case::changed_arguments(json!({"args": ["--a", "1", "--b"]}), json!({"args": ["--a", "2", "3", "--b"]}), "args: 1 → 2 3")]
    #[case::repeated_argument(json!({"args": ["x", "x"]}), json!({"args": ["x"]}), "args: x removed")]
    #[case::number_list(json!({"ports": [1]}), json!({"ports": [1, 2]}), "ports: [1] → [1,2]")]
    #[case::many(json!({"a": 1, "b": 1, "c": 1, "d": 1}), json!({"a": 2, "b": 2, "c": 2, "d": 2}), "a: 1 → 2, b: 1 → 2, c: 1 → 2, … 1 more")]
    #[case::none(json!({}), json!({}), "no changes")]
    #[case::long_path(role("a", 8), role("b", 4), "roles[d] … containers[v].image: a → b, … limits.gpu: 8 → 4")]
    #[case::component(json!({"engine": {"runner": {"resources": {"limits": {"gpu": 1}}}}}),
        json!({"engine": {"runner": {"resources": {"limits": {"gpu": 2}}}}}), "engine … gpu: 1 → 2")]
    fn describes_spec_changes(#[case] before: Value, #[case] after: Value, #[case] expected: &str) {
        assert_eq!(describe_changes(&before, &after), expected);
    }

    #[test]
    fn renders_history() {
        let revision = |number: i64, image: &str| json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "revision": number, "data": {"spec": {"image": image}}});
        insta::assert_snapshot!(history(&[revision(1, "a"), revision(3, "b"), revision(4, "b")]), @r"
        REVISION  CREATED               CHANGE
        1         2026-01-01T00:00:00Z  (oldest revision)
        3         2026-01-01T00:00:00Z  image: a → b
        4         2026-01-01T00:00:00Z  (runtime or accelerator class changed)
        ");
    }
}
