//! Is a workload ready, and if not, why not; from its object and its Pods, without a client.
//!
//! Of many troubles the one that a person must act on first is told: an image that cannot be pulled before a crash,
//! a crash before a Pod that finds no node, and plain starting last. Ties go to the first Pod by name.

use cluster::Tone;
use cluster::object::{describe, meta};
use serde_json::Value;

use crate::reason::Reason;

/// Restarts after which a crashing Pod counts as failed rather than starting.
pub const RESTARTS_TO_FAIL: i64 = 3;

/// What a workload wants and has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether the object exists and its controller has seen the present generation.
    pub current: bool,
    /// Replicas wanted.
    pub desired: i64,
    /// Replicas of the present revision.
    pub updated: i64,
    /// Replicas that are ready.
    pub ready: i64,
}

/// Why something is not ready. The order is the order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// An image cannot be pulled.
    ImagePullFailed,
    /// A container cannot be made from its description.
    ContainerCreateFailed,
    /// A container keeps ending.
    CrashLoop,
    /// A Pod ended in failure.
    PodFailed,
    /// The workload's controller cannot make Pods.
    PodsNotCreated,
    /// No node takes a Pod.
    Unschedulable,
    /// A Pod runs, but its probe says no.
    NotReadyYet,
    /// A Pod is being set up.
    Starting,
    /// A new revision is being rolled out.
    RollingOut,
}

/// One reason for not being ready.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trouble {
    /// What kind of trouble.
    pub code: Code,
    /// The Pod or workload it stands on.
    pub object: String,
    /// A sentence, with the scheduler's or the node's own words.
    pub message: String,
    /// It will not pass by itself: a `Failed` phase is justified.
    pub failed: bool,
}

// === impl Progress ===

impl Progress {
    /// Of a Deployment or LeaderWorkerSet; both use the same names.
    #[must_use]
    pub fn of(workload: &Value) -> Progress {
        let status = &workload["status"];
        let observed = status["observedGeneration"].as_i64();
        let count = |name: &str| status[name].as_i64().unwrap_or_default();
        Progress {
            // LeaderWorkerSet before 0.7 does not say which generation it saw.
            current: status.is_object()
                && observed.is_none_or(|observed| observed >= cluster::object::generation(workload)),
            desired: workload["spec"]["replicas"].as_i64().unwrap_or(1),
            updated: count("updatedReplicas"),
            ready: count("readyReplicas"),
        }
    }

    /// Everything wanted is there, of the present revision, and ready. Zero replicas are ready at once.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.current && self.updated >= self.desired && self.ready >= self.desired
    }
}

// === impl Code ===

impl Code {
    /// The reason as it stands in conditions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Code::ImagePullFailed => "ImagePullFailed",
            Code::ContainerCreateFailed => "ContainerCreateFailed",
            Code::CrashLoop => "CrashLoop",
            Code::PodFailed => "PodFailed",
            Code::PodsNotCreated => "PodsNotCreated",
            Code::Unschedulable => "Unschedulable",
            Code::NotReadyYet => "NotReadyYet",
            Code::Starting => "Starting",
            Code::RollingOut => "RollingOut",
        }
    }

    /// A start that goes as it should is news; what a person must look at is a problem.
    #[must_use]
    pub fn tone(self) -> Tone {
        match self {
            Code::NotReadyYet | Code::Starting | Code::RollingOut => Tone::News,
            Code::ImagePullFailed
            | Code::ContainerCreateFailed
            | Code::CrashLoop
            | Code::PodFailed
            | Code::PodsNotCreated
            | Code::Unschedulable => Tone::Problem,
        }
    }

    /// What it means, and what to do about it.
    #[must_use]
    pub fn explained(self) -> (&'static str, &'static str) {
        match self {
            Code::ImagePullFailed => (
                "An image cannot be pulled.",
                "Correct the image of runtime or service, or give the Pods a pull secret.",
            ),
            Code::ContainerCreateFailed => (
                "A container cannot be made from its description.",
                "The message names what is missing, often a ConfigMap or a Secret.",
            ),
            Code::CrashLoop => ("A container keeps ending.", "`kubectl logs POD --previous` tells why."),
            Code::PodFailed => {
                ("A Pod ended in failure.", "`kubectl describe pod POD` tells why; evictions pass by themselves.")
            }
            Code::PodsNotCreated => {
                ("The workload's controller cannot make Pods.", "The message has its words, often a quota.")
            }
            Code::Unschedulable => {
                ("No node takes a Pod.", "`ostler explain KIND/NAME` says what each node lacks and what would help.")
            }
            Code::NotReadyYet => ("A container runs and its probe does not succeed yet.", ""),
            Code::Starting => ("A Pod is being set up.", ""),
            Code::RollingOut => ("A new revision is being rolled out.", ""),
        }
    }
}

