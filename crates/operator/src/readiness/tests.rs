use cluster::{NamespacedName, Stores};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::condition_reason::{ConditionReason, WorkloadReason};
use crate::kinds::POD;

fn pod(name: &str, status: Value) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name, "namespace": "n"}, "status": status})
}

fn waiting_container(reason: &str, message: &str, restarts: i64) -> Value {
    json!({"phase": "Pending", "containerStatuses": [{"name": "main", "image": "img", "ready": false, "restartCount": restarts,
        "state": {"waiting": {"reason": reason, "message": message}}, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]})
}

#[rstest]
#[case::kueue(
    "kueue.x-k8s.io/admission",
    json!({"kueue.x-k8s.io/queue-name": "team-a"}),
    "WaitingForQuota",
    "waiting for quota: Kueue has not admitted the Pod to LocalQueue team-a; run `kubectl describe \
     localqueues.kueue.x-k8s.io team-a -n n` to see its use and the ClusterQueue that sets the quota"
)]
#[case::kueue_without_queue(
    "kueue.x-k8s.io/topology",
    json!({}),
    "WaitingForQuota",
    "waiting for quota: Kueue has not admitted the Pod; run `kubectl get workloads.kueue.x-k8s.io -n n` to see what waits"
)]
#[case::other_gate("example.com/wait", json!({}), "SchedulingGated", "waiting for its scheduling gates: example.com/wait")]
fn gated_pod_names_what_it_waits_for(
    #[case] gate: &str,
    #[case] labels: Value,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let gated = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gates"});
    let mut pod = pod("p", json!({"phase": "Pending", "conditions": [gated]}));
    pod["metadata"]["labels"] = labels;
    pod["spec"] = json!({"schedulingGates": [{"name": gate}]});
    let problem = pod_problem(&pod).unwrap();
    assert_eq!((problem.reason.as_str(), problem.message.as_str(), problem.failed), (reason, message, false));
    // The scheduler has not observed yet that the gates were removed.
    pod["spec"]["schedulingGates"] = json!([]);
    assert_eq!(pod_problem(&pod).unwrap().reason, WorkloadReason::Starting);
}

fn unschedulable_pod() -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}]})
}

#[rstest]
#[case::image_pull(
    waiting_container("ImagePullBackOff", "not found", 0),
    "ImagePullFailed",
    "failed to pull image img of container main: not found",
    true
)]
#[case::first_crash(
    waiting_container("CrashLoopBackOff", "", 1),
    "CrashLoop",
    "container main terminated with exit code 1 (Error) and restarted once; see its logs",
    false
)]
#[case::many_crashes(
    waiting_container("CrashLoopBackOff", "", 5),
    "CrashLoop",
    "container main terminated with exit code 1 (Error) and restarted 5 times; see its logs",
    true
)]
#[case::missing_secret(
    waiting_container("CreateContainerConfigError", "no secret", 0),
    "ContainerCreateFailed",
    "failed to create container main: CreateContainerConfigError: no secret",
    true
)]
#[case::creating(waiting_container("ContainerCreating", "", 0), "Starting", "the Pod is starting", false)]
#[case::unschedulable(
    unschedulable_pod(),
    "Unschedulable",
    "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    false
)]
#[case::evicted(json!({"phase": "Failed", "reason": "Evicted", "message": "disk"}), "PodFailed", "Evicted: disk", true)]
#[case::restarted_after_crash(json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false, "restartCount": 1,
    "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
    "CrashLoop", "container main terminated with exit code 1 (Error) and restarted once; see its logs", false)]
#[case::not_restarted_yet(json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false, "restartCount": 0,
    "state": {"terminated": {"exitCode": 3, "reason": "Error"}}, "lastState": {}}]}),
    "CrashLoop", "container main terminated with exit code 3 (Error); see its logs", false)]
#[case::probing(json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false, "state": {"running": {}}}]}),
    "NotReadyYet", "container main is running but its readiness probe does not succeed yet", false)]
fn reports_why_a_pod_is_not_ready(
    #[case] status: Value,
    #[case] code: &str,
    #[case] message: &str,
    #[case] failed: bool,
) {
    let workload_problem = pod_problem(&pod("p", status)).unwrap();
    assert_eq!(
        (ConditionReason::from(&workload_problem).as_str(), workload_problem.message.as_str(), workload_problem.failed),
        (code, message, failed)
    );
}

/// Columns: whether the container is ready, reason of condition `Ready`, expected reason.
#[rstest]
#[case::lost_node(true, "", "NodeNotReady")]
#[case::readiness_gate(true, "ReadinessGatesNotReady", "NotReadyYet")]
#[case::readiness_probe(false, "ContainersNotReady", "NotReadyYet")]
fn unready_node_is_named(#[case] is_container_ready: bool, #[case] reason: &str, #[case] expected: &str) {
    let ready = json!({"type": "Ready", "status": "False", "reason": reason});
    let container = json!({"name": "main", "ready": is_container_ready, "state": {"running": {}}});
    let mut pod = pod("p", json!({"phase": "Running", "conditions": [ready], "containerStatuses": [container]}));
    pod["spec"]["nodeName"] = json!("gpu-a");
    let problem = pod_problem(&pod).unwrap();
    assert_eq!(problem.reason.as_str(), expected);
    assert_eq!(
        problem.message.starts_with("node gpu-a is not ready"),
        expected == "NodeNotReady",
        "{}",
        problem.message
    );
}

