//! Table columns of Pods (`printPod` of `k8s.io/kubernetes/pkg/printers/internalversion`).
//!
//! The status is the reason of the first container that is waiting or terminated; without one, the reason or the phase
//! of the Pod.

use apimachinery::{object, pod};
use serde_json::{Value, json};

use super::age::human_age;
use super::cell::{age, column, first_text, items, number, or_none};
use super::column::Column;

/// Values of the columns Ready, Status and Restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodSummary {
    ready: usize,
    total: usize,
    pub(super) reason: String,
    restarts: RestartCount,
}

/// Restarts of containers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RestartCount {
    count: i64,
    /// Time at which the container terminated before its last restart, in RFC 3339; empty if unknown.
    last: String,
}

/// Summary of the init containers.
struct InitContainerSummary {
    /// Status of the init container that blocks the main containers.
    blocking_status: Option<String>,
    /// Number of ready sidecars.
    ready: usize,
    /// Restarts of all init containers up to and including the blocking one.
    restarts: RestartCount,
    sidecar_restarts: RestartCount,
}

pub(super) fn columns() -> Vec<Column> {
    vec![
        column("Ready", "string", 0, |pod, _| json!(PodSummary::new(pod).readiness())),
        column("Status", "string", 0, |pod, _| json!(PodSummary::new(pod).reason)),
        column("Restarts", "string", 0, |pod, now| json!(PodSummary::new(pod).restarts(now))),
        age(),
        column("IP", "string", 1, |pod, _| or_none(object::text(pod, "/status/podIP"))),
        column("Node", "string", 1, |pod, _| or_none(object::text(pod, "/spec/nodeName"))),
        column("Nominated Node", "string", 1, |pod, _| or_none(object::text(pod, "/status/nominatedNodeName"))),
        column("Readiness Gates", "string", 1, |pod, _| or_none(&readiness_gates(pod))),
    ]
}

/// Formats the readiness gates of a Pod: `2/3`; empty if it has none.
fn readiness_gates(pod: &Value) -> String {
    let gates = || items(pod, "/spec/readinessGates");
    if gates().next().is_none() {
        return String::new();
    }
    let satisfied = gates().filter(|gate| has_condition(pod, object::text(gate, "/conditionType"))).count();
    format!("{satisfied}/{}", gates().count())
}

// === impl PodSummary ===

impl PodSummary {
    pub(super) fn new(pod: &Value) -> Self {
        let sidecars = items(pod, "/spec/initContainers").filter(|spec| is_sidecar(spec)).count();
        let total = items(pod, "/spec/containers").count() + sidecars;
        let init_containers = InitContainerSummary::new(pod);
        let mut ready = init_containers.ready;
        let mut restarts = init_containers.restarts;
        let mut reason = init_containers.blocking_status.clone();
        if init_containers.blocking_status.is_none() || has_condition(pod, "Initialized") {
            restarts = init_containers.sidecar_restarts;
            items(pod, "/status/containerStatuses").for_each(|status| restarts.add(status));
            let running = items(pod, "/status/containerStatuses").filter(|status| is_running_and_ready(status)).count();
            ready += running;
            // Use the first container with a reason, like kube-apiserver, which iterates in reverse and overwrites
            // earlier reasons.
            reason = items(pod, "/status/containerStatuses").find_map(container_reason).or(reason);
            if running > 0 && reason.as_deref() == Some("Completed") {
                reason = Some(if has_condition(pod, "Ready") { "Running" } else { "NotReady" }.to_owned());
            }
        }
        let reason = terminating_status(pod).or(reason).unwrap_or_else(|| pod_reason(pod));
        Self { ready, total, reason, restarts }
    }

    /// Formats the number of ready containers and the total number of containers, including sidecars.
    pub(super) fn readiness(&self) -> String {
        format!("{}/{}", self.ready, self.total)
    }

    pub(super) fn restarts(&self, now: jiff::Timestamp) -> String {
        let RestartCount { count, last } = &self.restarts;
        if *count == 0 || last.is_empty() {
            count.to_string()
        } else {
            format!("{count} ({} ago)", human_age(last, now))
        }
    }
}

// === impl RestartCount ===

impl RestartCount {
    fn add(&mut self, status: &Value) {
        self.count = self.count.saturating_add(number(status, "/restartCount"));
        let terminated = object::text(status, "/lastState/terminated/finishedAt");
        if let (Ok(time), before) = (terminated.parse::<jiff::Timestamp>(), self.last.parse::<jiff::Timestamp>().ok())
            && before.is_none_or(|before| before < time)
        {
            terminated.clone_into(&mut self.last);
        }
    }
}

// === impl InitContainerSummary ===

