//! The status of a Pod, computed from the states of its containers. Pure.

use std::net::Ipv4Addr;

use apimachinery::condition::{self, Condition};
use apimachinery::{object, pod};
use serde_json::{Value, json};

use crate::device_status::{ContainerDevices, allocated_resources_status};

/// The status of one container.
#[derive(Debug, Clone)]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) role: ContainerRole,
    pub(crate) state: ContainerState,
    pub(crate) last_termination: Option<TerminatedState>,
    pub(crate) restart_count: u32,
    /// IDs of the devices of the container by resource.
    pub(crate) devices: ContainerDevices,
    /// Whether the startup probe has succeeded, or there is none.
    pub(crate) started: bool,
    pub(crate) ready: bool,
    /// Whether the container has finished and will not be restarted.
    pub(crate) done: bool,
}

/// The role of a container in its Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContainerRole {
    /// Must succeed before the next container starts.
    Init,
    /// An init container with `restartPolicy: Always`.
    Sidecar,
    /// One of `spec.containers`.
    Main,
}

/// The state of a container.
#[derive(Debug, Clone)]
pub(crate) enum ContainerState {
    /// Not started yet, or waiting for a restart.
    Waiting { reason: String, message: String },
    /// Running since an RFC 3339 time.
    Running { started_at: String },
    /// Ended, and not waiting for a restart yet.
    Terminated(TerminatedState),
}

/// Whether the agent observed the termination of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminationObservation {
    /// The container ended while the agent was running, so its exit code is known.
    Observed,
    /// The agent stopped while the container was running.
    Unobserved,
    /// The Pod was terminated before the container started.
    NotStarted,
}

/// State of a terminated container; times are RFC 3339 strings.
#[derive(Debug, Clone)]
pub(crate) struct TerminatedState {
    pub(crate) exit_code: i32,
    pub(crate) message: String,
    pub(crate) observation: TerminationObservation,
    pub(crate) started_at: String,
    pub(crate) finished_at: String,
}

/// The part of a Pod status that does not depend on its containers.
#[derive(Debug, Clone)]
pub(crate) struct PodPlacement {
    pub(crate) pod_ip: Ipv4Addr,
    pub(crate) host_ip: String,
    /// When the agent started the Pod.
    pub(crate) start_time: String,
    /// Whether the node is ready. If not, its Pods are not ready either.
    pub(crate) node_ready: bool,
    /// Whether the Pod was stopped because `activeDeadlineSeconds` has passed.
    pub(crate) deadline_exceeded: bool,
}

/// The kubelet's message for a Pod that exceeded `activeDeadlineSeconds`.
pub(crate) const DEADLINE_EXCEEDED_MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// The kubelet's message for a container that had not started when its Pod was terminated.
const NOT_STARTED_MESSAGE: &str = "The container could not be located when the pod was terminated";

/// Exit code of a process that was killed with SIGKILL.
pub(crate) const SIGKILL_EXIT_CODE: i32 = 137;

/// Maximum total size in bytes of the termination messages of a Pod (`MaxPodTerminationMessageLogLength` of the kubelet).
const MAX_TERMINATION_MESSAGE_BYTES: usize = 12 << 10;

/// Returns the complete `status`. It is based on the current one to preserve conditions set by other clients.
pub(crate) fn pod_status(pod: &Value, containers: &[ContainerStatus], placement: &PodPlacement, now: &str) -> Value {
    let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
    let phase = if placement.deadline_exceeded { "Failed" } else { pod_phase(containers) };
    status["phase"] = json!(phase);
    if placement.deadline_exceeded {
        status["reason"] = json!("DeadlineExceeded");
        status["message"] = json!(DEADLINE_EXCEEDED_MESSAGE);
    }
    status["podIP"] = json!(placement.pod_ip.to_string());
    status["podIPs"] = json!([{"ip": placement.pod_ip.to_string()}]);
    status["hostIP"] = json!(placement.host_ip);
    status["hostIPs"] = json!([{"ip": placement.host_ip}]);
    status["startTime"] = json!(placement.start_time);
    status["qosClass"] = json!(pod::qos_class(pod));
    let max_message_bytes = MAX_TERMINATION_MESSAGE_BYTES / containers.len().max(1);
    for (field, main) in [("initContainerStatuses", false), ("containerStatuses", true)] {
        let list: Vec<Value> = containers
            .iter()
            .filter(|c| (c.role == ContainerRole::Main) == main)
            .map(|c| c.status(object::uid(pod), max_message_bytes))
            .collect();
        if !list.is_empty() {
            status[field] = Value::Array(list);
        }
    }
    set_conditions(pod, &mut status, containers, phase, now);
    if !placement.node_ready {
        let not_ready = Condition { type_: "Ready", status: false, reason: "", message: "" };
        condition::set(&mut status, not_ready, now);
    }
    status
}