#[rstest]
#[case::port_in_arguments(json!({"httpGet": {"path": "/health", "port": 8080}}), json!(["--port=8080"]), " (GET /health on port 8080)")]
#[case::another_port_in_arguments(json!({"httpGet": {"path": "/health", "port": "http"}}), json!(["--port", "8000"]),
    " (GET /health on port 8080, which its command line does not mention)")]
#[case::no_port_in_arguments(json!({"tcpSocket": {"port": 8080}}), json!(["serve"]), " (port 8080, which its command line does not mention)")]
#[case::no_arguments(json!({"grpc": {"port": 8080}}), json!([]), " (gRPC on port 8080, which its command line does not mention)")]
#[case::exec_probe(json!({"exec": {"command": ["true"]}}), json!(["serve"]), "")]
fn describes_the_probe_target(#[case] probe: Value, #[case] args: Value, #[case] suffix: &str) {
    let status =
        json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false, "state": {"running": {}}}]});
    let mut pod = pod("p", status);
    pod["spec"]["containers"] = json!([{"name": "main", "args": args, "readinessProbe": probe,
        "ports": [{"name": "http", "containerPort": 8080}]}]);
    let message = pod_problem(&pod).unwrap().message;
    assert_eq!(message, format!("container main is running but its readiness probe does not succeed yet{suffix}"));
}

#[test]
fn ready_or_terminating_pod_has_no_problem() {
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    assert_eq!(pod_problem(&pod("p", ready.clone())), None);
    let mut terminating_pod = pod("p", unschedulable_pod());
    terminating_pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(pod_problem(&terminating_pod), None);
    let mut ready_terminating_pod = pod("p", ready);
    ready_terminating_pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(!is_pod_ready(&ready_terminating_pod));
}

fn deployment(generation: i64, replicas: i64, status: Value) -> Value {
    json!({"kind": "Deployment", "metadata": {"name": "d", "namespace": "n", "generation": generation},
        "spec": {"replicas": replicas}, "status": status})
}

#[rstest]
#[case::ready(deployment(1, 1, json!({"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": 1})), None)]
#[case::zero(deployment(1, 0, json!({"observedGeneration": 1})), None)]
#[case::not_observed(deployment(2, 1, json!({"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": 1})), Some(WorkloadReason::Starting))]
#[case::rolling(deployment(2, 2, json!({"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 2})), Some(WorkloadReason::RollingOut))]
// The ready replica belongs to the old revision.
#[case::only_old_replica_ready(deployment(2, 1, json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 1})),
    Some(WorkloadReason::RollingOut))]
#[case::old_replica_remains(deployment(2, 1, json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 2})),
    Some(WorkloadReason::RollingOut))]
#[case::surplus_replicas(deployment(1, 1, json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2})), None)]
#[case::no_status(deployment(1, 1, Value::Null), Some(WorkloadReason::Starting))]
#[case::quota(deployment(1, 1, json!({"observedGeneration": 1, "conditions": [{"type": "ReplicaFailure", "status": "True", "message": "quota"}]})),
    Some(WorkloadReason::PodsNotCreated))]
fn workload_without_pods(#[case] workload: Value, #[case] expect: Option<WorkloadReason>) {
    assert_eq!(workload_problem(&workload, []).map(|workload_problem| workload_problem.reason), expect);
}

/// After an undo, a Pod of the broken revision remains for a while.
#[rstest]
#[case::not_observed(1, 1, 1, "waiting for its controller to observe generation 2")]
#[case::not_updated(2, 1, 0, "0 of 1 replica is ready")]
#[case::updated(2, 1, 1, "x")]
#[case::no_counts_yet(2, 0, 0, "x")]
fn ignores_pods_of_other_revisions(
    #[case] observed: i64,
    #[case] existing: i64,
    #[case] updated: i64,
    #[case] expect: &str,
) {
    let status = json!({"observedGeneration": observed, "replicas": existing, "updatedReplicas": updated});
    let failing = pod("p", waiting_container("CreateContainerConfigError", "x", 0));
    let message = workload_problem(&deployment(2, 1, status), [&failing]).unwrap().message;
    assert!(message.ends_with(expect), "{message}");
}