impl InitContainerSummary {
    fn new(pod: &Value) -> Self {
        let specs = || items(pod, "/spec/initContainers");
        let sidecar = |name: &str| specs().any(|spec| object::text(spec, "/name") == name && is_sidecar(spec));
        let (mut ready, mut restarts, mut sidecar_restarts) = (0, RestartCount::default(), RestartCount::default());
        for (index, status) in items(pod, "/status/initContainerStatuses").enumerate() {
            restarts.add(status);
            let sidecar = sidecar(object::text(status, "/name"));
            if sidecar {
                sidecar_restarts.add(status);
            }
            if status.pointer("/state/terminated/exitCode").and_then(Value::as_i64) == Some(0) {
                continue;
            }
            if sidecar && status["started"] == true {
                ready += usize::from(status["ready"] == true);
                continue;
            }
            let reason = container_reason(status).filter(|reason| reason != "PodInitializing");
            let progress = || format!("{index}/{}", specs().count());
            let blocking_status = Some(format!("Init:{}", reason.unwrap_or_else(progress)));
            return Self { blocking_status, ready, restarts, sidecar_restarts };
        }
        Self { blocking_status: None, ready, restarts, sidecar_restarts }
    }
}

/// Reports whether an init container is a sidecar.
fn is_sidecar(spec: &Value) -> bool {
    spec["restartPolicy"] == "Always"
}

/// Returns the reason of a waiting or terminated container; `None` if it is running or waiting without a reason.
fn container_reason(status: &Value) -> Option<String> {
    let reason = first_text(status, &["/state/waiting/reason", "/state/terminated/reason"]);
    if !reason.is_empty() {
        return Some(reason.to_owned());
    }
    let terminated = status.pointer("/state/terminated")?;
    Some(match number(terminated, "/signal") {
        0 => format!("ExitCode:{}", number(terminated, "/exitCode")),
        signal => format!("Signal:{signal}"),
    })
}

/// Reports whether a container is running and ready.
fn is_running_and_ready(status: &Value) -> bool {
    status["ready"] == true && status.pointer("/state/running").is_some() && container_reason(status).is_none()
}

fn pod_reason(pod: &Value) -> String {
    let is_gated = items(pod, "/status/conditions")
        .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated");
    if is_gated {
        "SchedulingGated".to_owned()
    } else {
        first_text(pod, &["/status/reason", "/status/phase"]).to_owned()
    }
}

/// Returns the status of a terminating Pod, which takes precedence over the status of its containers.
fn terminating_status(pod: &Value) -> Option<String> {
    match (object::is_deleting(pod), object::text(pod, "/status/reason"), pod::is_finished(pod)) {
        (true, "NodeLost", _) => Some("Unknown".to_owned()),
        (true, _, false) => Some("Terminating".to_owned()),
        _ => None,
    }
}

/// Reports whether a condition is true.
fn has_condition(pod: &Value, kind: &str) -> bool {
    items(pod, "/status/conditions").any(|condition| condition["type"] == kind && condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn pod(status: Value) -> Value {
        let spec = json!({
            "initContainers": [{"name": "fetch"}, {"name": "proxy", "restartPolicy": "Always"}],
            "containers": [{"name": "a"}, {"name": "b"}],
        });
        json!({"spec": spec, "status": status})
    }

    fn running(name: &str) -> Value {
        json!({"name": name, "ready": true, "started": true, "restartCount": 0, "state": {"running": {}}})
    }

    fn terminated(name: &str, code: i64, reason: &str, restarts: u32) -> Value {
        let last_state = json!({"terminated": {"finishedAt": "2026-01-01T00:00:00Z"}});
        let state = json!({"terminated": {"exitCode": code, "reason": reason}});
        json!({"name": name, "restartCount": restarts, "state": state, "lastState": last_state})
    }

    fn waiting(name: &str, reason: &str) -> Value {
        json!({"name": name, "restartCount": 0, "state": {"waiting": {"reason": reason}}})
    }

    #[rstest]
    #[case::pending(json!({"phase": "Pending"}), "0/3 Pending 0")]
    #[case::evicted(json!({"phase": "Failed", "reason": "Evicted"}), "0/3 Evicted 0")]
    #[case::gated(
        json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
        "0/3 SchedulingGated 0"
    )]
    #[case::deadline_exceeded(
        json!({"phase": "Failed", "reason": "DeadlineExceeded", "containerStatuses": [terminated("a", 143, "Error", 0)]}),
        "0/3 Error 0"
    )]
    #[case::initializing(
        json!({"initContainerStatuses": [waiting("fetch", "PodInitializing")]}),
        "0/3 Init:0/2 0"
    )]
    #[case::init_container_failed(json!({"initContainerStatuses": [terminated("fetch", 2, "", 3)]}), "0/3 Init:ExitCode:2 3 (60s ago)")]
    #[case::sidecar(
        json!({"initContainerStatuses": [terminated("fetch", 0, "Completed", 3), running("proxy")],
            "containerStatuses": [running("a"), waiting("b", "CrashLoopBackOff")]}),
        "2/3 CrashLoopBackOff 0"
    )]
    #[case::partially_completed(
        json!({"phase": "Running", "containerStatuses": [terminated("a", 0, "Completed", 1), running("b")]}),
        "1/3 NotReady 1 (60s ago)"
    )]
    #[case::killed(
        json!({"containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 137, "signal": 9}}}]}),
        "0/3 Signal:9 0"
    )]
    fn summarizes_pod(#[case] status: Value, #[case] expected: &str) {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let summary = PodSummary::new(&pod(status));
        assert_eq!(format!("{} {} {}", summary.readiness(), summary.reason, summary.restarts(now)), expected);
    }
}