// === impl Trouble ===

impl Trouble {
    /// As the reason of a condition.
    #[must_use]
    pub fn reason(&self) -> Reason {
        Reason::Workload(self.code)
    }
}

/// Whether the Pod's `Ready` condition holds.
#[must_use]
pub fn pod_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True") && !cluster::object::terminating(pod)
}

/// The most urgent trouble of a workload that is not complete, or `None` if it is.
#[must_use]
pub fn trouble<'a>(workload: &'a Value, pods: impl IntoIterator<Item = &'a Value>) -> Option<Trouble> {
    let progress = Progress::of(workload);
    if progress.complete() {
        return None;
    }
    let worst = pods.into_iter().filter_map(pod_trouble).chain(replica_failure(workload)).min();
    Some(worst.unwrap_or_else(|| waiting(workload, &progress)))
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
    Some(Trouble { code, object: format!("Pod {}", meta(pod, "name")), message, failed })
}

type Finding = (Code, String, bool);

fn failed_phase(pod: &Value) -> Option<Finding> {
    let status = &pod["status"];
    let told =
        [&status["reason"], &status["message"]].into_iter().filter_map(Value::as_str).collect::<Vec<_>>().join(": ");
    (status["phase"] == "Failed")
        .then(|| (Code::PodFailed, if told.is_empty() { "the Pod failed".to_owned() } else { told }, true))
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    lists.into_iter().filter_map(|list| pod["status"][list].as_array()).flatten()
}

fn container_trouble(container: &Value) -> Option<Finding> {
    let waiting = &container["state"]["waiting"];
    let name = container["name"].as_str().unwrap_or_default();
    let detail = waiting["message"].as_str().map(|text| format!(": {text}")).unwrap_or_default();
    let Some(reason) = waiting["reason"].as_str() else {
        // Between two crashes it runs for a while: that is no recovery before it is ready.
        return crashed_before(container).then(|| crash_loop(container, name));
    };
    match reason {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            let image = container["image"].as_str().unwrap_or_default();
            Some((Code::ImagePullFailed, format!("image {image} of container {name} cannot be pulled{detail}"), true))
        }
        "CrashLoopBackOff" => Some(crash_loop(container, name)),
        reason @ ("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") => {
            Some((Code::ContainerCreateFailed, format!("container {name}: {reason}{detail}"), true))
        }
        _ => None,
    }
}

/// Whether a container of the Pod ended in failure, now or before it was restarted.
#[must_use]
pub fn crashed(pod: &Value) -> bool {
    let failed = |state: &Value| state["terminated"]["exitCode"].as_i64().is_some_and(|code| code != 0);
    containers(pod).any(|container| failed(&container["lastState"]) || failed(&container["state"]))
}

fn crashed_before(container: &Value) -> bool {
    let failed = |state: &Value| state["terminated"]["exitCode"].as_i64().is_some_and(|code| code != 0);
    container["ready"] != true && (failed(&container["lastState"]) || failed(&container["state"]))
}

