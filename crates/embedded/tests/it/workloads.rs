//! Tests of workload controllers, scheduler and node agent together, with paused time and simulated containers.

#![allow(clippy::unwrap_used, clippy::panic)] // clippy exempts test functions but not test helpers

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use embedded::ports::{
    Clock, ContainerConfig, ContainerExit, ContainerRuntime, Devices, Network, NetworkStream, ServerPorts,
};
use embedded::{NodeDirectories, Server};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Clock that follows Tokio's paused time.
pub(crate) struct PausedClock {
    base: jiff::Timestamp,
    start: Instant,
}

/// Simulated containers: image `crash` fails immediately, `job` succeeds, `stubborn` ignores termination, others run
/// until they are stopped.
#[derive(Clone, Default)]
pub(crate) struct SimulatedRuntime {
    /// Pod name and `NAME=value` of each environment variable of the started containers.
    started: Arc<Mutex<Vec<(String, String)>>>,
    runs: Arc<Mutex<Vec<ContainerRun>>>,
}

/// A started container.
struct ContainerRun {
    pod: String,
    gpus: Vec<String>,
}

/// GPUs `NODE/0`, `NODE/1`… of each node.
pub(crate) struct NumberedGpus;

/// Network in which every connection reaches a healthy HTTP server.
pub(crate) struct HealthyNetwork;

/// Server with all controllers.
pub(crate) struct TestCluster {
    pub(crate) server: Server,
    runtime: SimulatedRuntime,
    stop: CancellationToken,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

// === impl PausedClock ===

impl PausedClock {
    pub(crate) fn new() -> Self {
        Self { base: "2026-01-01T00:00:00Z".parse().unwrap(), start: Instant::now() }
    }
}

impl Clock for PausedClock {
    fn now(&self) -> jiff::Timestamp {
        // Paused time may advance by any period that an object contains.
        self.base.saturating_add(jiff::SignedDuration::try_from(self.start.elapsed()).unwrap()).unwrap()
    }
}

// === impl SimulatedRuntime ===

impl ContainerRuntime for SimulatedRuntime {
    fn pull_image(&self, _node: &str, image: &str) -> Result<(), String> {
        if image == "absent" { Err("absent: not found".to_owned()) } else { Ok(()) }
    }

    fn run(&self, container: ContainerConfig, stop: CancellationToken) -> BoxFuture<'static, ContainerExit> {
        let started = container.env.iter().map(|(name, value)| (container.pod.clone(), format!("{name}={value}")));
        self.started.lock().unwrap().extend(started);
        let gpus = container.devices.get("nvidia.com/gpu").cloned().unwrap_or_default();
        self.runs.lock().unwrap().push(ContainerRun { pod: container.pod.clone(), gpus });
        Box::pin(async move {
            match container.image.as_str() {
                "crash" => {
                    container.log.write_line("starting");
                    return ContainerExit { code: 1, message: "it crashed".to_owned() };
                }
                "job" => return ContainerExit { code: 0, message: String::new() },
                "stubborn" => std::future::pending::<()>().await,
                _ => stop.cancelled().await,
            }
            ContainerExit { code: 0, message: String::new() }
        })
    }
}

// === impl NumberedGpus ===

impl Devices for NumberedGpus {
    fn device_ids(&self, node: &str, resource: &str, allocatable: usize) -> Vec<String> {
        (0..allocatable).filter(|_| resource == "nvidia.com/gpu").map(|number| format!("{node}/{number}")).collect()
    }
}

// === impl HealthyNetwork ===

