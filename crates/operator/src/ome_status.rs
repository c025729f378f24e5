//! The status of an `ome.io` InferenceService; pure.

use cluster::apply::{Applied, Outcome};
use cluster::conditions::render;
use cluster::object::{generation, meta};
use cluster::{Condition, State, Tone};
use decide::reason::NO_ELIGIBLE_ACCELERATOR;
use jiff::Timestamp;
use plan::labels::COMPONENT;
use serde_json::{Map, Value, json};

use crate::decision;
use crate::readiness::{Code, Progress, Trouble, trouble};
use crate::readings::{Wanted, Workload};
use crate::reason::Reason;
use crate::report::Report;

/// What a reconcile of one service found out.
pub struct Findings<'a> {
    /// The service as it is in the cluster.
    pub service: &'a Value,
    /// Its entry of `ostler plan -o json`.
    pub plan: &'a Value,
    /// What would be chosen if nothing were, where that is another choice than the one in force.
    pub better: Option<&'a Value>,
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
    let decision = decision::record(service, findings.plan, ready);
    let news = decision::news(&service["status"]["decision"], &decision);
    let status = status(findings, &conditions, decision, now);
    Report { conditions, status, news }
}

/// The conditions, leaves first, `Ready` last. `AutoscalerUnavailable` and `DecisionStale` are there only while they hold
/// and keep nothing from being ready.
fn conditions(findings: &Findings<'_>) -> Vec<Condition> {
    let mut leaves = vec![runtime_resolved(findings.plan), accelerator_resolved(findings.plan)];
    leaves.push(workloads_ready(findings, "WorkloadsReady", |component| component != ROUTER));
    if findings.plan["components"][ROUTER].is_object() {
        leaves.push(workloads_ready(findings, "RouterReady", |component| component == ROUTER));
    }
    let ready = match leaves.iter().find(|leaf| leaf.state != State::True) {
        Some(leaf) => Condition::relayed("Ready", false, leaf.reason.clone(), leaf.message.clone()).told_as(leaf.tone),
        None => Reason::Ready.condition("Ready", true, "every component is ready"),
    };
    let remarks = autoscaler_unavailable(findings.plan).into_iter().chain(decision_stale(findings));
    leaves.into_iter().chain(remarks).chain([ready]).collect()
}

/// The component whose Pods only pass requests on.
const ROUTER: &str = "router";

/// What the service asks for that only an autoscaler of a kind the cluster lacks could do. The warning has the event.
fn autoscaler_unavailable(plan: &Value) -> Option<Condition> {
    let warnings = plan["warnings"].as_array().into_iter().flatten();
    let told = warnings.filter(|warning| warning["code"] == AUTOSCALER_UNAVAILABLE.as_str());
    let messages: Vec<&str> = told.filter_map(|warning| warning["message"].as_str()).collect();
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
    let message = format!(
        "now {} would be chosen; `ostler redecide inferenceservice/{name}` accepts it",
        better["message"].as_str().unwrap_or("another runtime or class")
    );
    Some(Reason::BetterChoice.condition("DecisionStale", true, message))
}

