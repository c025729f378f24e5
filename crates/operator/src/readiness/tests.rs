use super::*;
use rstest::rstest;
use serde_json::json;

fn pod(name: &str, status: Value) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name, "namespace": "n"}, "status": status})
}

fn waiting_container(reason: &str, message: &str, restarts: i64) -> Value {
    json!({"phase": "Pending", "containerStatuses": [{"name": "main", "image": "img", "ready": false, "restartCount": restarts,
        "state": {"waiting": {"reason": reason, "message": message}}, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]})
}

fn unschedulable_pod() -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}]})
}

#[rstest]
#[case::image(
    waiting_container("ImagePullBackOff", "not found", 0),
    "ImagePullFailed",
    "image img of container main cannot be pulled: not found",
    true
)]
#[case::first_crashes(
    waiting_container("CrashLoopBackOff", "", 1),
    "CrashLoop",
    "container main ended with exit code 1 (Error) and was restarted once; see its logs",
    false
)]
#[case::many_crashes(
    waiting_container("CrashLoopBackOff", "", 5),
    "CrashLoop",
    "container main ended with exit code 1 (Error) and was restarted 5 times; see its logs",
    true
)]
#[case::config(
    waiting_container("CreateContainerConfigError", "no secret", 0),
    "ContainerCreateFailed",
    "container main: CreateContainerConfigError: no secret",
    true
)]
#[case::creating(waiting_container("ContainerCreating", "", 0), "Starting", "the Pod is being started", false)]
#[case::unschedulable(
    unschedulable_pod(),
    "Unschedulable",
    "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    false
)]
#[case::evicted(json!({"phase": "Failed", "reason": "Evicted", "message": "disk"}), "PodFailed", "Evicted: disk", true)]
#[case::up_again_after_a_crash(json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false, "restartCount": 1,
    "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
    "CrashLoop", "container main ended with exit code 1 (Error) and was restarted once; see its logs", false)]
#[case::probing(json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false, "state": {"running": {}}}]}),
    "NotReadyYet", "main runs and does not answer its readiness probe yet", false)]
fn why_a_pod_is_not_ready(#[case] status: Value, #[case] code: &str, #[case] message: &str, #[case] failed: bool) {
    let trouble = pod_trouble(&pod("p", status)).unwrap();
    assert_eq!((trouble.code.as_str(), trouble.message.as_str(), trouble.failed), (code, message, failed));
}

#[rstest]
#[case::named(json!({"httpGet": {"path": "/health", "port": 8080}}), json!(["--port=8080"]), " (GET /health on port 8080)")]
#[case::other(json!({"httpGet": {"path": "/health", "port": "http"}}), json!(["--port", "8000"]),
    " (GET /health on port 8080, which its command line does not name)")]
#[case::unsaid(json!({"tcpSocket": {"port": 8080}}), json!(["serve"]), " (port 8080, which its command line does not name)")]
#[case::the_images_own(json!({"grpc": {"port": 8080}}), json!([]), " (gRPC on port 8080, which its command line does not name)")]
#[case::a_program(json!({"exec": {"command": ["true"]}}), json!(["serve"]), "")]
fn what_is_asked_of_a_container(#[case] probe: Value, #[case] args: Value, #[case] told: &str) {
    let status =
        json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false, "state": {"running": {}}}]});
    let mut pod = pod("p", status);
    pod["spec"]["containers"] = json!([{"name": "main", "args": args, "readinessProbe": probe,
        "ports": [{"name": "http", "containerPort": 8080}]}]);
    let message = pod_trouble(&pod).unwrap().message;
    assert_eq!(message, format!("main runs and does not answer its readiness probe yet{told}"));
}

#[test]
fn a_ready_or_leaving_pod_is_no_trouble() {
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    assert_eq!(pod_trouble(&pod("p", ready.clone())), None);
    let mut leaving = pod("p", unschedulable_pod());
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(pod_trouble(&leaving), None);
    let mut ready_leaving = pod("p", ready);
    ready_leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(!pod_ready(&ready_leaving));
}

fn deployment(generation: i64, replicas: i64, status: Value) -> Value {
    json!({"kind": "Deployment", "metadata": {"name": "d", "namespace": "n", "generation": generation},
        "spec": {"replicas": replicas}, "status": status})
}

#[rstest]
#[case::ready(deployment(1, 1, json!({"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": 1})), None)]
#[case::zero(deployment(1, 0, json!({"observedGeneration": 1})), None)]
#[case::not_seen(deployment(2, 1, json!({"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": 1})), Some(Code::Starting))]
#[case::rolling(deployment(2, 2, json!({"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 2})), Some(Code::RollingOut))]
// The ready one is the old one.
#[case::the_old_one_answers(deployment(2, 1, json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 1})),
    Some(Code::RollingOut))]
#[case::the_old_one_still_runs(deployment(2, 1, json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 2})),
    Some(Code::RollingOut))]
#[case::more_than_wanted(deployment(1, 1, json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2})), None)]
#[case::no_status(deployment(1, 1, Value::Null), Some(Code::Starting))]
#[case::quota(deployment(1, 1, json!({"observedGeneration": 1, "conditions": [{"type": "ReplicaFailure", "status": "True", "message": "quota"}]})),
    Some(Code::PodsNotCreated))]
fn a_workload_without_pods(#[case] workload: Value, #[case] expect: Option<Code>) {
    assert_eq!(trouble(&workload, []).map(|trouble| trouble.code), expect);
}

/// After an undo the Pod of the broken revision is still there for a while.
#[rstest]
#[case::not_taken_in(1, 1, 1, "its controller has not taken in the change yet")]
#[case::not_replaced_yet(2, 1, 0, "0 of 1 replicas are ready")]
#[case::replaced(2, 1, 1, "x")]
#[case::counts_come_later(2, 0, 0, "x")]
fn pods_of_another_revision_say_nothing(
    #[case] observed: i64,
    #[case] existing: i64,
    #[case] updated: i64,
    #[case] told: &str,
) {
    let status = json!({"observedGeneration": observed, "replicas": existing, "updatedReplicas": updated});
    let broken = pod("p", waiting_container("CreateContainerConfigError", "x", 0));
    let message = trouble(&deployment(2, 1, status), [&broken]).unwrap().message;
    assert!(message.ends_with(told), "{message}");
}

#[test]
fn what_is_being_deleted_is_not_there() {
    let mut workload = deployment(1, 1, json!({"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": 1}));
    workload["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let trouble = trouble(&workload, []).unwrap();
    assert_eq!(
        (trouble.code, trouble.message.as_str()),
        (Code::Starting, "it is being deleted and will be made again")
    );
}

#[test]
fn the_most_urgent_trouble_is_told_and_ties_go_by_name() {
    let workload = deployment(1, 3, json!({"observedGeneration": 1}));
    let pods = [
        pod("c", unschedulable_pod()),
        pod("b", waiting_container("ErrImagePull", "x", 0)),
        pod("a", waiting_container("ErrImagePull", "y", 0)),
    ];
    assert_eq!(trouble(&workload, &pods).unwrap().object, "Pod a");
}

#[test]
fn whose_room_is_missing_is_told_before_who_waits_for_it() {
    let mut would_fit = pod("a", unschedulable_pod());
    would_fit["status"]["conditions"][0]["reason"] = json!("Schedulable");
    let workload = deployment(1, 2, json!({"observedGeneration": 1}));
    assert_eq!(trouble(&workload, &[would_fit, pod("b", unschedulable_pod())]).unwrap().object, "Pod b");
}
