//! Workload controllers, scheduler and node agent together, on paused time and with containers that only pretend.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not marked as tests

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use embedded::Server;
use embedded::node::Folders;
use embedded::ports::{AdmitAll, Clock, Container, Exit, Network, Ports, Runner, Stream, SystemRandom};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A clock that goes with tokio's paused time.
struct Paused {
    base: jiff::Timestamp,
    start: Instant,
}

impl Clock for Paused {
    fn now(&self) -> jiff::Timestamp {
        self.base.checked_add(jiff::SignedDuration::try_from(self.start.elapsed()).unwrap()).unwrap()
    }
}

/// Image `crash` fails at once, `stubborn` ignores being stopped, anything else runs until it is.
#[derive(Clone, Default)]
struct Pretend {
    /// Pod and environment of every start.
    started: Arc<Mutex<Vec<(String, String)>>>,
}

impl Runner for Pretend {
    fn pull(&self, _node: &str, image: &str) -> Result<(), String> {
        if image == "absent" { Err("absent: not found".to_owned()) } else { Ok(()) }
    }

    fn run(&self, container: Container, stop: CancellationToken) -> BoxFuture<'static, Exit> {
        let started = container.env.iter().map(|(name, value)| (container.pod.clone(), format!("{name}={value}")));
        self.started.lock().unwrap().extend(started);
        Box::pin(async move {
            match container.image.as_str() {
                "crash" => return Exit { code: 1, message: "it crashed".to_owned() },
                "job" => return Exit { code: 0, message: String::new() },
                "stubborn" => std::future::pending::<()>().await,
                _ => stop.cancelled().await,
            }
            Exit { code: 0, message: String::new() }
        })
    }
}

/// Answers every connection as a healthy HTTP server.
struct Healthy;