fn crash_loop(container: &Value, name: &str) -> Finding {
    let restarts = container["restartCount"].as_i64().unwrap_or_default();
    let last = &container["lastState"]["terminated"];
    let code = last["exitCode"].as_i64().map(|code| format!(" with exit code {code}")).unwrap_or_default();
    let reason =
        last["message"].as_str().or(last["reason"].as_str()).map(|text| format!(" ({text})")).unwrap_or_default();
    let message = format!("container {name} ended{code}{reason} and was restarted {restarts} times; see its logs");
    (Code::CrashLoop, message, restarts >= RESTARTS_TO_FAIL)
}

fn unschedulable(pod: &Value) -> Option<Finding> {
    let scheduled = condition(pod, "PodScheduled").filter(|scheduled| scheduled["status"] == "False")?;
    let message = scheduled["message"].as_str().unwrap_or("no node takes the Pod");
    Some((Code::Unschedulable, message.to_owned(), false))
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

/// What the container's readiness probe asks, and whether the command line says that somebody listens there: an engine on
/// another port never becomes ready.
fn probed(pod: &Value, name: &str) -> Option<String> {
    let mut containers = pod["spec"]["containers"].as_array()?.iter();
    let container = containers.find(|container| container["name"] == name)?;
    let probe = &container["readinessProbe"];
    let (what, port) = match () {
        () if probe["httpGet"].is_object() => {
            let get = &probe["httpGet"];
            (format!("GET {} on port ", get["path"].as_str().unwrap_or("/")), number(container, &get["port"])?)
        }
        () if probe["grpc"].is_object() => ("gRPC on port ".to_owned(), number(container, &probe["grpc"]["port"])?),
        () => ("port ".to_owned(), number(container, &probe["tcpSocket"]["port"])?),
    };
    let words = ["command", "args"].into_iter().filter_map(|part| container[part].as_array()).flatten();
    let words: Vec<&str> = words.filter_map(Value::as_str).collect();
    let named = words.iter().any(|word| word.contains(port.to_string().as_str()));
    let hint = if named { "" } else { ", which its command line does not name" };
    Some(format!("{what}{port}{hint}"))
}

/// A port, given as such or by the name that the container gives it.
fn number(container: &Value, port: &Value) -> Option<u64> {
    let named = |one: &&Value| one["name"] == *port;
    port.as_u64().or_else(|| container["ports"].as_array()?.iter().find(named)?["containerPort"].as_u64())
}

/// A Deployment that may not make Pods (quota, admission) says so in a condition.
fn replica_failure(workload: &Value) -> Option<Trouble> {
    let failure = condition(workload, "ReplicaFailure").filter(|failure| failure["status"] == "True")?;
    let message = failure["message"].as_str().unwrap_or("Pods cannot be created").to_owned();
    Some(Trouble { code: Code::PodsNotCreated, object: describe(workload), message, failed: true })
}

fn waiting(workload: &Value, progress: &Progress) -> Trouble {
    let Progress { desired, updated, ready, current } = progress;
    let paused =
        if workload["spec"]["paused"] == true { "; it is paused, `ostler rollout resume` goes on" } else { "" };
    let (code, message) = if *current && updated < desired && ready >= desired {
        (Code::RollingOut, format!("{updated} of {desired} replicas are of the new revision{paused}"))
    } else {
        (Code::Starting, format!("{ready} of {desired} replicas are ready"))
    };
    Trouble { code, object: describe(workload), message, failed: false }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    cluster::conditions::find(&object["status"]["conditions"], kind)
}

#[cfg(test)]
mod tests {
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
        "container main ended with exit code 1 (Error) and was restarted 1 times; see its logs",
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
        "CrashLoop", "container main ended with exit code 1 (Error) and was restarted 1 times; see its logs", false)]
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
        let status = json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false, "state": {"running": {}}}]});
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
    #[case::no_status(deployment(1, 1, Value::Null), Some(Code::Starting))]
    #[case::quota(deployment(1, 1, json!({"observedGeneration": 1, "conditions": [{"type": "ReplicaFailure", "status": "True", "message": "quota"}]})),
        Some(Code::PodsNotCreated))]
    fn a_workload_without_pods(#[case] workload: Value, #[case] expect: Option<Code>) {
        assert_eq!(trouble(&workload, []).map(|trouble| trouble.code), expect);
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
}
