//! The status of an `ome.io` InferenceService; pure.

mod components;

use cluster::apply::Applied;
use cluster::conditions::render;
use cluster::object::{generation, meta};
use cluster::{Condition, State, Tone};
use decide::reason::NO_ELIGIBLE_ACCELERATOR;
use jiff::Timestamp;
use plan::ServicePlan;
use plan::labels::COMPONENT;
use serde_json::{Value, json};

use crate::obstacles::{held, obstacle, why_not};
use crate::readiness::Code;
use crate::readings::Wanted;
use crate::reason::Reason;
use crate::report::Report;
use crate::rollout::is_paused;
use crate::{code, decision, gang};

/// What a reconcile of one service found out.
pub struct Findings<'a> {
    /// The service as it is in the cluster.
    pub service: &'a Value,
    /// What was planned for it.
    pub plan: &'a ServicePlan,
    /// What would be chosen if nothing were, where that is another choice than the one in force.
    pub better: Option<&'a ServicePlan>,
    /// Its workloads.
    pub workloads: &'a [Wanted],
    /// What became of its objects.
    pub applied: &'a [Applied],
}

/// Everything to tell about the service: status and events are of one record.
#[must_use]
pub fn report(findings: &Findings<'_>, now: Timestamp) -> Report {
    let service = findings.service;
    let conditions = conditions(findings);
    let ready = conditions.last().is_some_and(|ready| ready.state == State::True);
    let fresh = findings.plan.record();
    let news = decision::news(decision::recorded(service).as_ref(), &fresh);
    let decision = decision::record(service, &fresh, ready);
    let status = status(findings, &conditions, decision, now);
    Report { conditions, status, news }
}

/// The conditions, leaves first, `Ready` last. `GangScheduled` is there where Pods are placed together, `Failed`,
/// `AutoscalerUnavailable` and `DecisionStale` only while they hold; none of them keeps anything from being ready.
fn conditions(findings: &Findings<'_>) -> Vec<Condition> {
    let mut leaves = vec![runtime_resolved(findings.plan), accelerator_resolved(findings.plan)];
    leaves.push(workloads_ready(findings, "WorkloadsReady", |component| component != ROUTER));
    if findings.plan.components.contains_key(ROUTER) {
        leaves.push(workloads_ready(findings, "RouterReady", |component| component == ROUTER));
    }
    let ready = match leaves.iter().find(|leaf| leaf.state != State::True) {
        Some(leaf) => Condition::relayed("Ready", false, leaf.reason.clone(), leaf.message.clone()).told_as(leaf.tone),
        None => Reason::Ready.condition("Ready", true, "every component is ready"),
    };
    let gang = gang::condition(findings.workloads, findings.applied, Some(findings.plan));
    let remarks = failed(findings.workloads).into_iter().chain(gang);
    let remarks = remarks.chain(autoscaler_unavailable(findings.plan)).chain(decision_stale(findings));
    leaves.into_iter().chain(remarks).chain([ready]).collect()
}

/// The component whose Pods only pass requests on.
const ROUTER: &str = "router";

/// A workload that will not come right by itself, under the name that role-based services have for it.
fn failed(workloads: &[Wanted]) -> Option<Condition> {
    let worst = workloads.iter().filter_map(why_not).filter(|trouble| trouble.failed).min()?;
    let message = format!("{}: {}", worst.object, worst.message);
    Some(worst.reason().condition("Failed", true, message).told_as(Tone::Consequence))
}

/// What the service asks for that only an autoscaler of a kind the cluster lacks could do. The warning has the event.
fn autoscaler_unavailable(plan: &ServicePlan) -> Option<Condition> {
    let told = plan.warnings.iter().filter(|warning| warning.code == AUTOSCALER_UNAVAILABLE.as_str());
    let messages: Vec<&str> = told.map(|warning| warning.message.as_str()).collect();
    (!messages.is_empty()).then(|| {
        let condition =
            Condition::new(AUTOSCALER_UNAVAILABLE.as_str(), true, AUTOSCALER_UNAVAILABLE, messages.join("; "));
        condition.told_as(Tone::Consequence)
    })
}

/// Condition, and code of the warning that it repeats.
const AUTOSCALER_UNAVAILABLE: api::code::Code = plan::code::warning::AUTOSCALER_UNAVAILABLE;

