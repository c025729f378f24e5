//! What `kubectl get pods` says of a Pod in three cells (`printPod` of `k8s.io/kubernetes/pkg/printers/internalversion`).
//!
//! The state of the container that is in the way names the Pod's state; only where no container says anything does the
//! reason of the whole Pod, and then its phase.

use serde_json::{Value, json};

use super::cell::{age, column, first, items, number, or_none};
use super::{Column, since};
use crate::object;

/// A Pod in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Summary {
    ready: usize,
    total: usize,
    pub(super) reason: String,
    restarts: Restarts,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Restarts {
    count: i64,
    /// When the run before the last restart ended, RFC 3339; empty where nobody knows.
    last: String,
}

/// What the init containers say.
struct Initialization {
    /// What is in the way of the main containers.
    obstacle: Option<String>,
    /// Sidecars that are ready.
    ready: usize,
    /// Of all of them up to the obstacle.
    restarts: Restarts,
    of_sidecars: Restarts,
}

pub(super) fn columns() -> Vec<Column> {
    vec![
        column("Ready", "string", 0, |pod, _| json!(Summary::of(pod).readiness())),
        column("Status", "string", 0, |pod, _| json!(Summary::of(pod).reason)),
        column("Restarts", "string", 0, |pod, now| json!(Summary::of(pod).restarts(now))),
        age(),
        column("IP", "string", 1, |pod, _| or_none(object::text(pod, "/status/podIP"))),
        column("Node", "string", 1, |pod, _| or_none(object::text(pod, "/spec/nodeName"))),
        column("Nominated Node", "string", 1, |pod, _| or_none(object::text(pod, "/status/nominatedNodeName"))),
        column("Readiness Gates", "string", 1, |pod, _| or_none(&readiness_gates(pod))),
    ]
}

/// `2/3` of the Pod's readiness gates; empty where it has none.
fn readiness_gates(pod: &Value) -> String {
    let gates = || items(pod, "/spec/readinessGates");
    if gates().next().is_none() {
        return String::new();
    }
    let open = gates().filter(|gate| is(pod, object::text(gate, "/conditionType"))).count();
    format!("{open}/{}", gates().count())
}

// === impl Summary ===

impl Summary {
    pub(super) fn of(pod: &Value) -> Self {
        let sidecars = items(pod, "/spec/initContainers").filter(|spec| is_sidecar(spec)).count();
        let total = items(pod, "/spec/containers").count() + sidecars;
        let initialization = Initialization::of(pod);
        let mut ready = initialization.ready;
        let mut restarts = initialization.restarts;
        let mut reason = initialization.obstacle.clone();
        if initialization.obstacle.is_none() || is(pod, "Initialized") {
            restarts = initialization.of_sidecars;
            items(pod, "/status/containerStatuses").for_each(|status| restarts.add(status));
            let running = items(pod, "/status/containerStatuses").filter(|status| serves(status)).count();
            ready += running;
            // The first that says something, as the table goes through them from the last to the first.
            reason = items(pod, "/status/containerStatuses").find_map(state).or(reason);
            if running > 0 && reason.as_deref() == Some("Completed") {
                reason = Some(if is(pod, "Ready") { "Running" } else { "NotReady" }.to_owned());
            }
        }
        let reason = leaving(pod).or(reason).unwrap_or_else(|| of_whole(pod));
        Self { ready, total, reason, restarts }
    }

    /// How many containers are ready, of how many that go on running.
    pub(super) fn readiness(&self) -> String {
        format!("{}/{}", self.ready, self.total)
    }

    pub(super) fn restarts(&self, now: jiff::Timestamp) -> String {
        let Restarts { count, last } = &self.restarts;
        if *count == 0 || last.is_empty() { count.to_string() } else { format!("{count} ({} ago)", since(last, now)) }
    }
}

// === impl Restarts ===

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += number(status, "/restartCount");
        let ended = object::text(status, "/lastState/terminated/finishedAt");
        if let (Ok(time), before) = (ended.parse::<jiff::Timestamp>(), self.last.parse::<jiff::Timestamp>().ok())
            && before.is_none_or(|before| before < time)
        {
            ended.clone_into(&mut self.last);
        }
    }
}

// === impl Initialization ===