/// Returns the phase of the Pod.
fn pod_phase(containers: &[ContainerStatus]) -> &'static str {
    let main = || containers.iter().filter(|c| c.role == ContainerRole::Main);
    let exit_code = |c: &ContainerStatus| match &c.state {
        ContainerState::Terminated(terminated) => terminated.exit_code,
        _ => 0,
    };
    if containers.iter().any(|c| c.role == ContainerRole::Init && c.done && exit_code(c) != 0) {
        return "Failed";
    }
    if main().all(|c| c.done) {
        return if main().all(|c| exit_code(c) == 0) { "Succeeded" } else { "Failed" };
    }
    let has_run =
        |c: &ContainerStatus| c.last_termination.is_some() || !matches!(c.state, ContainerState::Waiting { .. });
    if main().any(has_run) { "Running" } else { "Pending" }
}

/// Sets the conditions `Initialized`, `ContainersReady` and `Ready`.
fn set_conditions(pod: &Value, status: &mut Value, containers: &[ContainerStatus], phase: &str, now: &str) {
    let is_finished = matches!(phase, "Succeeded" | "Failed");
    let container_names = |filter: &dyn Fn(&ContainerStatus) -> bool| {
        let names: Vec<&str> = containers.iter().filter(|c| filter(c)).map(|c| c.name.as_str()).collect();
        (names.is_empty(), names.join(" "))
    };
    let (is_initialized, incomplete) = container_names(&|c| !c.is_initialized());
    let message =
        if is_initialized { String::new() } else { format!("containers with incomplete status: [{incomplete}]") };
    let reason = if is_initialized { "" } else { "ContainersNotInitialized" };
    condition::set(status, Condition { type_: "Initialized", status: is_initialized, reason, message: &message }, now);

    let (ready, unready) = container_names(&|c| c.role != ContainerRole::Init && !c.ready);
    let message = if ready { String::new() } else { format!("containers with unready status: [{unready}]") };
    let reason = match (ready, is_finished) {
        (true, _) => "",
        (false, true) if phase == "Succeeded" => "PodCompleted",
        (false, true) => "PodFailed",
        (false, false) => "ContainersNotReady",
    };
    let message = if is_finished { "" } else { message.as_str() };
    let gates_ready = readiness_gates(pod)
        .all(|gate| condition::find(status, gate).is_some_and(|c| object::text(c, "/status") == "True"));
    condition::set(status, Condition { type_: "ContainersReady", status: ready, reason, message }, now);
    let condition = if ready && !gates_ready {
        let message = "the status of pod readiness gate is not \"True\"";
        Condition { type_: "Ready", status: false, reason: "ReadinessGatesNotReady", message }
    } else {
        Condition { type_: "Ready", status: ready, reason, message }
    };
    condition::set(status, condition, now);
}

/// Returns the condition types of `spec.readinessGates`.
fn readiness_gates(pod: &Value) -> impl Iterator<Item = &str> {
    let gates = pod.pointer("/spec/readinessGates").and_then(Value::as_array);
    gates.into_iter().flatten().filter_map(|gate| gate.get("conditionType")?.as_str())
}

// === impl ContainerStatus ===

impl ContainerStatus {
    /// Records the end of a container that does not run any longer because its Pod was terminated. Without an observed
    /// termination, its exit code is that of SIGKILL, as in the kubelet.
    pub(crate) fn end(&mut self, now: &str) {
        self.done = true;
        let (observation, message, started_at) = match (&self.state, &self.last_termination) {
            (ContainerState::Terminated(_), _) => return,
            (ContainerState::Waiting { .. }, Some(terminated)) => {
                self.state = ContainerState::Terminated(terminated.clone());
                return;
            }
            (ContainerState::Running { started_at }, _) => {
                (TerminationObservation::Observed, String::new(), started_at.clone())
            }
            (ContainerState::Waiting { .. }, None) => {
                (TerminationObservation::NotStarted, NOT_STARTED_MESSAGE.to_owned(), String::new())
            }
        };
        let finished_at = if started_at.is_empty() { String::new() } else { now.to_owned() };
        let exit_code = SIGKILL_EXIT_CODE;
        self.state =
            ContainerState::Terminated(TerminatedState { exit_code, message, observation, started_at, finished_at });
    }

    /// Whether the container is complete with regard to the condition `Initialized`.
    fn is_initialized(&self) -> bool {
        match self.role {
            ContainerRole::Main => true,
            ContainerRole::Sidecar => self.started,
            ContainerRole::Init => {
                self.done && matches!(&self.state, ContainerState::Terminated(terminated) if terminated.exit_code == 0)
            }
        }
    }

    /// Returns the container status as in the API (`status.containerStatuses[]`).
    fn status(&self, pod_uid: &str, max_message_bytes: usize) -> Value {
        let container_id_of_run = |index: u32| format!("embedded://{pod_uid}/{}/{index}", self.name);
        let container_id = container_id_of_run(self.restart_count);
        // The restart count is the number of the current run, or of the last run while the container waits.
        let last_container_id = match self.state {
            ContainerState::Waiting { .. } => container_id.clone(),
            ContainerState::Running { .. } | ContainerState::Terminated(_) => {
                container_id_of_run(self.restart_count.saturating_sub(1))
            }
        };
        let mut status = json!({
            "name": self.name,
            "image": self.image,
            "imageID": self.image,
            "restartCount": self.restart_count,
            "started": self.started && matches!(self.state, ContainerState::Running { .. }),
            "ready": self.ready || self.role == ContainerRole::Init && self.is_initialized(),
            "state": self.state.state(&container_id, max_message_bytes),
            "lastState": self.last_termination.as_ref().map_or_else(|| json!({}), |terminated| json!({"terminated": terminated.state(&last_container_id, max_message_bytes)})),
        });
        if self.last_termination.is_some() || !matches!(self.state, ContainerState::Waiting { .. }) {
            status["containerID"] = json!(container_id);
        }
        if !self.devices.is_empty() {
            status["allocatedResourcesStatus"] = allocated_resources_status(&self.devices);
        }
        status
    }
}

