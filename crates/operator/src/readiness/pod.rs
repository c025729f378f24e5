//! What is wrong with one Pod.

use cluster::object::meta;
use serde_json::Value;

use super::container::{Finding, container_trouble, containers, probed};
use super::{Code, Trouble, condition};

/// Whether the Pod's `Ready` condition holds.
#[must_use]
pub fn pod_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True") && !cluster::object::terminating(pod)
}

/// What is wrong with one Pod, or `None` if it is ready or on its way out.
#[must_use]
pub fn pod_trouble(pod: &Value) -> Option<Trouble> {
    if pod_ready(pod) || cluster::object::terminating(pod) {
        return None;
    }
    let (code, message, failed) = failed_phase(pod)
        .or_else(|| containers(pod).filter_map(container_trouble).min())
        .or_else(|| unschedulable(pod))
        .unwrap_or_else(|| starting(pod));
    let by_others = code == Code::Unschedulable && has_a_node_in_sight(pod);
    Some(Trouble { code, by_others, object: format!("Pod {}", meta(pod, "name")), message, failed })
}

fn failed_phase(pod: &Value) -> Option<Finding> {
    let status = &pod["status"];
    let told =
        [&status["reason"], &status["message"]].into_iter().filter_map(Value::as_str).collect::<Vec<_>>().join(": ");
    (status["phase"] == "Failed")
        .then(|| (Code::PodFailed, if told.is_empty() { "the Pod failed".to_owned() } else { told }, true))
}

fn unschedulable(pod: &Value) -> Option<Finding> {
    let scheduled = condition(pod, "PodScheduled").filter(|scheduled| scheduled["status"] == "False")?;
    let message = scheduled["message"].as_str().unwrap_or("no node takes the Pod");
    Some((Code::Unschedulable, message.to_owned(), false))
}

/// Volcano says so of a Pod that would fit, if only the others of its group did.
fn has_a_node_in_sight(pod: &Value) -> bool {
    condition(pod, "PodScheduled").is_some_and(|scheduled| scheduled["reason"] == "Schedulable")
}

fn starting(pod: &Value) -> Finding {
    if pod["status"]["phase"] == "Running" {
        let unready = containers(pod).find(|container| container["ready"] == false);
        let name = unready.and_then(|container| container["name"].as_str()).unwrap_or("a container");
        let probe = probed(pod, name).map(|probe| format!(" ({probe})")).unwrap_or_default();
        return (Code::NotReadyYet, format!("{name} runs and does not answer its readiness probe yet{probe}"), false);
    }
    (Code::Starting, "the Pod is being started".to_owned(), false)
}
