//! A Pod's status, from what its containers are doing. Pure.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::object;
use crate::workloads::condition::{self, Condition};
use crate::workloads::pod::quality;

/// What one container is doing.
#[derive(Debug, Clone)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) role: Role,
    pub(crate) phase: Phase,
    pub(crate) last: Option<Ended>,
    pub(crate) restarts: u32,
    /// The startup probe passed, or there is none.
    pub(crate) started: bool,
    pub(crate) ready: bool,
    /// It will not run again.
    pub(crate) done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Init,
    /// An init container with `restartPolicy: Always`.
    Sidecar,
    Main,
}

#[derive(Debug, Clone)]
pub(crate) enum Phase {
    Waiting { reason: String, message: String },
    Running { since: String },
    Ended(Ended),
}

/// Whether the agent was there when a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Seen,
    Unseen,
}

/// One run that is over; times as Kubernetes writes them.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) message: String,
    pub(crate) how: End,
    pub(crate) started: String,
    pub(crate) finished: String,
}

/// Where the Pod is.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) address: Ipv4Addr,
    pub(crate) host: String,
    /// When the agent took the Pod.
    pub(crate) since: String,
    /// A Pod on a node that is not ready serves nobody.
    pub(crate) node_ready: bool,
    /// `activeDeadlineSeconds` have passed, and it was stopped.
    pub(crate) overdue: bool,
}

/// A kubelet's sentence.
pub(crate) const OVERDUE: &str = "Pod was active on the node longer than the specified deadline";

/// The whole `status`, built on the one the Pod has, so that other writers' conditions stay.
pub(crate) fn build(pod: &Value, containers: &[Container], place: &Place, now: &str) -> Value {
    let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
    let phase = if place.overdue { "Failed" } else { phase(containers) };
    status["phase"] = json!(phase);
    if place.overdue {
        status["reason"] = json!("DeadlineExceeded");
        status["message"] = json!(OVERDUE);
    }
    status["podIP"] = json!(place.address.to_string());
    status["podIPs"] = json!([{"ip": place.address.to_string()}]);
    status["hostIP"] = json!(place.host);
    status["hostIPs"] = json!([{"ip": place.host}]);
    status["startTime"] = json!(place.since);
    status["qosClass"] = json!(quality(pod));
    for (field, main) in [("initContainerStatuses", false), ("containerStatuses", true)] {
        let list: Vec<Value> =
            containers.iter().filter(|c| (c.role == Role::Main) == main).map(|c| c.status(object::uid(pod))).collect();
        if !list.is_empty() {
            status[field] = Value::Array(list);
        }
    }
    conditions(pod, &mut status, containers, phase, now);
    if !place.node_ready {
        let lost = Condition { kind: "Ready", status: false, reason: "", message: "" };
        condition::set(&mut status, lost, now);
    }
    status
}

fn phase(containers: &[Container]) -> &'static str {
    let main = || containers.iter().filter(|c| c.role == Role::Main);
    let code = |c: &Container| match &c.phase {
        Phase::Ended(ended) => ended.code,
        _ => 0,
    };
    if containers.iter().any(|c| c.role == Role::Init && c.done && code(c) != 0) {
        return "Failed";
    }
    if main().all(|c| c.done) {
        return if main().all(|c| code(c) == 0) { "Succeeded" } else { "Failed" };
    }
    let ran = |c: &Container| c.last.is_some() || !matches!(c.phase, Phase::Waiting { .. });
    if main().any(ran) { "Running" } else { "Pending" }
}

fn conditions(pod: &Value, status: &mut Value, containers: &[Container], phase: &str, now: &str) {
    let finished = matches!(phase, "Succeeded" | "Failed");
    let names = |lacking: &dyn Fn(&Container) -> bool| {
        let names: Vec<&str> = containers.iter().filter(|c| lacking(c)).map(|c| c.name.as_str()).collect();
        (names.is_empty(), names.join(" "))
    };
    let (initialized, waiting) = names(&|c| !c.initialized());
    let message = if initialized { String::new() } else { format!("containers with incomplete status: [{waiting}]") };
    let reason = if initialized { "" } else { "ContainersNotInitialized" };
    condition::set(status, Condition { kind: "Initialized", status: initialized, reason, message: &message }, now);

    let (ready, unready) = names(&|c| c.role != Role::Init && !c.ready);
    let message = if ready { String::new() } else { format!("containers with unready status: [{unready}]") };
    let reason = match (ready, finished) {
        (true, _) => "",
        (false, true) if phase == "Succeeded" => "PodCompleted",
        (false, true) => "PodFailed",
        (false, false) => "ContainersNotReady",
    };
    let message = if finished { "" } else { message.as_str() };
    let gates_open =
        gates(pod).all(|gate| condition::find(status, gate).is_some_and(|c| object::text(c, "/status") == "True"));
    condition::set(status, Condition { kind: "ContainersReady", status: ready, reason, message }, now);
    let condition = if ready && !gates_open {
        let message = "the status of pod readiness gate is not \"True\"";
        Condition { kind: "Ready", status: false, reason: "ReadinessGatesNotReady", message }
    } else {
        Condition { kind: "Ready", status: ready, reason, message }
    };
    condition::set(status, condition, now);
}