/// While the fixed revision starts, the broken Pod of the earlier revision still exists.
#[rstest]
#[case::other_arguments("--broken", "--fixed", "i")]
#[case::other_field_which_the_cache_lacks("--fixed", "--fixed", "i")]
#[case::images_modified_by_a_webhook("--broken", "--fixed", "mirror/i")]
fn ignores_the_broken_pod_of_an_earlier_revision(#[case] old_args: &str, #[case] new_args: &str, #[case] image: &str) {
    let containers = |image: &str, args: &str| json!([{"name": "c", "image": image, "args": [args]}]);
    let of_revision = |mut pod: Value, hash: &str, created: &str, args: &str| {
        pod["metadata"]["labels"] = json!({"pod-template-hash": hash});
        pod["metadata"]["creationTimestamp"] = json!(created);
        pod["spec"]["containers"] = containers(image, args);
        pod
    };
    let mut workload = deployment(2, 1, json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1}));
    workload["spec"]["template"]["spec"]["containers"] = containers("i", "--fixed");
    let broken = pod("old", waiting_container("CrashLoopBackOff", "x", 9));
    let old_pod = of_revision(broken, "1", "2026-01-01T00:00:00Z", old_args);
    let new_pod = of_revision(pod("new", unschedulable_pod()), "2", "2026-01-01T00:01:00Z", new_args);
    assert_eq!(workload_problem(&workload, [&old_pod, &new_pod]).unwrap().object, "Pod new");
    assert_eq!(
        workload_problem(&workload, [&old_pod]).unwrap().object,
        "Deployment n/d",
        "the new Pod is not observed yet"
    );
}

/// Both revisions have the same images and arguments.
#[rstest]
#[case::condition_names_the_last_pod("d-2", "Pod new")]
#[case::condition_names_the_first_pod("d-1", "Pod old")]
fn pods_created_within_one_second_differ_by_their_replica_set(#[case] current: &str, #[case] expected: &str) {
    let of_revision = |mut pod: Value, hash: &str| {
        let owner = json!({"kind": "ReplicaSet", "name": format!("d-{hash}"), "uid": hash, "controller": true});
        pod["metadata"]["ownerReferences"] = json!([owner]);
        pod["metadata"]["labels"] = json!({"pod-template-hash": hash});
        pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod
    };
    let mut workload = deployment(2, 1, json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1}));
    workload["status"]["conditions"] =
        json!([{"type": "Progressing", "message": format!("ReplicaSet \"{current}\" is progressing.")}]);
    let failing = |name: &str| pod(name, waiting_container("CreateContainerConfigError", "x", 0));
    let (old, new) = (of_revision(failing("old"), "1"), of_revision(failing("new"), "2"));
    assert_eq!(workload_problem(&workload, [&old, &new]).unwrap().object, expected);
    assert_eq!(workload_problem(&workload, [&new, &old]).unwrap().object, expected);
}

/// The template was reverted, so that the current revision is the older one.
#[test]
fn pods_of_a_restored_revision_differ_by_their_environment() {
    let template = json!({"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "working"}]}]}});
    let of_revision = |mut pod: Value, hash: &str, created: &str, env: Value| {
        pod["metadata"]["labels"] = json!({"pod-template-hash": hash});
        pod["metadata"]["creationTimestamp"] = json!(created);
        pod["spec"] = json!({"containers": [{"name": "c", "env": env}]});
        let stores = Stores::new("us");
        stores.replace_all(POD, vec![pod.clone()]);
        (*stores.get(POD, &NamespacedName::from_object(&pod)).unwrap()).clone()
    };
    let env = template["spec"]["containers"][0]["env"].clone();
    let current = of_revision(pod("current", unschedulable_pod()), "1", "2026-01-01T00:00:00Z", env);
    let broken = pod("broken", waiting_container("CreateContainerConfigError", "x", 0));
    let broken = of_revision(broken, "2", "2026-01-01T00:01:00Z", json!([{"name": "A", "value": "broken"}]));
    let mut workload = deployment(2, 1, json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1}));
    workload["spec"]["template"] = template;
    assert_eq!(workload_problem(&workload, [&current, &broken]).unwrap().object, "Pod current");
}

#[test]
fn terminating_workload_is_not_ready() {
    let mut workload = deployment(1, 1, json!({"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": 1}));
    workload["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let workload_problem = workload_problem(&workload, []).unwrap();
    assert_eq!(
        (workload_problem.reason, workload_problem.message.as_str()),
        (WorkloadReason::Starting, "waiting for its deletion; it will then be recreated")
    );
}

#[test]
fn reports_most_urgent_problem_and_breaks_ties_by_name() {
    let workload = deployment(1, 3, json!({"observedGeneration": 1}));
    let pods = [
        pod("c", unschedulable_pod()),
        pod("b", waiting_container("ErrImagePull", "x", 0)),
        pod("a", waiting_container("ErrImagePull", "y", 0)),
    ];
    assert_eq!(workload_problem(&workload, &pods).unwrap().object, "Pod a");
}

#[test]
fn reports_unschedulable_pod_before_pod_that_waits_for_its_group() {
    let mut pod_waiting_for_group = pod("a", unschedulable_pod());
    pod_waiting_for_group["status"]["conditions"][0]["reason"] = json!("Schedulable");
    let workload = deployment(1, 2, json!({"observedGeneration": 1}));
    assert_eq!(
        workload_problem(&workload, &[pod_waiting_for_group, pod("b", unschedulable_pod())]).unwrap().object,
        "Pod b"
    );
}