// === impl ContainerState ===

impl ContainerState {
    fn state(&self, id: &str, max_message_bytes: usize) -> Value {
        match self {
            Self::Waiting { reason, message } if message.is_empty() => json!({"waiting": {"reason": reason}}),
            Self::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
            Self::Running { started_at } => json!({"running": {"startedAt": started_at}}),
            Self::Terminated(terminated) => json!({"terminated": terminated.state(id, max_message_bytes)}),
        }
    }
}

// === impl TerminatedState ===

impl TerminatedState {
    fn state(&self, id: &str, max_message_bytes: usize) -> Value {
        let time = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
        let mut state = json!({
            "exitCode": self.exit_code,
            "reason": match (self.observation, self.exit_code) {
                (TerminationObservation::Unobserved, _) => "Unknown",
                (TerminationObservation::NotStarted, _) => "ContainerStatusUnknown",
                (TerminationObservation::Observed, 0) => "Completed",
                (TerminationObservation::Observed, _) => "Error",
            },
            "startedAt": time(&self.started_at),
            "finishedAt": time(&self.finished_at),
            "containerID": id,
        });
        if !self.message.is_empty() {
            state["message"] = json!(&self.message[..self.message.floor_char_boundary(max_message_bytes)]);
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn container(role: ContainerRole, state: ContainerState, ready: bool, done: bool) -> ContainerStatus {
        let started = matches!(state, ContainerState::Running { .. });
        ContainerStatus {
            name: "c".into(),
            image: "i".into(),
            role,
            state,
            last_termination: None,
            restart_count: 0,
            devices: ContainerDevices::new(),
            started,
            ready,
            done,
        }
    }

    fn waiting() -> ContainerState {
        ContainerState::Waiting { reason: "ContainerCreating".into(), message: String::new() }
    }

    fn running() -> ContainerState {
        ContainerState::Running { started_at: "s".into() }
    }

    fn placement() -> PodPlacement {
        PodPlacement {
            pod_ip: Ipv4Addr::LOCALHOST,
            host_ip: "127.0.0.1".into(),
            start_time: "s".into(),
            node_ready: true,
            deadline_exceeded: false,
        }
    }

    fn terminated(exit_code: i32) -> ContainerState {
        ContainerState::Terminated(TerminatedState {
            exit_code,
            message: String::new(),
            observation: TerminationObservation::Observed,
            started_at: "s".into(),
            finished_at: "f".into(),
        })
    }

    #[rstest]
    #[case::creating(vec![container(ContainerRole::Main, waiting(), false, false)], "Pending", "False")]
    #[case::unready(vec![container(ContainerRole::Main, running(), false, false)], "Running", "False")]
    #[case::ready(vec![container(ContainerRole::Main, running(), true, false)], "Running", "True")]
    #[case::between_runs(vec![container(ContainerRole::Main, terminated(1), false, false)], "Running", "False")]
    #[case::succeeded(vec![container(ContainerRole::Main, terminated(0), false, true)], "Succeeded", "False")]
    #[case::failed(vec![container(ContainerRole::Main, terminated(1), false, true)], "Failed", "False")]
    #[case::init_failed(vec![container(ContainerRole::Init, terminated(1), false, true), container(ContainerRole::Main, waiting(), false, false)], "Failed", "False")]
    #[case::init_done(vec![container(ContainerRole::Init, terminated(0), false, true), container(ContainerRole::Main, running(), true, false)], "Running", "True")]
    fn computes_phase_and_readiness(
        #[case] containers: Vec<ContainerStatus>,
        #[case] phase: &str,
        #[case] ready: &str,
    ) {
        let status = pod_status(&json!({}), &containers, &placement(), "now");
        assert_eq!(status["phase"], phase);
        assert_eq!(condition::find(&status, "Ready").unwrap()["status"], ready);
    }

    /// All termination messages of a Pod together have at most 12 KiB.
    #[rstest]
    #[case::one(1, 4096)]
    #[case::six(6, 2048)]
    fn limits_termination_messages(#[case] containers: usize, #[case] expect: usize) {
        let mut terminated = terminated(1);
        if let ContainerState::Terminated(state) = &mut terminated {
            state.message = "é".repeat(2048);
        }
        let containers = vec![container(ContainerRole::Main, terminated, false, true); containers];
        let status = pod_status(&json!({}), &containers, &placement(), "now");
        assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["message"].as_str().unwrap().len(), expect);
    }
}