fn gates(pod: &Value) -> impl Iterator<Item = &str> {
    let gates = pod.pointer("/spec/readinessGates").and_then(Value::as_array);
    gates.into_iter().flatten().filter_map(|gate| gate.get("conditionType")?.as_str())
}

// === impl Container ===

impl Container {
    fn initialized(&self) -> bool {
        match self.role {
            Role::Main => true,
            Role::Sidecar => self.started,
            Role::Init => self.done && matches!(&self.phase, Phase::Ended(ended) if ended.code == 0),
        }
    }

    fn status(&self, pod_uid: &str) -> Value {
        let id_of = |run: u32| format!("embedded://{pod_uid}/{}/{run}", self.name);
        let id = id_of(self.restarts);
        // Restarts count runs that began; while it waits, the last run is the one that was counted last.
        let last_id = match self.phase {
            Phase::Waiting { .. } => id.clone(),
            Phase::Running { .. } | Phase::Ended(_) => id_of(self.restarts.saturating_sub(1)),
        };
        let mut status = json!({
            "name": self.name,
            "image": self.image,
            "imageID": self.image,
            "restartCount": self.restarts,
            "started": self.started && matches!(self.phase, Phase::Running { .. }),
            "ready": self.ready || self.role == Role::Init && self.initialized(),
            "state": self.phase.state(&id),
            "lastState": self.last.as_ref().map_or_else(|| json!({}), |ended| json!({"terminated": ended.state(&last_id)})),
        });
        if self.last.is_some() || !matches!(self.phase, Phase::Waiting { .. }) {
            status["containerID"] = json!(id);
        }
        status
    }
}

impl Phase {
    fn state(&self, id: &str) -> Value {
        match self {
            Self::Waiting { reason, message } if message.is_empty() => json!({"waiting": {"reason": reason}}),
            Self::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
            Self::Running { since } => json!({"running": {"startedAt": since}}),
            Self::Ended(ended) => json!({"terminated": ended.state(id)}),
        }
    }
}

impl Ended {
    fn state(&self, id: &str) -> Value {
        let mut state = json!({
            "exitCode": self.code,
            "reason": match (self.how, self.code) {
                (End::Unseen, _) => "Unknown",
                (End::Seen, 0) => "Completed",
                (End::Seen, _) => "Error",
            },
            "startedAt": self.started,
            "finishedAt": self.finished,
            "containerID": id,
        });
        if !self.message.is_empty() {
            state["message"] = json!(self.message);
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn container(role: Role, phase: Phase, ready: bool, done: bool) -> Container {
        let started = matches!(phase, Phase::Running { .. });
        Container { name: "c".into(), image: "i".into(), role, phase, last: None, restarts: 0, started, ready, done }
    }

    fn waiting() -> Phase {
        Phase::Waiting { reason: "ContainerCreating".into(), message: String::new() }
    }

    fn running() -> Phase {
        Phase::Running { since: "s".into() }
    }

    fn ended(code: i32) -> Phase {
        Phase::Ended(Ended { code, message: String::new(), how: End::Seen, started: "s".into(), finished: "f".into() })
    }

    #[rstest]
    #[case::creating(vec![container(Role::Main, waiting(), false, false)], "Pending", "False")]
    #[case::unready(vec![container(Role::Main, running(), false, false)], "Running", "False")]
    #[case::ready(vec![container(Role::Main, running(), true, false)], "Running", "True")]
    #[case::between_runs(vec![container(Role::Main, ended(1), false, false)], "Running", "False")]
    #[case::succeeded(vec![container(Role::Main, ended(0), false, true)], "Succeeded", "False")]
    #[case::failed(vec![container(Role::Main, ended(1), false, true)], "Failed", "False")]
    #[case::init_failed(vec![container(Role::Init, ended(1), false, true), container(Role::Main, waiting(), false, false)], "Failed", "False")]
    #[case::init_done(vec![container(Role::Init, ended(0), false, true), container(Role::Main, running(), true, false)], "Running", "True")]
    fn phases(#[case] containers: Vec<Container>, #[case] phase: &str, #[case] ready: &str) {
        let place = Place {
            address: Ipv4Addr::LOCALHOST,
            host: "127.0.0.1".into(),
            since: "s".into(),
            node_ready: true,
            overdue: false,
        };
        let status = build(&json!({}), &containers, &place, "now");
        assert_eq!(status["phase"], phase);
        assert_eq!(condition::find(&status, "Ready").unwrap()["status"], ready);
    }
}
