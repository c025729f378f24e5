use std::sync::{Arc, LazyLock};

use cluster::{ApplyOutcome, ApplyResult, NamespacedName, ObjectOwner};
use decide::{ComponentDecision, RuntimeRef, Warning};

use super::*;
use crate::replacement::Replacement;
use crate::workloads::LiveWorkload;

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

fn infeasible_plan() -> ServicePlan {
    let (reason, message) = ("NoCompatibleRuntime".to_owned(), "none of 4".to_owned());
    ServicePlan { reason, message, ..ServicePlan::default() }
}

fn workload(ready: i64, pods: Vec<Value>) -> PlannedWorkload {
    let planned = json!({"kind": "Deployment", "metadata": {"name": "chat-engine", "namespace": "n", "labels": {"component": "engine"}}});
    let mut object = planned.clone();
    object["spec"] = json!({"replicas": 1});
    object["status"] = json!({"readyReplicas": ready, "updatedReplicas": 1});
    PlannedWorkload {
        planned,
        live: Some(LiveWorkload {
            object: Arc::new(object),
            pods: pods.into_iter().map(Arc::new).collect(),
            providers: Vec::new(),
        }),
        recent_crashes: 0,
        gang_creation_end: None,
    }
}

/// Returns observations of a service whose workloads are not replaced.
fn observations<'a>(
    service: &'a Value,
    plan: &'a ServicePlan,
    workloads: &'a [PlannedWorkload],
) -> OmeObservations<'a> {
    static NO_REPLACEMENT: LazyLock<Replacement> = LazyLock::new(Replacement::default);
    OmeObservations {
        service,
        plan,
        better_plan: None,
        full_class: None,
        workloads,
        applied: &[],
        replacement: &NO_REPLACEMENT,
        services: &[],
        shared_model_name: None,
    }
}

fn summaries(conditions: &[Condition]) -> Vec<String> {
    conditions
        .iter()
        .map(|condition| format!("{}={} {}", condition.type_, condition.status.as_str(), condition.reason))
        .collect()
}

#[test]
fn ready_service() {
    let (service, plan, workloads) = (service(), plan(), [workload(1, vec![])]);
    let observations = observations(&service, &plan, &workloads);
    let StatusReport { conditions, status, .. } = report(&observations, Timestamp::UNIX_EPOCH);
    assert_eq!(
        summaries(&conditions),
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

fn events(service: &Value, plan: &ServicePlan, workloads: &[PlannedWorkload]) -> (Vec<String>, Value) {
    let report = report(&observations(service, plan, workloads), Timestamp::UNIX_EPOCH);
    let events = report.all_events(service);
    let kind = |warning| if warning { "Warning" } else { "Normal" };
    (events.iter().map(|event| format!("{} {}", kind(event.warning), event.reason)).collect(), report.status)
}

#[test]
fn normal_start_emits_two_normal_events() {
    let pod = |status: Value| json!({"metadata": {"name": "p"}, "status": status});
    let starting = pod(json!({"phase": "Pending"}));
    let probing = pod(json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false}]}));
    let (mut service, mut all_events) = (service(), Vec::new());
    for (ready, pods) in
        [(0, vec![]), (0, vec![starting.clone()]), (0, vec![probing]), (0, vec![starting]), (1, vec![])]
    {
        let (events, status) = events(&service, &plan(), &[workload(ready, pods)]);
        all_events.extend(events);
        service["status"] = status;
    }
    assert_eq!(all_events, ["Normal Selected", "Normal Ready"]);
}

#[test]
fn infeasible_plan_emits_one_warning_and_its_recovery_an_event() {
    let infeasible = infeasible_plan();
    let mut service = service();
    let (first_events, status) = events(&service, &infeasible, &[]);
    assert_eq!(first_events, ["Warning NoCompatibleRuntime"]);
    service["status"] = status;
    assert_eq!(events(&service, &infeasible, &[]).0, [""; 0]);
    assert_eq!(events(&service, &plan(), &[workload(1, vec![])]).0, ["Normal Selected", "Normal Ready"]);
}

/// After an invalid edit, the status describes the workloads that continue to run.
#[test]
fn infeasible_plan_retains_the_components_of_existing_workloads() {
    let (mut service, plan, workloads) = (service(), infeasible_plan(), [workload(1, vec![])]);
    let accelerator = json!({"acceleratorClass": "h100"});
    service["status"]["components"] = json!({"engine": {"readyReplicas": 0, "selectedAccelerator": accelerator}});
    let live_service = json!({"kind": "Service", "metadata": {"name": "chat-engine", "namespace": "n",
        "labels": {"component": "engine"}}, "spec": {"ports": [{"port": 8080}]}});
    let observations = OmeObservations { services: &[live_service], ..observations(&service, &plan, &workloads) };
    let StatusReport { conditions, status, .. } = report(&observations, Timestamp::UNIX_EPOCH);
    let url = "http://chat-engine.n.svc.cluster.local:8080";
    let engine = json!({"replicas": 1, "readyReplicas": 1, "selectedAccelerator": accelerator});
    assert_eq!((&status["components"], &status["url"]), (&json!({"engine": engine}), &json!(url)));
    let message =
        "Deployment n/chat-engine retains its previous spec until a runtime and its accelerators are resolved";
    assert_eq!(conditions[2].message, message);
}