/// The whole status that the operator writes.
fn status(findings: &Findings<'_>, conditions: &[Condition], decision: Value, now: Timestamp) -> Value {
    let service = findings.service;
    let generation = generation(service);
    let components = components(findings, &decision["reason"]);
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

fn runtime_resolved(plan: &Value) -> Condition {
    let resolved = |message: String| Reason::Selected.condition("RuntimeResolved", true, message);
    let name = plan["runtime"]["name"].as_str();
    if plan["feasible"] == true {
        return resolved(
            name.map_or_else(|| "the service brings its own engine".to_owned(), |name| format!("runtime {name}")),
        );
    }
    let (reason, message) = told(plan);
    Condition::relayed("RuntimeResolved", false, reason, message)
}

fn accelerator_resolved(plan: &Value) -> Condition {
    const KIND: &str = "AcceleratorResolved";
    let (reason, message) = told(plan);
    if plan["feasible"] != true {
        return match about_accelerators(plan) {
            true => Condition::relayed(KIND, false, reason, message),
            false => Reason::RuntimeNotResolved.condition(KIND, false, message),
        };
    }
    let components = plan["components"].as_object().into_iter().flatten();
    let classes: Vec<String> = components
        .filter_map(|(name, component)| Some(format!("{name} on {}", component["acceleratorClass"].as_str()?)))
        .collect();
    match classes.is_empty() {
        true => Reason::NotRequired.condition(KIND, true, "no component asks for an accelerator class"),
        false => Reason::Selected.condition(KIND, true, classes.join(", ")),
    }
}

/// Whether the nearest runtime lacked nothing but a class.
fn about_accelerators(plan: &Value) -> bool {
    plan["reason"] == NO_ELIGIBLE_ACCELERATOR
}

fn told(plan: &Value) -> (&str, &str) {
    (plan["reason"].as_str().unwrap_or(crate::code::UNDECIDED.as_str()), plan["message"].as_str().unwrap_or_default())
}

/// Of the workloads whose component `which` picks.
fn workloads_ready(findings: &Findings<'_>, kind: &'static str, which: impl Fn(&str) -> bool) -> Condition {
    if findings.plan["feasible"] != true {
        let message = "nothing runs until a runtime and its accelerators are found";
        return Reason::NotPlanned.condition(kind, false, message);
    }
    if let Some((reason, message)) = obstacle(findings.applied) {
        return reason.condition(kind, false, message);
    }
    let component =
        |wanted: &Wanted| wanted.planned["metadata"]["labels"][COMPONENT].as_str().unwrap_or_default().to_owned();
    let workloads = findings.workloads.iter().filter(|wanted| which(&component(wanted)));
    match workloads.filter_map(why_not).min() {
        Some(worst) => worst.reason().condition(kind, false, format!("{}: {}", worst.object, worst.message)),
        None => Reason::AllReady.condition(kind, true, "every workload is ready"),
    }
}

/// An object that could not be made as planned.
#[must_use]
pub fn obstacle(applied: &[Applied]) -> Option<(Reason, String)> {
    applied.iter().find_map(|one| match &one.outcome {
        Outcome::Foreign(holder) => Some((
            Reason::ObjectNotOurs,
            format!("{} belongs to {holder}; rename the service or delete that object", one.object),
        )),
        Outcome::KindMissing => Some((
            Reason::KindMissing,
            format!("the cluster does not serve {}; install it to run this service", one.kind),
        )),
        Outcome::Refused(message) => Some((Reason::ObjectRefused, format!("{}: {message}", one.object))),
        _ => None,
    })
}

/// Why a planned workload is not ready, or `None` if it is.
#[must_use]
pub fn why_not(wanted: &Wanted) -> Option<Trouble> {
    match &wanted.live {
        Some(live) => trouble(&live.object, live.pods()),
        None => Some(Trouble {
            code: Code::Starting,
            object: cluster::object::describe(&wanted.planned),
            message: "not made yet".to_owned(),
            failed: false,
        }),
    }
}

/// `status.components`: counts from the workloads, the class from the plan, the address from the planned Service.
fn components(findings: &Findings<'_>, reason: &Value) -> Map<String, Value> {
    let planned = findings.plan["components"].as_object().into_iter().flatten();
    planned.map(|(name, choice)| (name.clone(), component(findings, name, choice, reason))).collect()
}

fn component(findings: &Findings<'_>, name: &str, choice: &Value, reason: &Value) -> Value {
    let label = |object: &Value| object["metadata"]["labels"][COMPONENT] == name;
    let live: Vec<&Workload> = findings
        .workloads
        .iter()
        .filter(|wanted| label(&wanted.planned))
        .filter_map(|wanted| wanted.live.as_ref())
        .collect();
    let progress: Vec<Progress> = live.iter().map(|workload| Progress::of(&workload.object)).collect();
    let mut component = json!({
        "replicas": progress.iter().map(|one| one.desired).sum::<i64>(),
        "readyReplicas": progress.iter().map(|one| one.ready).sum::<i64>(),
    });
    if let Some(class) = choice["acceleratorClass"].as_str() {
        component["selectedAccelerator"] = selected(class, choice, reason);
    }
    let objects = findings.plan["objects"].as_array().into_iter().flatten();
    if let Some(url) = objects.filter(|object| object["kind"] == "Service" && label(object)).find_map(url) {
        component["url"] = url.into();
    }
    component
}

/// The class with what its Pods request, and the reason that the decision has.
fn selected(class: &str, choice: &Value, reason: &Value) -> Value {
    let mut selected = json!({"acceleratorClass": class, "reason": reason});
    if let (Some(resource), Some(count)) = (choice["resource"].as_str(), choice["acceleratorsPerNode"].as_u64()) {
        selected["resourceRequests"] = json!({resource: count.to_string()});
    }
    selected
}

/// The address of a Service inside the cluster.
fn url(service: &Value) -> Option<String> {
    let port = service["spec"]["ports"][0]["port"].as_i64()?;
    let port = if port == 80 { String::new() } else { format!(":{port}") };
    Some(format!("http://{}.{}.svc.cluster.local{port}", meta(service, "name"), meta(service, "namespace")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn service() -> Value {
        json!({"metadata": {"name": "chat", "namespace": "n", "generation": 3}, "status": {}})
    }

    fn plan() -> Value {
        json!({"feasible": true, "reason": "Selected", "message": "m", "runtime": {"name": "srt", "scope": "Cluster"},
            "components": {"engine": {"acceleratorClass": "h100", "nodes": 1, "replicas": 1}},
            "objects": [{"kind": "Service", "metadata": {"name": "chat-engine", "namespace": "n", "labels": {"component": "engine"}},
                "spec": {"ports": [{"port": 8080}]}}]})
    }

    fn wanted(ready: i64, pods: Vec<Value>) -> Wanted {
        let planned = json!({"kind": "Deployment", "metadata": {"name": "chat-engine", "namespace": "n", "labels": {"component": "engine"}}});
        let mut object = planned.clone();
        object["spec"] = json!({"replicas": 1});
        object["status"] = json!({"readyReplicas": ready, "updatedReplicas": 1});
        Wanted {
            planned,
            live: Some(Workload { object: Arc::new(object), pods: pods.into_iter().map(Arc::new).collect() }),
        }
    }

    fn short(conditions: &[Condition]) -> Vec<String> {
        conditions.iter().map(|one| format!("{}={} {}", one.kind, one.state.as_str(), one.reason)).collect()
    }

    #[test]
    fn a_ready_service() {
        let (service, plan, workloads) = (service(), plan(), [wanted(1, vec![])]);
        let findings = Findings { service: &service, plan: &plan, better: None, workloads: &workloads, applied: &[] };
        let Report { conditions, status, .. } = report(&findings, Timestamp::UNIX_EPOCH);
        assert_eq!(
            short(&conditions),
            [
                "RuntimeResolved=True Selected",
                "AcceleratorResolved=True Selected",
                "WorkloadsReady=True AllReady",
                "Ready=True Ready"
            ]
        );
        assert_eq!(status["url"], "http://chat-engine.n.svc.cluster.local:8080");
        assert_eq!(status["components"]["engine"]["readyReplicas"], 1);
        assert_eq!(status["components"]["engine"]["selectedAccelerator"]["acceleratorClass"], "h100");
        assert_eq!(status["decision"]["runtime"]["name"], "srt");
        assert_eq!(status["observedGeneration"], 3);
    }

    fn events(service: &Value, plan: &Value, workloads: &[Wanted]) -> (Vec<String>, Value) {
        let report = report(&Findings { service, plan, better: None, workloads, applied: &[] }, Timestamp::UNIX_EPOCH);
        let told = report.events(service);
        let kind = |warning| if warning { "Warning" } else { "Normal" };
        (told.iter().map(|one| format!("{} {}", kind(one.warning), one.reason)).collect(), report.status)
    }

    #[test]
    fn a_normal_start_is_three_normal_events() {
        let pod = |status: Value| json!({"metadata": {"name": "p"}, "status": status});
        let starting = pod(json!({"phase": "Pending"}));
        let probing = pod(json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false}]}));
        let (mut service, mut told) = (service(), Vec::new());
        for (ready, pods) in
            [(0, vec![]), (0, vec![starting.clone()]), (0, vec![probing]), (0, vec![starting]), (1, vec![])]
        {
            let (events, status) = events(&service, &plan(), &[wanted(ready, pods)]);
            told.extend(events);
            service["status"] = status;
        }
        assert_eq!(told, ["Normal Selected", "Normal Starting", "Normal Ready"]);
    }

    #[test]
    fn what_cannot_be_served_is_one_warning_and_its_recovery_is_told() {
        let refused = json!({"feasible": false, "reason": "NoCompatibleRuntime", "message": "none of 4"});
        let mut service = service();
        let (told, status) = events(&service, &refused, &[]);
        assert_eq!(told, ["Warning NoCompatibleRuntime"]);
        service["status"] = status;
        assert_eq!(events(&service, &refused, &[]).0, [""; 0]);
        assert_eq!(events(&service, &plan(), &[wanted(1, vec![])]).0, ["Normal Selected", "Normal Ready"]);
    }

    #[test]
    fn a_better_choice_is_shown_while_there_is_one() {
        let (service, plan, better) = (service(), plan(), json!({"message": "x on 1 × l40s"}));
        let workloads = [wanted(1, vec![])];
        let findings =
            Findings { service: &service, plan: &plan, better: Some(&better), workloads: &workloads, applied: &[] };
        let conditions = conditions(&findings);
        assert_eq!(short(&conditions)[3..], ["DecisionStale=True BetterChoice", "Ready=True Ready"]);
        assert!(conditions[3].message.contains("x on 1 × l40s") && conditions[3].message.contains("ostler redecide"));
    }

    #[test]
    fn what_only_another_autoscaler_could_do_is_a_condition_and_one_event() {
        let (service, mut plan, workloads) = (service(), plan(), [wanted(1, vec![])]);
        plan["warnings"] = json!([{"code": "AutoscalerUnavailable", "message": "engine: rps needs KEDA"}]);
        let findings = Findings { service: &service, plan: &plan, better: None, workloads: &workloads, applied: &[] };
        let told = conditions(&findings);
        assert_eq!(short(&told)[3..], ["AutoscalerUnavailable=True AutoscalerUnavailable", "Ready=True Ready"]);
        assert_eq!(told[3].message, "engine: rps needs KEDA");
        let events = events(&service, &plan, &workloads).0;
        assert_eq!(events, ["Normal Selected", "Warning AutoscalerUnavailable", "Normal Ready"]);
    }

    #[test]
    fn a_router_that_is_not_ready_is_told_apart_from_the_engines() {
        let (service, mut plan) = (service(), plan());
        plan["components"]["router"] = json!({"nodes": 1, "replicas": 1});
        let mut router = wanted(0, vec![]);
        router.planned["metadata"] =
            json!({"name": "chat-router", "namespace": "n", "labels": {"component": "router"}});
        let workloads = [wanted(1, vec![]), router];
        let findings = Findings { service: &service, plan: &plan, better: None, workloads: &workloads, applied: &[] };
        let told = short(&conditions(&findings));
        assert_eq!(told[2..], ["WorkloadsReady=True AllReady", "RouterReady=False Starting", "Ready=False Starting"]);
    }

    #[test]
    fn the_schedulers_words_reach_ready() {
        let pod = json!({"metadata": {"name": "p"}, "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}});
        let (service, plan, workloads) = (service(), plan(), [wanted(0, vec![pod])]);
        let conditions =
            conditions(&Findings { service: &service, plan: &plan, better: None, workloads: &workloads, applied: &[] });
        let ready = &conditions[3];
        assert_eq!(
            (ready.reason.as_str(), ready.message.as_str()),
            ("Unschedulable", "Pod p: 0/3 nodes are available")
        );
    }

    // spec: RT-67
    #[test]
    fn no_runtime() {
        let plan = json!({"feasible": false, "reason": "NoCompatibleRuntime", "message": "none of 4"});
        let conditions =
            conditions(&Findings { service: &service(), plan: &plan, better: None, workloads: &[], applied: &[] });
        assert_eq!(short(&conditions)[0], "RuntimeResolved=False NoCompatibleRuntime");
        assert_eq!(short(&conditions)[3], "Ready=False NoCompatibleRuntime");
    }

    #[test]
    fn an_obstacle_names_the_object() {
        let applied = [Applied {
            object: "Deployment n/chat-engine".to_owned(),
            kind: "Deployment".to_owned(),
            outcome: Outcome::Foreign("Job j".to_owned()),
        }];
        let conditions = conditions(&Findings {
            service: &service(),
            plan: &plan(),
            better: None,
            workloads: &[],
            applied: &applied,
        });
        assert_eq!(conditions[3].reason, "ObjectNotOurs");
        assert!(conditions[3].message.starts_with("Deployment n/chat-engine belongs to Job j"));
    }
}
