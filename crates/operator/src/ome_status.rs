//! Computes the status of an `ome.io` InferenceService; no I/O.

mod components;
mod observations;

use cluster::{Condition, ConditionStatus, EventPolicy, find_condition, generation, kind_and_name, metadata_field};
use decide::code::runtime::NO_ELIGIBLE_ACCELERATOR;
use jiff::Timestamp;
use plan::labels::COMPONENT;
use plan::{DecisionRecord, ServicePlan};
use serde_json::{Value, json};

use crate::condition_reason::{ConditionReason, NO_SURGE_CAPACITY, WorkloadReason};
use crate::decision_record::{self, RecordedDecision};
use crate::failures::{apply_failure, deferred_update, planned_workload_problem};
use crate::gang_status;
use crate::replacement::stop_messages;
use crate::rollout::{PAUSED, is_rollout_paused};
use crate::rollout_strategy::interruptions;
use crate::service_conditions::{ImpliedFields, render_service_conditions};
use crate::status_inputs;
use crate::status_report::StatusReport;
use crate::workloads::PlannedWorkload;
pub(crate) use observations::OmeObservations;

/// Component whose Pods route requests.
const ROUTER: &str = "router";
/// Components that clients send requests to; the first one that exists.
const ENTRY_COMPONENTS: [&str; 3] = [ROUTER, "decoder", "engine"];
/// A condition that is true once a stage is complete needs no explanation, as in upstream OME. `Ready` has a reason because `kubectl
/// get` shows it.
const IMPLIED_FIELDS: ImpliedFields = ImpliedFields {
    message: &["RuntimeResolved", "AcceleratorResolved", "WorkloadsReady", "RouterReady", "Ready"],
    message_if_ready: &["GangScheduled"],
    reason: &["RuntimeResolved", "AcceleratorResolved", "WorkloadsReady", "RouterReady"],
};
/// Condition type, and code of the warning that the condition repeats.
const AUTOSCALER_UNAVAILABLE: api::Code = plan::code::warning::AUTOSCALER_UNAVAILABLE;

/// Computes status and events of the service from the same decision record.
pub(crate) fn report(observations: &OmeObservations<'_>, now: Timestamp) -> StatusReport {
    let service = observations.service;
    let conditions = conditions(observations);
    let is_ready = conditions.last().is_some_and(|ready| ready.status == ConditionStatus::True);
    let plan = observations.plan;
    let decision = RecordedDecision::new(plan.record(), &plan.components);
    let recorded = RecordedDecision::from_status(&service["status"]);
    let events = decision_record::decision_events(recorded.as_ref(), &decision);
    let record = decision_record::updated_record(service, &decision, plan.selection_fields.as_deref(), is_ready);
    let status = status(observations, &conditions, &record, now);
    StatusReport { conditions, status, events }
}

/// Returns all conditions, `Ready` last. `GangScheduled` exists only for services with a gang; `Failed`,
/// `AutoscalerUnavailable`, `DecisionStale`, `NoSurgeCapacity` and `ModelNameShared` exist only while they are true. None of these
/// six affects `Ready`.
fn conditions(observations: &OmeObservations<'_>) -> Vec<Condition> {
    let mut required = vec![runtime_resolved(observations.plan), accelerator_resolved(observations.plan)];
    required.push(workloads_ready(observations, "WorkloadsReady", |component| component != ROUTER));
    if observations.plan.components.contains_key(ROUTER) {
        required.push(workloads_ready(observations, "RouterReady", |component| component == ROUTER));
    }
    let ready = match required.iter().find(|condition| condition.status != ConditionStatus::True) {
        Some(condition) => Condition { type_: "Ready", status: ConditionStatus::False, ..condition.clone() },
        None => ConditionReason::Ready.condition("Ready", true, "All components are ready"),
    };
    let gang = gang_status::gang_condition(observations.workloads, observations.applied, Some(observations.plan));
    let optional = failed(observations.workloads).into_iter().chain(gang);
    let optional = optional.chain(autoscaler_unavailable(observations.plan)).chain(decision_stale(observations));
    let optional = optional.chain(no_surge_capacity(observations)).chain(observations.shared_model_name.cloned());
    required.into_iter().chain(optional).chain([ready]).collect()
}

