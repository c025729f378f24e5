//! The status of an `ome.io` InferenceService; pure.

use cluster::apply::{Applied, Outcome};
use cluster::conditions::render;
use cluster::object::{generation, meta};
use cluster::{Condition, State};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::decision;
use crate::readiness::{Progress, Trouble, trouble};
use crate::readings::{Wanted, Workload};

/// What a reconcile of one service found out.
pub struct Findings<'a> {
    /// The service as it is in the cluster.
    pub service: &'a Value,
    /// Its entry of `ostler plan -o json`.
    pub plan: &'a Value,
    /// Its workloads.
    pub workloads: &'a [Wanted],
    /// What became of its objects.
    pub applied: &'a [Applied],
}

/// The conditions, leaves first, then `Ready`.
#[must_use]
pub fn conditions(findings: &Findings<'_>) -> Vec<Condition> {
    let leaves = [runtime_resolved(findings.plan), accelerator_resolved(findings.plan), workloads_ready(findings)];
    let ready = match leaves.iter().find(|leaf| leaf.state != State::True) {
        Some(leaf) => Condition::new("Ready", false, leaf.reason.clone(), leaf.message.clone()),
        None => Condition::new("Ready", true, "Ready", "every component is ready"),
    };
    leaves.into_iter().chain([ready]).collect()
}

/// The whole status that the operator writes.
#[must_use]
pub fn status(findings: &Findings<'_>, conditions: &[Condition], now: Timestamp) -> Value {
    let Findings { service, plan, .. } = findings;
    let generation = generation(service);
    let mut status = json!({
        "observedGeneration": generation,
        "conditions": render(&service["status"]["conditions"], conditions, generation, now),
        "decision": decision::record(service, plan),
    });
    let components = components(findings);
    if let Some(url) = ["router", "engine"].iter().find_map(|name| components.get(*name)?.get("url")) {
        status["url"] = url.clone();
    }
    if !components.is_empty() {
        status["components"] = Value::Object(components);
    }
    status
}

/// The status of a service that cannot even be read.
#[must_use]
pub fn unreadable(service: &Value, problem: &str, now: Timestamp) -> (Vec<Condition>, Value) {
    let conditions = vec![Condition::new("Ready", false, "InvalidSpec", problem)];
    let generation = generation(service);
    let status = json!({
        "observedGeneration": generation,
        "conditions": render(&service["status"]["conditions"], &conditions, generation, now),
    });
    (conditions, status)
}

/// Reasons that are about classes although a runtime may be named.
const ACCELERATOR_REASONS: [&str; 12] = [
    "NoEligibleAccelerator",
    "UnknownClass",
    "NotSupportedByRuntime",
    "NotPreferred",
    "ExcludedClass",
    "NoMatchingNodes",
    "InsufficientMemory",
    "ComputeCapabilityTooLow",
    "MissingFeature",
    "BandwidthTooLow",
    "PerformanceTooLow",
    "ModelDoesNotFit",
];

fn runtime_resolved(plan: &Value) -> Condition {
    let (reason, message) = told(plan);
    if plan["feasible"] == true {
        let name = plan["runtime"]["name"].as_str();
        let message =
            name.map_or_else(|| "the service brings its own engine".to_owned(), |name| format!("runtime {name}"));
        return Condition::new("RuntimeResolved", true, "Selected", message);
    }
    if about_accelerators(plan) && plan["runtime"]["name"].is_string() {
        return Condition::new("RuntimeResolved", true, "Selected", "a runtime fits; its accelerators do not");
    }
    Condition::new("RuntimeResolved", false, reason, message)
}

fn accelerator_resolved(plan: &Value) -> Condition {
    let (reason, message) = told(plan);
    if plan["feasible"] != true {
        let code = if about_accelerators(plan) { reason } else { "RuntimeNotResolved" };
        return Condition::new("AcceleratorResolved", false, code, message);
    }
    let classes: Vec<String> = plan["components"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, component)| Some(format!("{name} on {}", component["acceleratorClass"].as_str()?)))
        .collect();
    if classes.is_empty() {
        return Condition::new(
            "AcceleratorResolved",
            true,
            "NotRequired",
            "no component asks for an accelerator class",
        );
    }
    Condition::new("AcceleratorResolved", true, "Selected", classes.join(", "))
}

fn about_accelerators(plan: &Value) -> bool {
    plan["reason"].as_str().is_some_and(|reason| ACCELERATOR_REASONS.contains(&reason))
}