fn decision_stale(findings: &Findings<'_>) -> Option<Condition> {
    let better = findings.better?;
    let name = meta(findings.service, "name");
    let message =
        format!("now {} would be chosen; `ostler redecide inferenceservice/{name}` accepts it", better.message);
    Some(Reason::BetterChoice.condition("DecisionStale", true, message))
}

/// The whole status that the operator writes.
fn status(findings: &Findings<'_>, conditions: &[Condition], decision: Value, now: Timestamp) -> Value {
    let service = findings.service;
    let generation = generation(service);
    let components = components::components(findings, &decision["reason"]);
    let mut status = json!({
        "observedGeneration": generation,
        "conditions": render(&service["status"]["conditions"], conditions, generation, now),
        "decision": decision,
    });
    if let Some(url) = [ROUTER, "decoder", "engine"].iter().find_map(|name| components.get(*name)?.get("url")) {
        status["url"] = url.clone();
    }
    if !components.is_empty() {
        status["components"] = Value::Object(components);
    }
    status
}

/// What is told of a service that cannot be decided on: everything else in its status stays.
#[must_use]
pub fn undecidable(service: &Value, reason: Reason, problem: &str, now: Timestamp) -> Report {
    let conditions = vec![reason.condition("Ready", false, problem)];
    let mut status = service["status"].clone();
    let generation = generation(service);
    if !status.is_object() {
        status = json!({});
    }
    status["conditions"] = render(&service["status"]["conditions"], &conditions, generation, now);
    if reason == Reason::InvalidSpec {
        status["observedGeneration"] = generation.into();
    }
    Report { conditions, status, news: Vec::new() }
}

fn runtime_resolved(plan: &ServicePlan) -> Condition {
    const KIND: &str = "RuntimeResolved";
    if !plan.feasible {
        return Condition::relayed(KIND, false, &*plan.reason, &*plan.message);
    }
    let own = || "the service brings its own engine".to_owned();
    let message = plan.runtime.as_ref().map_or_else(own, |runtime| format!("runtime {}", runtime.name));
    Reason::Selected.condition(KIND, true, message)
}

fn accelerator_resolved(plan: &ServicePlan) -> Condition {
    const KIND: &str = "AcceleratorResolved";
    if !plan.feasible {
        // Whether the nearest runtime lacked nothing but a class.
        return match plan.reason == NO_ELIGIBLE_ACCELERATOR {
            true => Condition::relayed(KIND, false, &*plan.reason, &*plan.message),
            false => Reason::RuntimeNotResolved.condition(KIND, false, &*plan.message),
        };
    }
    let components = plan.components.iter();
    let classes: Vec<String> = components
        .filter_map(|(name, component)| Some(format!("{name} on {}", component.accelerator_class.as_ref()?)))
        .collect();
    match classes.is_empty() {
        true => Reason::NotRequired.condition(KIND, true, "no component asks for an accelerator class"),
        false => Reason::Selected.condition(KIND, true, classes.join(", ")),
    }
}

/// Of the workloads whose component `which` picks.
fn workloads_ready(findings: &Findings<'_>, kind: &'static str, which: impl Fn(&str) -> bool) -> Condition {
    if !findings.plan.feasible {
        let message = "nothing runs until a runtime and its accelerators are found";
        return Reason::NotPlanned.condition(kind, false, message);
    }
    if let Some((reason, message)) = obstacle(findings.applied, |_| true) {
        return reason.condition(kind, false, message);
    }
    let component =
        |wanted: &Wanted| wanted.planned["metadata"]["labels"][COMPONENT].as_str().unwrap_or_default().to_owned();
    let workloads = findings.workloads.iter().filter(|wanted| which(&component(wanted)));
    let held = |wanted: &Wanted| held(findings.applied, wanted);
    match workloads.filter_map(|wanted| why_not(wanted).or_else(|| held(wanted))).min() {
        Some(worst) => {
            let message = format!("{}: {}", worst.object, worst.message);
            match worst.code == Code::RollingOut && is_paused(findings.service) {
                true => Condition::new(kind, false, code::ROLLOUT_PAUSED, message).told_as(Tone::News),
                false => worst.reason().condition(kind, false, message),
            }
        }
        None => Reason::AllReady.condition(kind, true, "every workload is ready"),
    }
}

#[cfg(test)]
mod tests;
