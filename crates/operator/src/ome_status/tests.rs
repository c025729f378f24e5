use std::sync::Arc;

use cluster::apply::Outcome;
use decide::decision::{ComponentDecision, RuntimeRef};
use decide::reason::Warning;

use super::*;
use crate::readings::Workload;

fn service() -> Value {
    json!({"metadata": {"name": "chat", "namespace": "n", "generation": 3}, "status": {}})
}

fn plan() -> ServicePlan {
    let engine = ComponentDecision {
        accelerator_class: Some("h100".to_owned()),
        nodes: 1,
        replicas: 1,
        ..ComponentDecision::default()
    };
    let service = json!({"kind": "Service", "metadata": {"name": "chat-engine", "namespace": "n",
        "labels": {"component": "engine"}}, "spec": {"ports": [{"port": 8080}]}});
    ServicePlan {
        feasible: true,
        reason: "Selected".to_owned(),
        message: "m".to_owned(),
        runtime: Some(RuntimeRef { name: "srt".to_owned(), scope: decide::Scope::Cluster }),
        components: [("engine".to_owned(), engine)].into(),
        objects: vec![service],
        ..ServicePlan::default()
    }
}

fn refused() -> ServicePlan {
    let (reason, message) = ("NoCompatibleRuntime".to_owned(), "none of 4".to_owned());
    ServicePlan { reason, message, ..ServicePlan::default() }
}

fn wanted(ready: i64, pods: Vec<Value>) -> Wanted {
    let planned = json!({"kind": "Deployment", "metadata": {"name": "chat-engine", "namespace": "n", "labels": {"component": "engine"}}});
    let mut object = planned.clone();
    object["spec"] = json!({"replicas": 1});
    object["status"] = json!({"readyReplicas": ready, "updatedReplicas": 1});
    Wanted {
        planned,
        live: Some(Workload { object: Arc::new(object), pods: pods.into_iter().map(Arc::new).collect() }),
        crashes: 0,
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

fn events(service: &Value, plan: &ServicePlan, workloads: &[Wanted]) -> (Vec<String>, Value) {
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
    let refused = refused();
    let mut service = service();
    let (told, status) = events(&service, &refused, &[]);
    assert_eq!(told, ["Warning NoCompatibleRuntime"]);
    service["status"] = status;
    assert_eq!(events(&service, &refused, &[]).0, [""; 0]);
    assert_eq!(events(&service, &plan(), &[wanted(1, vec![])]).0, ["Normal Selected", "Normal Ready"]);
}

#[test]
fn a_better_choice_is_shown_while_there_is_one() {
    let (service, plan, better) = (service(), plan(), ServicePlan { message: "x on 1 × l40s".to_owned(), ..plan() });
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
    plan.warnings = vec![Warning::new(plan::code::warning::AUTOSCALER_UNAVAILABLE, "engine: rps needs KEDA")];
    let findings = Findings { service: &service, plan: &plan, better: None, workloads: &workloads, applied: &[] };
    let told = conditions(&findings);
    assert_eq!(short(&told)[3..], ["AutoscalerUnavailable=True AutoscalerUnavailable", "Ready=True Ready"]);
    assert_eq!(told[3].message, "engine: rps needs KEDA");
    let events = events(&service, &plan, &workloads).0;
    assert_eq!(events, ["Normal Selected", "Warning AutoscalerUnavailable", "Normal Ready"]);
}

#[test]
fn what_does_not_come_right_by_itself_has_failed_and_is_one_event() {
    let crashed = |restarts: i64| {
        json!({"metadata": {"name": "p"}, "status": {"phase": "Running", "containerStatuses": [{
            "name": "e", "ready": false, "restartCount": restarts, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}})
    };
    let (service, plan) = (service(), plan());
    let told = |restarts| {
        let workloads = [wanted(0, vec![crashed(restarts)])];
        let findings = Findings { service: &service, plan: &plan, better: None, workloads: &workloads, applied: &[] };
        (short(&conditions(&findings))[2..].to_vec(), events(&service, &plan, &workloads).0)
    };
    let (once, often) = (told(1), told(3));
    assert_eq!(once.0, ["WorkloadsReady=False CrashLoop", "Ready=False CrashLoop"]);
    assert_eq!(often.0, ["WorkloadsReady=False CrashLoop", "Failed=True CrashLoop", "Ready=False CrashLoop"]);
    assert_eq!((once.1, often.1[1..].to_vec()), (often.1.clone(), vec!["Warning CrashLoop".to_owned()]));
}

#[test]
fn a_router_that_is_not_ready_is_told_apart_from_the_engines() {
    let (service, mut plan) = (service(), plan());
    plan.components.insert("router".to_owned(), ComponentDecision::default());
    let mut router = wanted(0, vec![]);
    router.planned["metadata"] = json!({"name": "chat-router", "namespace": "n", "labels": {"component": "router"}});
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
    assert_eq!((ready.reason.as_str(), ready.message.as_str()), ("Unschedulable", "Pod p: 0/3 nodes are available"));
}

// spec: RT-67
#[test]
fn no_runtime() {
    let plan = refused();
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
    let conditions =
        conditions(&Findings { service: &service(), plan: &plan(), better: None, workloads: &[], applied: &applied });
    assert_eq!(conditions[3].reason, "ObjectNotOurs");
    assert!(conditions[3].message.starts_with("Deployment n/chat-engine belongs to Job j"));
}