impl Network for HealthyNetwork {
    fn connect(&self, _address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn NetworkStream>>> {
        Box::pin(async move {
            let (client, mut server) = tokio::io::duplex(1024);
            tokio::spawn(async move {
                use tokio::io::{AsyncReadExt, AsyncWriteExt};
                let mut buffer = [0; 1024];
                let _ = server.read(&mut buffer).await;
                let _ = server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            });
            Ok(Box::new(client) as Box<dyn NetworkStream>)
        })
    }
}

// === impl TestCluster ===

impl TestCluster {
    /// Starts a cluster with the nodes `n0`, `n1`… and the given numbers of GPUs.
    pub(crate) fn new(gpus: &[i64]) -> Self {
        let runtime = SimulatedRuntime::default();
        let server = Server::new(&ServerPorts { clock: Arc::new(PausedClock::new()), ..ServerPorts::default() });
        for (index, gpus) in gpus.iter().enumerate() {
            let allocatable =
                json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": gpus.to_string()});
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{index}")},
                "status": {"allocatable": allocatable, "capacity": allocatable},
            });
            let stored = server.create("nodes", node.clone()).unwrap();
            let mut with_status = stored.as_ref().clone();
            with_status["status"] = node["status"].clone();
            server.update_status("nodes", with_status).unwrap();
        }
        Self::start_controllers(server, runtime)
    }

    fn start_controllers(server: Server, runtime: SimulatedRuntime) -> Self {
        let stop = CancellationToken::new();
        let tasks = vec![
            tokio::spawn(embedded::run_workload_controllers(server.clone(), None, stop.clone())),
            tokio::spawn(embedded::run_node_lifecycle_controller(server.clone(), stop.clone())),
            tokio::spawn(embedded::run_scheduler(server.clone(), stop.clone())),
            tokio::spawn(embedded::run_node_agent(
                server.clone(),
                Arc::new(runtime.clone()),
                Arc::new(HealthyNetwork),
                Arc::new(NumberedGpus),
                NodeDirectories::default(),
                stop.clone(),
            )),
        ];
        Self { server, runtime, stop, tasks }
    }

    /// Returns the GPUs of each run of the containers of a Pod.
    pub(crate) fn gpus_of_runs(&self, pod: &str) -> Vec<Vec<String>> {
        let runs = self.runtime.runs.lock().unwrap();
        runs.iter().filter(|run| run.pod == pod).map(|run| run.gpus.clone()).collect()
    }

    /// Restarts everything except the server.
    pub(crate) async fn restart_controllers(self) -> Self {
        let (server, runtime) = (self.server.clone(), self.runtime.clone());
        self.stop().await;
        Self::start_controllers(server, runtime)
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }

    /// Waits for a condition, for at most an hour of paused time.
    pub(crate) async fn wait_for(&self, description: &str, predicate: impl Fn(&Server) -> bool) {
        let mut changes = self.server.subscribe();
        let waiting = async {
            while !predicate(&self.server) {
                let _ = changes.next().await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(3600), waiting).await.is_err() {
            let statuses: Vec<String> = ["deployments.apps", "replicasets.apps", "pods"]
                .iter()
                .flat_map(|resource| self.server.list(resource))
                .map(|object| {
                    format!("{} {} {}", object["metadata"]["name"], object["metadata"]["generation"], object["status"])
                })
                .collect();
            panic!("timed out waiting for: {description}\n{}", statuses.join("\n"));
        }
    }

    pub(crate) fn pods(&self) -> Vec<Arc<Value>> {
        self.server.list("pods")
    }

    fn deployment(&self) -> Arc<Value> {
        self.server.get("deployments.apps", "default", "web").unwrap()
    }
}

pub(crate) fn deployment(replicas: i64, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{
                    "name": "main", "image": image,
                    "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                    "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
                }]},
            },
        },
    })
}

pub(crate) fn pod(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|c| c["type"] == kind)).unwrap_or(&Value::Null)
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready")["status"] == "True"
}

pub(crate) fn is_rolled_out(server: &Server, replicas: i64) -> bool {
    let Some(web) = server.get("deployments.apps", "default", "web") else { return false };
    let status = &web["status"];
    status["observedGeneration"] == web["metadata"]["generation"]
        && ["replicas", "readyReplicas", "updatedReplicas", "availableReplicas"].iter().all(|f| status[*f] == replicas)
        && server.list("pods").len() == usize::try_from(replicas).unwrap()
}