fn told(plan: &Value) -> (&str, &str) {
    (plan["reason"].as_str().unwrap_or("Undecided"), plan["message"].as_str().unwrap_or_default())
}

fn workloads_ready(findings: &Findings<'_>) -> Condition {
    let not = |reason: &str, message: String| Condition::new("WorkloadsReady", false, reason, message);
    if findings.plan["feasible"] != true {
        return not("NotPlanned", "nothing runs until a runtime and its accelerators are found".to_owned());
    }
    if let Some((reason, message)) = obstacle(findings.applied) {
        return not(reason, message);
    }
    match findings.workloads.iter().filter_map(why_not).min() {
        Some(worst) => not(worst.code.as_str(), format!("{}: {}", worst.object, worst.message)),
        None => Condition::new("WorkloadsReady", true, "AllReady", "every workload is ready"),
    }
}

/// An object that could not be made as planned.
#[must_use]
pub fn obstacle(applied: &[Applied]) -> Option<(&'static str, String)> {
    applied.iter().find_map(|one| match &one.outcome {
        Outcome::Foreign(holder) => Some((
            "ObjectNotOurs",
            format!("{} belongs to {holder}; rename the service or delete that object", one.object),
        )),
        Outcome::KindMissing => {
            Some(("KindMissing", format!("the cluster does not serve {}; install it to run this service", one.kind)))
        }
        Outcome::Refused(message) => Some(("ObjectRefused", format!("{}: {message}", one.object))),
        _ => None,
    })
}

/// Why a planned workload is not ready, or `None` if it is.
#[must_use]
pub fn why_not(wanted: &Wanted) -> Option<Trouble> {
    match &wanted.live {
        Some(live) => trouble(&live.object, live.pods()),
        None => Some(Trouble {
            code: crate::readiness::Code::Starting,
            object: cluster::object::describe(&wanted.planned),
            message: "not made yet".to_owned(),
            failed: false,
        }),
    }
}

/// `status.components`: counts from the workloads, the class from the plan, the address from the planned Service.
fn components(findings: &Findings<'_>) -> Map<String, Value> {
    let planned = findings.plan["components"].as_object().into_iter().flatten();
    planned.map(|(name, choice)| (name.clone(), component(findings, name, choice))).collect()
}

fn component(findings: &Findings<'_>, name: &str, choice: &Value) -> Value {
    let label = |object: &Value| object["metadata"]["labels"]["component"] == name;
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
        component["selectedAccelerator"] = json!({"acceleratorClass": class, "reason": "Selected"});
    }
    let objects = findings.plan["objects"].as_array().into_iter().flatten();
    if let Some(url) = objects.filter(|object| object["kind"] == "Service" && label(object)).find_map(url) {
        component["url"] = url.into();
    }
    component
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
        let findings = Findings { service: &service, plan: &plan, workloads: &workloads, applied: &[] };
        let conditions = conditions(&findings);
        assert_eq!(
            short(&conditions),
            [
                "RuntimeResolved=True Selected",
                "AcceleratorResolved=True Selected",
                "WorkloadsReady=True AllReady",
                "Ready=True Ready"
            ]
        );
        let status = status(&findings, &conditions, Timestamp::UNIX_EPOCH);
        assert_eq!(status["url"], "http://chat-engine.n.svc.cluster.local:8080");
        assert_eq!(status["components"]["engine"]["readyReplicas"], 1);
        assert_eq!(status["components"]["engine"]["selectedAccelerator"]["acceleratorClass"], "h100");
        assert_eq!(status["decision"]["runtime"]["name"], "srt");
        assert_eq!(status["observedGeneration"], 3);
    }

    #[test]
    fn the_schedulers_words_reach_ready() {
        let pod = json!({"metadata": {"name": "p"}, "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}});
        let (service, plan, workloads) = (service(), plan(), [wanted(0, vec![pod])]);
        let conditions = conditions(&Findings { service: &service, plan: &plan, workloads: &workloads, applied: &[] });
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
        let conditions = conditions(&Findings { service: &service(), plan: &plan, workloads: &[], applied: &[] });
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
        let conditions =
            conditions(&Findings { service: &service(), plan: &plan(), workloads: &[], applied: &applied });
        assert_eq!(conditions[3].reason, "ObjectNotOurs");
        assert!(conditions[3].message.starts_with("Deployment n/chat-engine belongs to Job j"));
    }
}