impl Network for Healthy {
    fn connect(&self, _address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(1024);
            tokio::spawn(async move {
                use tokio::io::{AsyncReadExt, AsyncWriteExt};
                let mut stream = theirs;
                let mut buffer = [0; 1024];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            });
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

pub(crate) struct World {
    pub(crate) server: Server,
    runner: Pretend,
    ports: Ports,
    stop: CancellationToken,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl World {
    /// Nodes `n0`, `n1`… with so many GPUs each.
    pub(crate) fn new(gpus: &[i64]) -> Self {
        let runner = Pretend::default();
        let ports = Ports {
            clock: Arc::new(Paused { base: "2026-01-01T00:00:00Z".parse().unwrap(), start: Instant::now() }),
            random: Arc::new(SystemRandom),
            admission: Arc::new(AdmitAll),
            runner: Arc::new(runner.clone()),
            network: Arc::new(Healthy),
        };
        let server = Server::new(&ports);
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
        Self::around(server, runner, ports)
    }

    fn around(server: Server, runner: Pretend, ports: Ports) -> Self {
        let stop = CancellationToken::new();
        let tasks = vec![
            tokio::spawn(embedded::workloads::run(server.clone(), ports.clone(), None, stop.clone())),
            tokio::spawn(embedded::node_lifecycle::run(server.clone(), ports.clone(), stop.clone())),
            tokio::spawn(embedded::scheduler::run(server.clone(), ports.clone(), stop.clone())),
            tokio::spawn(embedded::node::run(server.clone(), ports.clone(), Folders::default(), stop.clone())),
        ];
        Self { server, runner, ports, stop, tasks }
    }

    /// All that runs beside the server ends and runs again.
    async fn again(self) -> Self {
        let (server, runner, ports) = (self.server.clone(), self.runner.clone(), self.ports.clone());
        self.end().await;
        Self::around(server, runner, ports)
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }

    /// Waits for something to become true; an hour of paused time is the limit.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Server) -> bool) {
        let mut changes = self.server.subscribe();
        let waiting = async {
            while !holds(&self.server) {
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
            panic!("never: {what}\n{}", statuses.join("\n"));
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

pub(crate) fn settled(server: &Server, replicas: i64) -> bool {
    let Some(web) = server.get("deployments.apps", "default", "web") else { return false };
    let status = &web["status"];
    status["observedGeneration"] == web["metadata"]["generation"]
        && ["replicas", "readyReplicas", "updatedReplicas", "availableReplicas"].iter().all(|f| status[*f] == replicas)
        && server.list("pods").len() == usize::try_from(replicas).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_runs_scales_rolls_and_goes() {
    let world = World::new(&[0]);
    world.server.create("deployments.apps", deployment(2, "one")).unwrap();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]},
    });
    world.server.create("services", service).unwrap();
    world.until("two ready pods", |server| settled(server, 2)).await;
    assert_eq!(condition(&world.deployment(), "Available")["status"], "True");
    assert_eq!(condition(&world.deployment(), "Progressing")["reason"], "NewReplicaSetAvailable");
    let pods = world.pods();
    assert!(pods.iter().all(|pod| is_ready(pod) && pod["status"]["phase"] == "Running"));
    let addresses: BTreeSet<_> = pods.iter().map(|p| p["status"]["podIP"].as_str().unwrap().to_owned()).collect();
    assert!(addresses.len() == 2 && addresses.iter().all(|a| a.starts_with("127.")), "{addresses:?}");
    world
        .until("two endpoints", |server| {
            let slices = server.list("endpointslices.discovery.k8s.io");
            slices.len() == 1 && slices[0]["endpoints"].as_array().is_some_and(|e| e.len() == 2)
        })
        .await;

    let mut scaled = world.deployment().as_ref().clone();
    scaled["spec"]["replicas"] = json!(3);
    world.server.update("deployments.apps", scaled).unwrap();
    world.until("three", |server| settled(server, 3)).await;

    let mut rolled = world.deployment().as_ref().clone();
    rolled["spec"]["template"]["spec"]["containers"][0]["image"] = json!("two");
    world.server.update("deployments.apps", rolled).unwrap();
    world.until("all of the new image", |server| settled(server, 3)).await;
    assert!(world.pods().iter().all(|pod| pod["spec"]["containers"][0]["image"] == "two"));
    assert_eq!(world.deployment()["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    assert_eq!(world.server.list("replicasets.apps").len(), 2);

    world.server.delete("deployments.apps", "default", "web", None).unwrap();
    world
        .until("nothing left", |server| server.list("pods").is_empty() && server.list("replicasets.apps").is_empty())
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_settled_cluster_writes_nothing() {
    let world = World::new(&[0]);
    world.server.create("deployments.apps", deployment(2, "one")).unwrap();
    world.until("two ready pods", |server| settled(server, 2)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut changes = world.server.subscribe();
    let quiet = tokio::time::timeout(Duration::from_secs(3000), changes.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_room_says_why_until_there_is_room() {
    let world = World::new(&[2, 1]);
    let wants = |gpus: i64| json!({"containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]});
    world.server.create("pods", pod("big", wants(4))).unwrap();
    world.until("a reason", |s| condition(&s.list("pods")[0], "PodScheduled")["reason"] == "Unschedulable").await;
    let stored = &world.pods()[0];
    assert_eq!(
        condition(stored, "PodScheduled")["message"],
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    let failed = |server: &Server| {
        let events: Vec<_> = server.list("events").into_iter().filter(|e| e["reason"] == "FailedScheduling").collect();
        (events.len(), events.first().map_or(1, |e| e["count"].as_i64().unwrap_or(1)))
    };
    assert_eq!(failed(&world.server), (1, 1), "once per change");

    let mut node = world.server.get("nodes", "", "n0").unwrap().as_ref().clone();
    node["status"]["allocatable"]["nvidia.com/gpu"] = json!("4");
    world.server.update_status("nodes", node).unwrap();
    world.until("it runs", |s| is_ready(&s.list("pods")[0])).await;
    assert_eq!(world.pods()[0]["spec"]["nodeName"], "n0");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_crashing_container_backs_off() {
    let world = World::new(&[0]);
    let begun = Instant::now();
    world.server.create("pods", pod("bad", json!({"containers": [{"name": "c", "image": "crash"}]}))).unwrap();
    let restarted =
        |times: i64| move |s: &Server| s.list("pods")[0]["status"]["containerStatuses"][0]["restartCount"] == times;
    world.until("the first restart", restarted(1)).await;
    world
        .until("back-off", |s| {
            s.list("pods")[0]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        })
        .await;
    assert!(begun.elapsed() < Duration::from_secs(1), "the first restart is at once");
    let status = world.pods()[0]["status"].clone();
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 1);
    let message = status["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.starts_with("back-off 10s restarting failed container=c pod=bad_default("), "{message}");
    world.until("the third restart", restarted(3)).await;
    let elapsed = begun.elapsed().as_secs();
    assert!((30..31).contains(&elapsed), "10 s and 20 s, not {elapsed} s");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_is_told_as_a_kubelet_tells_it() {
    let world = World::new(&[0]);
    world.server.create("pods", pod("absent", json!({"containers": [{"name": "c", "image": "absent"}]}))).unwrap();
    world
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
        world.until(reason, |server| waiting(server, name).is_some_and(|told| told["reason"] == reason)).await;
        let told = waiting(&world.server, name).unwrap();
        assert!(told["message"].as_str().unwrap().starts_with(message), "{told}");
    }
    assert!(world.pods().iter().all(|pod| pod["status"]["phase"] == "Pending"), "nothing of them ran");
    let events = world.server.list("events");
    let told = |note: &str| events.iter().any(|event| event["note"] == note || event["message"] == note);
    assert!(told("Failed to pull image \"absent\": absent: not found") && told("Error: InvalidImageName"));
    for name in ["absent", "wrong"] {
        world.server.delete("pods", "default", name, None).unwrap();
    }
    world.until("nothing is left", |server| server.list("pods").is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn only_a_pod_that_ran_before_has_a_new_sandbox() {
    let world = World::new(&[0]);
    world.server.create("pods", pod("p", json!({"containers": [{"name": "c", "image": "serve"}]}))).unwrap();
    world.until("it runs", |s| is_ready(&s.list("pods")[0])).await;
    let told = |s: &Server| s.list("events").iter().filter(|event| event["reason"] == "SandboxChanged").count();
    assert_eq!(told(&world.server), 0);
    let world = world.again().await;
    world.until("the event", |s| told(s) == 1).await;
    world.until("it runs again", |s| is_ready(&s.list("pods")[0])).await;
    assert_eq!(world.pods()[0]["status"]["containerStatuses"][0]["restartCount"], 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stubborn_container_is_killed_after_its_grace() {
    let world = World::new(&[0]);
    let spec = json!({"terminationGracePeriodSeconds": 7, "containers": [{"name": "c", "image": "stubborn"}]});
    world.server.create("pods", pod("p", spec)).unwrap();
    world.until("it runs", |s| is_ready(&s.list("pods")[0])).await;
    let begun = Instant::now();
    world.server.delete("pods", "default", "p", None).unwrap();
    world.until("it is gone", |s| s.list("pods").is_empty()).await;
    assert_eq!(begun.elapsed().as_secs(), 7);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn init_containers_come_first_and_a_missing_secret_is_named() {
    let world = World::new(&[0]);
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "first", "image": "job"}],
        "containers": [{"name": "c", "image": "job", "env": [
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
        ]}],
    });
    world.server.create("pods", pod("p", spec)).unwrap();
    let waiting = |s: &Server| s.list("pods")[0]["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    world.until("the reason", |s| waiting(s)["reason"] == "CreateContainerConfigError").await;
    assert_eq!(waiting(&world.server)["message"], "secret \"hf\" not found");
    assert_eq!(condition(&world.pods()[0], "Initialized")["status"], "True");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf", "namespace": "default"},
        "data": {"token": "c2VjcmV0"},
    });
    world.server.create("secrets", secret).unwrap();
    world.until("it is done", |s| s.list("pods")[0]["status"]["phase"] == "Succeeded").await;
    world.end().await;
}

const SETS: &str = "leaderworkersets.leaderworkerset.x-k8s.io";

fn leader_worker_sets() -> Value {
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

/// Workers belong to their leaders; a budget expects what the set wants, and no worker twice.
#[tokio::test(start_paused = true)]
async fn a_budget_of_groups_counts_each_pod_once() {
    let world = World::new(&[0]);
    world.server.create("customresourcedefinitions.apiextensions.k8s.io", leader_worker_sets()).unwrap();
    let set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "llama", "namespace": "default"},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}},
    });
    world.server.create(SETS, set).unwrap();
    let budget = json!({"metadata": {"name": "llama", "namespace": "default"}, "spec": {"maxUnavailable": 1,
        "selector": {"matchLabels": {"leaderworkerset.sigs.k8s.io/name": "llama"}}}});
    world.server.create("poddisruptionbudgets.policy", budget).unwrap();
    world
        .until("four of four", |server| {
            let budget = server.get("poddisruptionbudgets.policy", "default", "llama").unwrap();
            let counts =
                ["expectedPods", "currentHealthy", "disruptionsAllowed"].map(|it| budget["status"][it].clone());
            counts == [json!(4), json!(4), json!(1)]
        })
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_worker_set_gives_workers_the_leaders_address() {
    let world = World::new(&[0]);
    world.server.create("customresourcedefinitions.apiextensions.k8s.io", leader_worker_sets()).unwrap();
    let set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "llama", "namespace": "default"},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}},
    });
    world.server.create(SETS, set).unwrap();
    world
        .until("the group is ready", |s| {
            condition(&s.get(SETS, "default", "llama").unwrap(), "Available")["status"] == "True"
        })
        .await;
    let set = world.server.get(SETS, "default", "llama").unwrap();
    assert_eq!((&set["status"]["replicas"], &set["status"]["readyReplicas"]), (&json!(1), &json!(1)));
    let pods = world.pods();
    let names: Vec<_> = pods.iter().map(|p| p["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["llama-0", "llama-0-1"]);
    let leader = pods[0]["status"]["podIP"].as_str().unwrap();
    let expect = ("llama-0-1".to_owned(), format!("LWS_LEADER_ADDRESS={leader}"));
    let started = world.runner.started.lock().unwrap().clone();
    assert!(started.contains(&expect), "{started:?}");
    world.server.delete(SETS, "default", "llama", None).unwrap();
    world.until("nothing left", |s| s.list("pods").is_empty() && s.list("services").is_empty()).await;
    world.end().await;
}