impl Initialization {
    fn of(pod: &Value) -> Self {
        let specs = || items(pod, "/spec/initContainers");
        let sidecar = |name: &str| specs().any(|spec| object::text(spec, "/name") == name && is_sidecar(spec));
        let (mut ready, mut restarts, mut of_sidecars) = (0, Restarts::default(), Restarts::default());
        for (index, status) in items(pod, "/status/initContainerStatuses").enumerate() {
            restarts.add(status);
            let sidecar = sidecar(object::text(status, "/name"));
            if sidecar {
                of_sidecars.add(status);
            }
            if status.pointer("/state/terminated/exitCode").and_then(Value::as_i64) == Some(0) {
                continue;
            }
            if sidecar && status["started"] == true {
                ready += usize::from(status["ready"] == true);
                continue;
            }
            let waits = state(status).filter(|reason| reason != "PodInitializing");
            let place = || format!("{index}/{}", specs().count());
            let obstacle = Some(format!("Init:{}", waits.unwrap_or_else(place)));
            return Self { obstacle, ready, restarts, of_sidecars };
        }
        Self { obstacle: None, ready, restarts, of_sidecars }
    }
}

/// Whether an init container goes on running beside the others.
fn is_sidecar(spec: &Value) -> bool {
    spec["restartPolicy"] == "Always"
}

/// Why a container waits or ended; nothing of one that runs, or waits for no stated reason.
fn state(status: &Value) -> Option<String> {
    let told = first(status, &["/state/waiting/reason", "/state/terminated/reason"]);
    if !told.is_empty() {
        return Some(told.to_owned());
    }
    let ended = status.pointer("/state/terminated")?;
    Some(match number(ended, "/signal") {
        0 => format!("ExitCode:{}", number(ended, "/exitCode")),
        signal => format!("Signal:{signal}"),
    })
}

/// Whether a container runs and is ready.
fn serves(status: &Value) -> bool {
    status["ready"] == true && status.pointer("/state/running").is_some() && state(status).is_none()
}

fn of_whole(pod: &Value) -> String {
    let gated = items(pod, "/status/conditions")
        .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated");
    if gated { "SchedulingGated".to_owned() } else { first(pod, &["/status/reason", "/status/phase"]).to_owned() }
}

/// What is said of a Pod that is being deleted, whatever its containers say.
fn leaving(pod: &Value) -> Option<String> {
    let over = matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed");
    match (object::is_deleting(pod), object::text(pod, "/status/reason"), over) {
        (true, "NodeLost", _) => Some("Unknown".to_owned()),
        (true, _, false) => Some("Terminating".to_owned()),
        _ => None,
    }
}

/// Whether the condition is true.
fn is(pod: &Value, kind: &str) -> bool {
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

    fn ended(name: &str, code: i64, reason: &str, restarts: u32) -> Value {
        let before = json!({"terminated": {"finishedAt": "2026-01-01T00:00:00Z"}});
        let state = json!({"terminated": {"exitCode": code, "reason": reason}});
        json!({"name": name, "restartCount": restarts, "state": state, "lastState": before})
    }

    fn waiting(name: &str, reason: &str) -> Value {
        json!({"name": name, "restartCount": 0, "state": {"waiting": {"reason": reason}}})
    }

    #[rstest]
    #[case::fresh(json!({"phase": "Pending"}), "0/3 Pending 0")]
    #[case::evicted(json!({"phase": "Failed", "reason": "Evicted"}), "0/3 Evicted 0")]
    #[case::gated(
        json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
        "0/3 SchedulingGated 0"
    )]
    #[case::overdue(
        json!({"phase": "Failed", "reason": "DeadlineExceeded", "containerStatuses": [ended("a", 143, "Error", 0)]}),
        "0/3 Error 0"
    )]
    #[case::initializing(
        json!({"initContainerStatuses": [waiting("fetch", "PodInitializing")]}),
        "0/3 Init:0/2 0"
    )]
    #[case::init_fails(json!({"initContainerStatuses": [ended("fetch", 2, "", 3)]}), "0/3 Init:ExitCode:2 3 (60s ago)")]
    #[case::sidecar(
        json!({"initContainerStatuses": [ended("fetch", 0, "Completed", 3), running("proxy")],
            "containerStatuses": [running("a"), waiting("b", "CrashLoopBackOff")]}),
        "2/3 CrashLoopBackOff 0"
    )]
    #[case::half_done(
        json!({"phase": "Running", "containerStatuses": [ended("a", 0, "Completed", 1), running("b")]}),
        "1/3 NotReady 1 (60s ago)"
    )]
    #[case::killed(
        json!({"containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 137, "signal": 9}}}]}),
        "0/3 Signal:9 0"
    )]
    fn a_pod_in_short(#[case] status: Value, #[case] expected: &str) {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let summary = Summary::of(&pod(status));
        assert_eq!(format!("{} {} {}", summary.readiness(), summary.reason, summary.restarts(now)), expected);
    }
}