/// Returns condition `Failed`, as defined for role-based services, if a workload needs action.
fn failed(workloads: &[PlannedWorkload]) -> Option<Condition> {
    let problem = workloads.iter().filter_map(planned_workload_problem).filter(|problem| problem.failed).min()?;
    let message = format!("{}: {}", problem.object, problem.message);
    let condition = ConditionReason::from(&problem).condition("Failed", true, message);
    // The readiness condition of the workload emits the event.
    Some(condition.with_event_policy(EventPolicy::Suppressed))
}

/// Returns a condition if the service requires an autoscaler that is not installed.
fn autoscaler_unavailable(plan: &ServicePlan) -> Option<Condition> {
    let warnings = plan.warnings.iter().filter(|warning| warning.code == AUTOSCALER_UNAVAILABLE.as_str());
    let messages: Vec<&str> = warnings.map(|warning| warning.message.as_str()).collect();
    (!messages.is_empty()).then(|| {
        let condition =
            Condition::new(AUTOSCALER_UNAVAILABLE.as_str(), true, AUTOSCALER_UNAVAILABLE, messages.join("; "));
        // The warning of the plan emits the event.
        condition.with_event_policy(EventPolicy::Suppressed)
    })
}

fn decision_stale(observations: &OmeObservations<'_>) -> Option<Condition> {
    let better_plan = observations.better_plan?;
    let name = metadata_field(observations.service, "name");
    let message = format!(
        "Re-running selection would change the result: {}; run `ostler redecide inferenceservice/{name}` to accept it",
        better_plan.message
    );
    Some(ConditionReason::BetterChoice.condition("DecisionStale", true, message))
}

/// Returns a condition while a rollout stops old Pods before new ones start.
fn no_surge_capacity(observations: &OmeObservations<'_>) -> Option<Condition> {
    let mut messages = interruptions(observations.workloads, &observations.plan.user_strategies);
    let announced = find_condition(&observations.service["status"]["conditions"], NO_SURGE_CAPACITY);
    let announced = announced.and_then(|announced| announced["message"].as_str()).unwrap_or_default();
    messages.extend(stop_messages(observations.replacement, observations.workloads, announced));
    let condition = || ConditionReason::NoFreeAccelerators.condition(NO_SURGE_CAPACITY, true, messages.join("; "));
    (!messages.is_empty()).then(condition)
}

/// Returns the complete status that the operator writes.
fn status(
    observations: &OmeObservations<'_>,
    conditions: &[Condition],
    record: &DecisionRecord,
    now: Timestamp,
) -> Value {
    let service = observations.service;
    let observed_generation = json!(generation(service));
    let mut components = components::components(observations);
    let mut status = json!({
        "conditions": render_service_conditions(service, conditions, &IMPLIED_FIELDS, &observed_generation, now),
        "observedGeneration": observed_generation,
        "decision": record.to_json(),
    });
    // Clients use the component with the URL of the service, which is not repeated.
    if let Some(url) =
        ENTRY_COMPONENTS.iter().find_map(|name| components.get_mut(*name)?.as_object_mut()?.remove("url"))
    {
        status["url"] = url;
    }
    if !components.is_empty() {
        status["components"] = Value::Object(components);
    }
    status
}

/// Returns the report of a service that cannot be planned; everything but the `Ready` condition is retained.
pub(crate) fn not_planned_report(
    service: &Value,
    reason: ConditionReason,
    message: &str,
    now: Timestamp,
) -> StatusReport {
    let conditions = vec![reason.condition("Ready", false, message)];
    let mut status = service["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    if reason == ConditionReason::InvalidSpec {
        status["observedGeneration"] = generation(service).into();
        status_inputs::remove_inputs(&mut status);
    }
    status["conditions"] =
        render_service_conditions(service, &conditions, &IMPLIED_FIELDS, &status["observedGeneration"], now);
    StatusReport { conditions, status, events: Vec::new() }
}

