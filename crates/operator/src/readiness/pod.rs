//! Problems of a Pod.

use cluster::{find_condition, is_terminating, metadata_field};
use plan::labels::KUEUE_QUEUE;
use serde_json::Value;

use super::container::{Diagnosis, container_problem, containers, readiness_probe_target};
use super::problem::WorkloadProblem;
use crate::condition_reason::WorkloadReason;

/// Prefix of the scheduling gates of Kueue.
const KUEUE_GATES: &str = "kueue.x-k8s.io/";

/// Returns whether the Pod is ready and not terminating.
#[must_use]
pub(crate) fn is_pod_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True") && !is_terminating(pod)
}

/// Returns the most urgent problem of a Pod, or `None` if it is ready or terminating.
#[must_use]
pub fn pod_problem(pod: &Value) -> Option<WorkloadProblem> {
    if is_pod_ready(pod) || is_terminating(pod) {
        return None;
    }
    let (reason, message, failed) = failed_pod(pod)
        .or_else(|| containers(pod).filter_map(container_problem).min())
        .or_else(|| gated_pod(pod))
        .or_else(|| unschedulable_pod(pod))
        .or_else(|| pod_of_unready_node(pod))
        .unwrap_or_else(|| starting_pod(pod));
    let waits_for_group = reason == WorkloadReason::Unschedulable && waits_for_pod_group(pod);
    let object = format!("Pod {}", metadata_field(pod, "name"));
    Some(WorkloadProblem { reason, waits_for_group, object, message, failed })
}

fn failed_pod(pod: &Value) -> Option<Diagnosis> {
    let status = &pod["status"];
    let details =
        [&status["reason"], &status["message"]].into_iter().filter_map(Value::as_str).collect::<Vec<_>>().join(": ");
    (status["phase"] == "Failed").then(|| {
        (WorkloadReason::PodFailed, if details.is_empty() { "the Pod failed".to_owned() } else { details }, true)
    })
}

/// Reports a Pod with scheduling gates, which the scheduler ignores.
fn gated_pod(pod: &Value) -> Option<Diagnosis> {
    let gates: Vec<&str> =
        pod["spec"]["schedulingGates"].as_array()?.iter().filter_map(|gate| gate["name"].as_str()).collect();
    let (reason, message) = match gates.iter().any(|gate| gate.starts_with(KUEUE_GATES)) {
        true => (WorkloadReason::WaitingForQuota, quota_message(&pod["metadata"])),
        false if gates.is_empty() => return None,
        false => (WorkloadReason::SchedulingGated, format!("waiting for its scheduling gates: {}", gates.join(", "))),
    };
    Some((reason, message, false))
}

fn quota_message(metadata: &Value) -> String {
    let namespace = metadata["namespace"].as_str().unwrap_or("default");
    match metadata["labels"][KUEUE_QUEUE].as_str() {
        Some(queue) => format!(
            "waiting for quota: Kueue has not admitted the Pod to LocalQueue {queue}; run `kubectl describe \
             localqueues.kueue.x-k8s.io {queue} -n {namespace}` to see its use and the ClusterQueue that sets the quota"
        ),
        None => format!(
            "waiting for quota: Kueue has not admitted the Pod; run `kubectl get workloads.kueue.x-k8s.io -n {namespace}` \
             to see what waits"
        ),
    }
}

/// Reports a Pod that the scheduler rejected. The reason `SchedulingGated` remains until the scheduler has observed that a Pod has
/// no more gates.
fn unschedulable_pod(pod: &Value) -> Option<Diagnosis> {
    let scheduled = condition(pod, "PodScheduled")
        .filter(|scheduled| scheduled["status"] == "False" && scheduled["reason"] != "SchedulingGated")?;
    let message = scheduled["message"].as_str().unwrap_or("no node can schedule the Pod");
    Some((WorkloadReason::Unschedulable, message.to_owned(), false))
}

/// Returns whether the Pod itself fits and waits for the rest of its PodGroup; Volcano reports this as reason
/// `Schedulable`.
fn waits_for_pod_group(pod: &Value) -> bool {
    condition(pod, "PodScheduled").is_some_and(|scheduled| scheduled["reason"] == "Schedulable")
}

/// Reports a Pod whose containers were ready when its node last reported them. The node lifecycle controller sets only the
/// condition `Ready` of such Pods; a readiness gate has a reason of its own.
fn pod_of_unready_node(pod: &Value) -> Option<Diagnosis> {
    let is_false = |type_: &str| condition(pod, type_).is_some_and(|condition| condition["status"] == "False");
    let is_gated = || condition(pod, "Ready").is_some_and(|ready| ready["reason"] == "ReadinessGatesNotReady");
    let are_ready = containers(pod).count() > 0 && containers(pod).all(|container| container["ready"] == true);
    let node = pod["spec"]["nodeName"].as_str()?;
    (is_false("Ready") && are_ready && !is_gated()).then(|| {
        (WorkloadReason::NodeNotReady, format!("node {node} is not ready; the containers were ready before"), false)
    })
}

fn starting_pod(pod: &Value) -> Diagnosis {
    if pod["status"]["phase"] == "Running" {
        let unready = containers(pod).find(|container| container["ready"] == false);
        let name = unready.and_then(|container| container["name"].as_str()).unwrap_or("(unknown)");
        let probe = readiness_probe_target(pod, name).map(|probe| format!(" ({probe})")).unwrap_or_default();
        return (
            WorkloadReason::NotReadyYet,
            format!("container {name} is running but its readiness probe does not succeed yet{probe}"),
            false,
        );
    }
    (WorkloadReason::Starting, "the Pod is starting".to_owned(), false)
}

fn condition<'a>(pod: &'a Value, type_: &str) -> Option<&'a Value> {
    find_condition(&pod["status"]["conditions"], type_)
}