#[tokio::test(start_paused = true)]
async fn deployment_scales_rolls_out_and_is_deleted() {
    let cluster = TestCluster::new(&[0]);
    cluster.server.create("deployments.apps", deployment(2, "one")).unwrap();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]},
    });
    cluster.server.create("services", service).unwrap();
    cluster.wait_for("two ready pods", |server| is_rolled_out(server, 2)).await;
    assert_eq!(condition(&cluster.deployment(), "Available")["status"], "True");
    assert_eq!(condition(&cluster.deployment(), "Progressing")["reason"], "NewReplicaSetAvailable");
    let pods = cluster.pods();
    assert!(pods.iter().all(|pod| is_ready(pod) && pod["status"]["phase"] == "Running"));
    let addresses: BTreeSet<_> = pods.iter().map(|p| p["status"]["podIP"].as_str().unwrap().to_owned()).collect();
    assert!(addresses.len() == 2 && addresses.iter().all(|a| a.starts_with("127.")), "{addresses:?}");
    cluster
        .wait_for("two endpoints", |server| {
            let slices = server.list("endpointslices.discovery.k8s.io");
            slices.len() == 1 && slices[0]["endpoints"].as_array().is_some_and(|e| e.len() == 2)
        })
        .await;

    let mut scaled = cluster.deployment().as_ref().clone();
    scaled["spec"]["replicas"] = json!(3);
    cluster.server.update("deployments.apps", scaled).unwrap();
    cluster.wait_for("three ready pods", |server| is_rolled_out(server, 3)).await;

    let mut updated = cluster.deployment().as_ref().clone();
    updated["spec"]["template"]["spec"]["containers"][0]["image"] = json!("two");
    cluster.server.update("deployments.apps", updated).unwrap();
    cluster.wait_for("all pods have the new image", |server| is_rolled_out(server, 3)).await;
    assert!(cluster.pods().iter().all(|pod| pod["spec"]["containers"][0]["image"] == "two"));
    assert_eq!(cluster.deployment()["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    assert_eq!(cluster.server.list("replicasets.apps").len(), 2);

    cluster.server.delete("deployments.apps", "default", "web", None).unwrap();
    cluster
        .wait_for("everything is deleted", |server| {
            server.list("pods").is_empty() && server.list("replicasets.apps").is_empty()
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn idle_cluster_writes_nothing() {
    let cluster = TestCluster::new(&[0]);
    cluster.server.create("deployments.apps", deployment(2, "one")).unwrap();
    cluster.wait_for("two ready pods", |server| is_rolled_out(server, 2)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut changes = cluster.server.subscribe();
    let next_change = tokio::time::timeout(Duration::from_secs(3000), changes.next()).await;
    assert!(next_change.is_err(), "{next_change:?}");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unschedulable_pod_reports_reason_until_resources_are_available() {
    let cluster = TestCluster::new(&[2, 1]);
    let gpu_pod_spec = |gpus: i64| json!({"containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]});
    cluster.server.create("pods", pod("big", gpu_pod_spec(4))).unwrap();
    cluster
        .wait_for("an unschedulable condition", |s| {
            condition(&s.list("pods")[0], "PodScheduled")["reason"] == "Unschedulable"
        })
        .await;
    let stored = &cluster.pods()[0];
    assert_eq!(
        condition(stored, "PodScheduled")["message"],
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    let failed_scheduling_events = |server: &Server| {
        let events: Vec<_> = server.list("events").into_iter().filter(|e| e["reason"] == "FailedScheduling").collect();
        (events.len(), events.first().map_or(1, |e| e["count"].as_i64().unwrap_or(1)))
    };
    assert_eq!(failed_scheduling_events(&cluster.server), (1, 1), "one event per change");

    let mut node = cluster.server.get("nodes", "", "n0").unwrap().as_ref().clone();
    node["status"]["allocatable"]["nvidia.com/gpu"] = json!("4");
    cluster.server.update_status("nodes", node).unwrap();
    cluster.wait_for("the Pod is ready", |s| is_ready(&s.list("pods")[0])).await;
    assert_eq!(cluster.pods()[0]["spec"]["nodeName"], "n0");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn crashing_container_backs_off() {
    let cluster = TestCluster::new(&[0]);
    let start = Instant::now();
    cluster.server.create("pods", pod("bad", json!({"containers": [{"name": "c", "image": "crash", "terminationMessagePolicy": "FallbackToLogsOnError"}]}))).unwrap();
    let restarted =
        |times: i64| move |s: &Server| s.list("pods")[0]["status"]["containerStatuses"][0]["restartCount"] == times;
    cluster.wait_for("the first restart", restarted(1)).await;
    cluster
        .wait_for("back-off", |s| {
            s.list("pods")[0]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        })
        .await;
    assert!(start.elapsed() < Duration::from_secs(1), "the first restart is immediate");
    let status = cluster.pods()[0]["status"].clone();
    assert_eq!(status["phase"], "Running");
    let terminated = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&terminated["exitCode"], &terminated["message"]), (&json!(1), &json!("it crashed")));
    let message = status["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.starts_with("back-off 10s restarting failed container=c pod=bad_default("), "{message}");
    cluster.wait_for("the third restart", restarted(3)).await;
    let elapsed = start.elapsed().as_secs();
    assert!((30..31).contains(&elapsed), "10 s and 20 s, not {elapsed} s");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn image_errors_are_reported_like_kubelet() {
    let cluster = TestCluster::new(&[0]);
    cluster.server.create("pods", pod("absent", json!({"containers": [{"name": "c", "image": "absent"}]}))).unwrap();
    cluster
        .server
        .create("pods", pod("wrong", json!({"containers": [{"name": "c", "image": "No/Such Image"}]})))
        .unwrap();
    let waiting = |server: &Server, name: &str| {
        let pod = server.get("pods", "default", name)?;
        Some(pod["status"]["containerStatuses"][0]["state"]["waiting"].clone())
    };
    for (name, reason, message) in [
        ("wrong", "InvalidImageName", "Failed to apply default image tag \"No/Such Image\": couldn't parse image name"),
        ("absent", "ErrImagePull", "absent: not found"),
        ("absent", "ImagePullBackOff", "Back-off pulling image \"absent\": ErrImagePull: absent: not found"),
        ("absent", "ErrImagePull", "absent: not found"),
    ] {
        cluster.wait_for(reason, |server| waiting(server, name).is_some_and(|state| state["reason"] == reason)).await;
        let state = waiting(&cluster.server, name).unwrap();
        assert!(state["message"].as_str().unwrap().starts_with(message), "{state}");
    }
    assert!(cluster.pods().iter().all(|pod| pod["status"]["phase"] == "Pending"), "no container started");
    let events = cluster.server.list("events");
    let has_event = |note: &str| events.iter().any(|event| event["note"] == note || event["message"] == note);
    assert!(has_event("Failed to pull image \"absent\": absent: not found") && has_event("Error: InvalidImageName"));
    for name in ["absent", "wrong"] {
        cluster.server.delete("pods", "default", name, None).unwrap();
    }
    cluster.wait_for("all Pods are deleted", |server| server.list("pods").is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn restarted_node_agent_recreates_sandbox() {
    let cluster = TestCluster::new(&[0]);
    cluster.server.create("pods", pod("p", json!({"containers": [{"name": "c", "image": "serve"}]}))).unwrap();
    cluster.wait_for("the Pod is ready", |s| is_ready(&s.list("pods")[0])).await;
    let sandbox_events =
        |s: &Server| s.list("events").iter().filter(|event| event["reason"] == "SandboxChanged").count();
    assert_eq!(sandbox_events(&cluster.server), 0);
    let cluster = cluster.restart_controllers().await;
    cluster.wait_for("the event", |s| sandbox_events(s) == 1).await;
    cluster.wait_for("the Pod is ready again", |s| is_ready(&s.list("pods")[0])).await;
    assert_eq!(cluster.pods()[0]["status"]["containerStatuses"][0]["restartCount"], 1);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn container_is_killed_after_grace_period() {
    let cluster = TestCluster::new(&[0]);
    let spec = json!({"terminationGracePeriodSeconds": 7, "containers": [{"name": "c", "image": "stubborn"}]});
    cluster.server.create("pods", pod("p", spec)).unwrap();
    cluster.wait_for("the Pod is ready", |s| is_ready(&s.list("pods")[0])).await;
    let start = Instant::now();
    cluster.server.delete("pods", "default", "p", None).unwrap();
    cluster.wait_for("the Pod is deleted", |s| s.list("pods").is_empty()).await;
    assert_eq!(start.elapsed().as_secs(), 7);
    cluster.stop().await;
}

/// The container ignores the termination, and time does not reach the first grace period. Without `activeDeadlineSeconds`,
/// the first deletion terminates the Pod.
#[rstest]
#[case::deleted(None)]
#[case::deadline_exceeded(Some(20))]
#[tokio::test(start_paused = true)]
async fn repeated_deletion_shortens_the_termination(#[case] active_deadline_seconds: Option<i64>) {
    let cluster = TestCluster::new(&[0]);
    let spec = json!({
        "terminationGracePeriodSeconds": 999_999_999_999_i64, "activeDeadlineSeconds": active_deadline_seconds,
        "containers": [{"name": "c", "image": "stubborn"}],
    });
    cluster.server.create("pods", pod("p", spec)).unwrap();
    cluster.wait_for("the Pod is ready", |s| is_ready(&s.list("pods")[0])).await;
    if active_deadline_seconds.is_some() {
        let has_event = |s: &Server| s.list("events").iter().any(|event| event["reason"] == "DeadlineExceeded");
        cluster.wait_for("the deadline", has_event).await;
    }
    let pods = Api::<Pod>::namespaced(crate::client(&cluster.server), "default");
    let delete = async |grace_period_seconds| {
        pods.delete("p", &DeleteParams { grace_period_seconds, ..DeleteParams::default() }).await.unwrap();
    };
    delete(None).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(cluster.server.get("pods", "default", "p").is_some(), "its container ignores the termination");
    delete(Some(1)).await;
    cluster.wait_for("the Pod is deleted", |s| s.list("pods").is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn init_containers_run_first_and_missing_secret_is_reported() {
    let cluster = TestCluster::new(&[0]);
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "first", "image": "job"}],
        "containers": [{"name": "c", "image": "job", "env": [
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
        ]}],
    });
    cluster.server.create("pods", pod("p", spec)).unwrap();
    let waiting = |s: &Server| s.list("pods")[0]["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    cluster.wait_for("CreateContainerConfigError", |s| waiting(s)["reason"] == "CreateContainerConfigError").await;
    assert_eq!(waiting(&cluster.server)["message"], "secret \"hf\" not found");
    assert_eq!(condition(&cluster.pods()[0], "Initialized")["status"], "True");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf", "namespace": "default"},
        "data": {"token": "c2VjcmV0"},
    });
    cluster.server.create("secrets", secret).unwrap();
    cluster.wait_for("the Pod has succeeded", |s| s.list("pods")[0]["status"]["phase"] == "Succeeded").await;
    cluster.stop().await;
}

const LEADER_WORKER_SETS: &str = "leaderworkersets.leaderworkerset.x-k8s.io";

fn leader_worker_set_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "leaderworkersets.leaderworkerset.x-k8s.io"},
        "spec": {
            "group": "leaderworkerset.x-k8s.io", "scope": "Namespaced",
            "names": {"plural": "leaderworkersets", "singular": "leaderworkerset", "kind": "LeaderWorkerSet", "listKind": "LeaderWorkerSetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// Workers are owned by their leaders; a disruption budget counts each Pod of the set once.
#[tokio::test(start_paused = true)]
async fn disruption_budget_counts_each_group_pod_once() {
    let cluster = TestCluster::new(&[0]);
    cluster.server.create("customresourcedefinitions.apiextensions.k8s.io", leader_worker_set_definition()).unwrap();
    let set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "llama", "namespace": "default"},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}},
    });
    cluster.server.create(LEADER_WORKER_SETS, set).unwrap();
    let budget = json!({"metadata": {"name": "llama", "namespace": "default"}, "spec": {"maxUnavailable": 1,
        "selector": {"matchLabels": {"leaderworkerset.sigs.k8s.io/name": "llama"}}}});
    cluster.server.create("poddisruptionbudgets.policy", budget).unwrap();
    cluster
        .wait_for("four of four healthy pods", |server| {
            let budget = server.get("poddisruptionbudgets.policy", "default", "llama").unwrap();
            let counts =
                ["expectedPods", "currentHealthy", "disruptionsAllowed"].map(|field| budget["status"][field].clone());
            counts == [json!(4), json!(4), json!(1)]
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn leader_worker_set_passes_leader_address_to_workers() {
    let cluster = TestCluster::new(&[0]);
    cluster.server.create("customresourcedefinitions.apiextensions.k8s.io", leader_worker_set_definition()).unwrap();
    let set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "llama", "namespace": "default"},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}},
    });
    cluster.server.create(LEADER_WORKER_SETS, set).unwrap();
    cluster
        .wait_for("the group is ready", |s| {
            condition(&s.get(LEADER_WORKER_SETS, "default", "llama").unwrap(), "Available")["status"] == "True"
        })
        .await;
    let set = cluster.server.get(LEADER_WORKER_SETS, "default", "llama").unwrap();
    assert_eq!((&set["status"]["replicas"], &set["status"]["readyReplicas"]), (&json!(1), &json!(1)));
    let pods = cluster.pods();
    let names: Vec<_> = pods.iter().map(|p| p["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["llama-0", "llama-0-1"]);
    let leader = pods[0]["status"]["podIP"].as_str().unwrap();
    let expected = ("llama-0-1".to_owned(), format!("LWS_LEADER_ADDRESS={leader}"));
    let started_containers = cluster.runtime.started.lock().unwrap().clone();
    assert!(started_containers.contains(&expected), "{started_containers:?}");
    cluster.server.delete(LEADER_WORKER_SETS, "default", "llama", None).unwrap();
    cluster.wait_for("everything is deleted", |s| s.list("pods").is_empty() && s.list("services").is_empty()).await;
    cluster.stop().await;
}