#[test]
fn reports_better_plan() {
    let (service, plan, better_plan) =
        (service(), plan(), ServicePlan { message: "x on 1 × l40s".to_owned(), ..plan() });
    let workloads = [workload(1, vec![])];
    let observations = OmeObservations { better_plan: Some(&better_plan), ..observations(&service, &plan, &workloads) };
    let conditions = conditions(&observations);
    assert_eq!(summaries(&conditions)[3..], ["DecisionStale=True BetterChoice", "Ready=True Ready"]);
    assert!(conditions[3].message.contains("x on 1 × l40s") && conditions[3].message.contains("ostler redecide"));
}

#[test]
fn missing_autoscaler_is_a_condition_and_one_event() {
    let (service, mut plan, workloads) = (service(), plan(), [workload(1, vec![])]);
    plan.warnings = vec![Warning::new(
        plan::code::warning::AUTOSCALER_UNAVAILABLE,
        "The engine cannot be scaled as requested: scaleMetric rps requires KEDA",
    )];
    let observations = observations(&service, &plan, &workloads);
    let conditions = conditions(&observations);
    assert_eq!(summaries(&conditions)[3..], ["AutoscalerUnavailable=True AutoscalerUnavailable", "Ready=True Ready"]);
    assert_eq!(conditions[3].message, "The engine cannot be scaled as requested: scaleMetric rps requires KEDA");
    let events = events(&service, &plan, &workloads).0;
    assert_eq!(events, ["Normal Selected", "Warning AutoscalerUnavailable", "Normal Ready"]);
}

#[test]
fn crash_loop_is_failed_and_emits_one_event() {
    let crashed = |restarts: i64| {
        json!({"metadata": {"name": "p"}, "status": {"phase": "Running", "containerStatuses": [{
            "name": "e", "ready": false, "restartCount": restarts, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}})
    };
    let (service, plan) = (service(), plan());
    let conditions_and_events = |restarts| {
        let workloads = [workload(0, vec![crashed(restarts)])];
        let observations = observations(&service, &plan, &workloads);
        (summaries(&conditions(&observations))[2..].to_vec(), events(&service, &plan, &workloads).0)
    };
    let (once, repeatedly) = (conditions_and_events(1), conditions_and_events(3));
    assert_eq!(once.0, ["WorkloadsReady=False CrashLoop", "Ready=False CrashLoop"]);
    assert_eq!(repeatedly.0, ["WorkloadsReady=False CrashLoop", "Failed=True CrashLoop", "Ready=False CrashLoop"]);
    assert_eq!((once.1, repeatedly.1[1..].to_vec()), (repeatedly.1.clone(), vec!["Warning CrashLoop".to_owned()]));
}

#[test]
fn reports_router_separately_from_engines() {
    let (service, mut plan) = (service(), plan());
    plan.components.insert("router".to_owned(), ComponentDecision::default());
    let mut router = workload(0, vec![]);
    router.planned["metadata"] = json!({"name": "chat-router", "namespace": "n", "labels": {"component": "router"}});
    let workloads = [workload(1, vec![]), router];
    let observations = observations(&service, &plan, &workloads);
    let summaries_of_conditions = summaries(&conditions(&observations));
    assert_eq!(
        summaries_of_conditions[2..],
        ["WorkloadsReady=True AllReady", "RouterReady=False Starting", "Ready=False Starting"]
    );
}

#[test]
fn ready_contains_the_scheduler_message() {
    let pod = json!({"metadata": {"name": "p"}, "status": {"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}});
    let (service, plan, workloads) = (service(), plan(), [workload(0, vec![pod])]);
    let conditions = conditions(&observations(&service, &plan, &workloads));
    let ready = &conditions[3];
    assert_eq!((ready.reason.as_str(), ready.message.as_str()), ("Unschedulable", "Pod p: 0/3 nodes are available"));
}

// spec: RT-67
#[test]
fn reports_missing_runtime() {
    let plan = infeasible_plan();
    let conditions = conditions(&observations(&service(), &plan, &[]));
    assert_eq!(summaries(&conditions)[0], "RuntimeResolved=False NoCompatibleRuntime");
    assert_eq!(summaries(&conditions)[3], "Ready=False NoCompatibleRuntime");
}

#[test]
fn apply_failure_names_the_object() {
    let applied = [ApplyResult {
        kind: "Deployment".to_owned(),
        key: NamespacedName::new("n", "chat-engine"),
        outcome: ApplyOutcome::NotOwned(ObjectOwner::Controller { kind: "Job".to_owned(), name: "j".to_owned() }),
    }];
    let conditions = conditions(&OmeObservations { applied: &applied, ..observations(&service(), &plan(), &[]) });
    assert_eq!(conditions[3].reason, "ObjectNotOurs");
    assert!(conditions[3].message.starts_with("Deployment n/chat-engine is owned by Job j"));
}