fn runtime_resolved(plan: &ServicePlan) -> Condition {
    const TYPE: &str = "RuntimeResolved";
    if !plan.feasible {
        return Condition::with_reason(TYPE, false, &*plan.reason, &*plan.message);
    }
    let message = match &plan.runtime {
        Some(runtime) => format!("Runtime {} is selected", runtime.name),
        None => "The service specifies its own engine".to_owned(),
    };
    ConditionReason::Selected.condition(TYPE, true, message)
}

fn accelerator_resolved(plan: &ServicePlan) -> Condition {
    const TYPE: &str = "AcceleratorResolved";
    if !plan.feasible {
        // Whether the best runtime lacked only an accelerator class.
        return match plan.reason == NO_ELIGIBLE_ACCELERATOR.as_str() {
            true => Condition::with_reason(TYPE, false, &*plan.reason, &*plan.message),
            false => ConditionReason::RuntimeNotResolved.condition(TYPE, false, &*plan.message),
        };
    }
    let components = plan.components.iter();
    let classes: Vec<String> = components
        .filter_map(|(name, component)| Some(format!("{} for {name}", component.accelerator_class.as_ref()?)))
        .collect();
    match classes.as_slice() {
        [] => ConditionReason::NotRequired.condition(TYPE, true, "No component requires an accelerator class"),
        [class] => ConditionReason::Selected.condition(TYPE, true, format!("Accelerator class {class} is selected")),
        classes => {
            let message = format!("Accelerator classes {} are selected", classes.join(", "));
            ConditionReason::Selected.condition(TYPE, true, message)
        }
    }
}

/// Returns the readiness of the workloads whose component `includes_component` accepts.
fn workloads_ready(
    observations: &OmeObservations<'_>,
    type_: &'static str,
    includes_component: impl Fn(&str) -> bool,
) -> Condition {
    if !observations.plan.feasible {
        return ConditionReason::NotPlanned.condition(type_, false, not_planned_message(observations.workloads));
    }
    if let Some(failure) = apply_failure(observations.applied, |_| true) {
        return ConditionReason::from(&failure).condition(type_, false, failure.to_string());
    }
    let component = |workload: &PlannedWorkload| {
        workload.planned["metadata"]["labels"][COMPONENT].as_str().unwrap_or_default().to_owned()
    };
    let workloads = observations.workloads.iter().filter(|workload| includes_component(&component(workload)));
    let problem = |workload: &PlannedWorkload| {
        planned_workload_problem(workload).or_else(|| deferred_update(observations.applied, workload))
    };
    match workloads.filter_map(problem).min() {
        Some(problem) => {
            let mut message = format!("{}: {}", problem.object, problem.message);
            if problem.reason == WorkloadReason::Unschedulable
                && let Some(full_class) = observations.full_class
            {
                message = format!("{full_class}. {message}");
            }
            if let Some(retained) = observations.replacement.retained_message() {
                message = format!("{retained}. {message}");
            }
            if observations.replacement.is_paused() {
                return ConditionReason::RolloutPaused.condition(type_, false, message);
            }
            match problem.reason == WorkloadReason::RollingOut && is_rollout_paused(observations.service) {
                true => ConditionReason::RolloutPaused.condition(type_, false, format!("{message}; {PAUSED}")),
                false => ConditionReason::from(&problem).condition(type_, false, message),
            }
        }
        None => ConditionReason::AllReady.condition(type_, true, "All workloads are ready"),
    }
}

/// Returns a sentence about the existing workloads of a service whose plan is infeasible.
fn not_planned_message(existing: &[PlannedWorkload]) -> String {
    const UNTIL: &str = "until a runtime and its accelerators are resolved";
    let names: Vec<String> = existing.iter().map(|workload| kind_and_name(&workload.planned)).collect();
    match names.as_slice() {
        [] => format!("No workload is created {UNTIL}"),
        [name] => format!("{name} retains its previous spec {UNTIL}"),
        names => format!("{} retain their previous specs {UNTIL}", names.join(" and ")),
    }
}

#[cfg(test)]
mod tests;
