//! Problems of the containers of a Pod.

use serde_json::Value;

use super::log_line::error_line;
use super::problem::RESTARTS_TO_FAIL;
use crate::condition_reason::WorkloadReason;

/// Reason, message, and whether the problem needs action.
pub(super) type Diagnosis = (WorkloadReason, String, bool);

/// Returns the container statuses of the Pod, init containers first.
pub(super) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let status_fields = ["initContainerStatuses", "containerStatuses"];
    status_fields.into_iter().filter_map(|list| pod["status"][list].as_array()).flatten()
}

pub(super) fn container_problem(container: &Value) -> Option<Diagnosis> {
    let waiting = &container["state"]["waiting"];
    let name = container["name"].as_str().unwrap_or_default();
    let detail = waiting["message"].as_str().map(|text| format!(": {text}")).unwrap_or_default();
    let Some(reason) = waiting["reason"].as_str() else {
        // A restarted container runs for a while between two crashes, so it counts as recovered only once it is ready.
        return is_crash_looping(container).then(|| crash_loop(container, name));
    };
    match reason {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            let image = container["image"].as_str().unwrap_or_default();
            Some((
                WorkloadReason::ImagePullFailed,
                format!("failed to pull image {image} of container {name}{detail}"),
                true,
            ))
        }
        "CrashLoopBackOff" => Some(crash_loop(container, name)),
        reason @ ("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") => Some((
            WorkloadReason::ContainerCreateFailed,
            format!("failed to create container {name}: {reason}{detail}"),
            true,
        )),
        _ => None,
    }
}

/// Returns whether a container of the Pod terminated with an error, now or before its last restart.
#[must_use]
pub(crate) fn has_crashed(pod: &Value) -> bool {
    containers(pod).any(|container| last_failure(container).is_some())
}

/// Returns the name of the unready container that terminated with an error, now or before its last restart.
#[must_use]
pub fn crashed_container(pod: &Value) -> Option<&str> {
    containers(pod).find(|container| is_crash_looping(container))?["name"].as_str()
}

fn is_crash_looping(container: &Value) -> bool {
    container["ready"] != true && last_failure(container).is_some()
}

/// Returns the latest termination with an error: now, or before the last restart.
fn last_failure(container: &Value) -> Option<&Value> {
    let terminated = ["state", "lastState"].map(|state| &container[state]["terminated"]);
    terminated.into_iter().find(|terminated| terminated["exitCode"].as_i64().is_some_and(|code| code != 0))
}

fn crash_loop(container: &Value, name: &str) -> Diagnosis {
    let restarts = container["restartCount"].as_i64().unwrap_or_default();
    let last_termination = last_failure(container).unwrap_or(&container["lastState"]["terminated"]);
    let exit_code =
        last_termination["exitCode"].as_i64().map(|code| format!(" with exit code {code}")).unwrap_or_default();
    let termination_message = last_termination["message"]
        .as_str()
        .and_then(error_line)
        .or(last_termination["reason"].as_str().map(str::to_owned));
    let reason = termination_message.map(|text| format!(" ({text})")).unwrap_or_default();
    let restart_count = match restarts {
        // The container has just terminated.
        0 => String::new(),
        1 => " and restarted once".to_owned(),
        _ => format!(" and restarted {restarts} times"),
    };
    let message = format!("container {name} terminated{exit_code}{reason}{restart_count}; see its logs");
    (WorkloadReason::CrashLoop, message, restarts >= RESTARTS_TO_FAIL)
}

/// Describes the target of the readiness probe of container `name`, and warns if the command line does not mention the
/// port: an engine that listens on another port never becomes ready.
pub(super) fn readiness_probe_target(pod: &Value, name: &str) -> Option<String> {
    let mut containers = pod["spec"]["containers"].as_array()?.iter();
    let container = containers.find(|container| container["name"] == name)?;
    let probe = &container["readinessProbe"];
    let (target, port) = match () {
        () if probe["httpGet"].is_object() => {
            let http_get = &probe["httpGet"];
            (
                format!("GET {} on port ", http_get["path"].as_str().unwrap_or("/")),
                port_number(container, &http_get["port"])?,
            )
        }
        () if probe["grpc"].is_object() => {
            ("gRPC on port ".to_owned(), port_number(container, &probe["grpc"]["port"])?)
        }
        () => ("port ".to_owned(), port_number(container, &probe["tcpSocket"]["port"])?),
    };
    let arguments = ["command", "args"].into_iter().filter_map(|field| container[field].as_array()).flatten();
    let arguments: Vec<&str> = arguments.filter_map(Value::as_str).collect();
    let is_port_mentioned = arguments.iter().any(|argument| argument.contains(port.to_string().as_str()));
    let hint = if is_port_mentioned { "" } else { ", which its command line does not mention" };
    Some(format!("{target}{port}{hint}"))
}

/// Resolves a port given as a number or as the name of a container port.
fn port_number(container: &Value, port: &Value) -> Option<u64> {
    let has_name = |container_port: &&Value| container_port["name"] == *port;
    port.as_u64().or_else(|| container["ports"].as_array()?.iter().find(has_name)?["containerPort"].as_u64())
}
