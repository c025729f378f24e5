//! A cluster with the embedded workload controllers, scheduler and node agent, on paused time and with simulated
//! containers.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use embedded::ports::{
    ContainerConfig, ContainerExit, ContainerPurpose, ContainerRuntime, Network, NetworkStream, NoDevices, ServerPorts,
};
use embedded::{NodeDirectories, Server};
use futures::future::BoxFuture;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::test_cluster::{FUSIONINFER_SERVICES, PausedClock, TIMEOUT, TestCluster};

pub(crate) const LEADER_WORKER_SETS: &str = "leaderworkersets.leaderworkerset.x-k8s.io";
pub(crate) const POD_GROUPS: &str = "podgroups.scheduling.volcano.sh";
pub(crate) const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const GPUS_PER_NODE: usize = 8;

/// The command of a container, as the container runtime starts it.
#[derive(Clone)]
pub(crate) struct StartedContainer {
    pub(crate) command: Vec<String>,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
}

/// Containers with image `bad` fail after one second; others run until they are stopped, and exit like processes that
/// SIGTERM ends.
#[derive(Default)]
struct SimulatedContainerRuntime {
    /// The last container of each Pod, by the name of the Pod.
    started: Arc<Mutex<BTreeMap<String, StartedContainer>>>,
}

impl ContainerRuntime for SimulatedContainerRuntime {
    fn run(&self, container: ContainerConfig, stop: CancellationToken) -> BoxFuture<'static, ContainerExit> {
        let (command, args) = (container.command.clone(), container.args.clone());
        let started = StartedContainer { command, args, env: container.env.iter().cloned().collect() };
        self.started.lock().unwrap().insert(container.pod.clone(), started);
        Box::pin(async move {
            if container.purpose == ContainerPurpose::Service && container.image != "bad" {
                stop.cancelled().await;
                return ContainerExit { code: 143, message: String::new() };
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            ContainerExit { code: i32::from(container.image == "bad"), message: String::new() }
        })
    }
}

/// Accepts every connection as a healthy HTTP and gRPC server, except to the unreachable Pods.
#[derive(Default)]
struct HealthyNetwork {
    unreachable: Arc<Mutex<BTreeSet<IpAddr>>>,
}

impl Network for HealthyNetwork {
    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn NetworkStream>>> {
        let is_unreachable = self.unreachable.lock().unwrap().contains(&address.ip());
        Box::pin(async move {
            if is_unreachable {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (client_stream, server_stream) = tokio::io::duplex(4096);
            tokio::spawn(async move {
                let service = TowerToHyperService::new(tower::service_fn(|_request| async {
                    Ok::<_, Infallible>(serving_response())
                }));
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(server_stream), service).await;
            });
            Ok(Box::new(client_stream) as Box<dyn NetworkStream>)
        })
    }
}

/// Returns `SERVING` as a message of `grpc.health.v1`.
fn serving_response() -> http::Response<axum::body::Body> {
    let message: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
    http::Response::builder().header("grpc-status", "0").body(message.into()).unwrap()
}

/// A simulated cluster and its test harness.
pub(crate) struct SimulatedCluster {
    pub(crate) test_cluster: TestCluster,
    pub(crate) server: Server,
    nodes: usize,
    started: Arc<Mutex<BTreeMap<String, StartedContainer>>>,
    unreachable: Arc<Mutex<BTreeSet<IpAddr>>>,
}

/// Reads a value from the server; returns `None` if it does not exist yet.
pub(crate) type Probe<'a, T> = &'a dyn Fn(&Server) -> Option<T>;

impl SimulatedCluster {
    /// Starts a cluster with the CRDs of ostler and of all integrations, and nodes of eight GPUs.
    pub(crate) fn with_gpus(gpus: usize) -> SimulatedCluster {
        SimulatedCluster::with_crds(gpus, [api::crds(), api::integrations::crds()].concat())
    }

    /// Starts a cluster with eight GPUs in which Story 2 of the role-based services, as printed, is ready.
    pub(crate) async fn with_story_2() -> SimulatedCluster {
        let cluster = SimulatedCluster::with_gpus(8);
        let text = include_str!("../../../plan/src/tests/stories/roles-2.yaml");
        let mut service = api::parse_manifest("roles-2.yaml", text).unwrap().remove(0).value;
        service["metadata"]["namespace"] = json!("default");
        cluster.server.create(FUSIONINFER_SERVICES, service).unwrap();
        cluster.wait_until_ready("qwen-inference-service").await;
        cluster
    }

    pub(crate) fn with_crds(gpus: usize, crds: Vec<Value>) -> SimulatedCluster {
        let mut cluster = SimulatedCluster::without_operator(crds);
        cluster.test_cluster.start_operator(operator::Options::default());
        cluster.scale_nodes_to(gpus);
        cluster
    }

    /// Starts a cluster with these CRDs, without nodes and without a running operator.
    pub(crate) fn without_operator(crds: Vec<Value>) -> SimulatedCluster {
        let clock = Arc::new(PausedClock::start());
        let server = Server::new(&ServerPorts { clock, ..ServerPorts::default() });
        let (runtime, network) = (Arc::new(SimulatedContainerRuntime::default()), Arc::new(HealthyNetwork::default()));
        let (started, unreachable) = (Arc::clone(&runtime.started), Arc::clone(&network.unreachable));
        for definition in crds {
            server.create(CRDS, definition).unwrap();
        }
        let test_cluster = TestCluster::without_operator(server.clone());
        let stop = test_cluster.shutdown_token();
        tokio::spawn(embedded::run_workload_controllers(server.clone(), None, stop.clone()));
        tokio::spawn(embedded::run_scheduler(server.clone(), stop.clone()));
        tokio::spawn(embedded::run_node_lifecycle_controller(server.clone(), stop.clone()));
        let (devices, directories) = (Arc::new(NoDevices), NodeDirectories::default());
        tokio::spawn(embedded::run_node_agent(server.clone(), runtime, network, devices, directories, stop));
        SimulatedCluster { test_cluster, server, nodes: 0, started, unreachable }
    }

    /// Adds nodes until the cluster has `gpus` GPUs.
    pub(crate) fn scale_nodes_to(&mut self, gpus: usize) {
        for index in self.nodes..gpus / GPUS_PER_NODE {
            let resources =
                json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": GPUS_PER_NODE.to_string()});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{index:02}")},
                "status": {"allocatable": resources, "capacity": resources}});
            let mut stored = (*self.server.create("nodes", node.clone()).unwrap()).clone();
            stored["status"] = node["status"].clone();
            self.server.update_status("nodes", stored).unwrap();
            self.nodes = index + 1;
        }
    }

    /// Adds nodes with `gpus` more GPUs.
    pub(crate) fn add_gpus(&mut self, gpus: usize) {
        self.scale_nodes_to(self.nodes * GPUS_PER_NODE + gpus);
    }

    /// Waits until `probe` returns a value, and checks `invariant` after every change.
    pub(crate) async fn wait_for_with_invariant<T>(
        &self,
        description: &str,
        probe: Probe<'_, T>,
        invariant: &dyn Fn(&Server),
    ) -> T {
        let mut changes = self.server.subscribe();
        let result = async {
            loop {
                invariant(&self.server);
                if let Some(result) = probe(&self.server) {
                    return result;
                }
                let _ = changes.next().await;
            }
        };
        match tokio::time::timeout(TIMEOUT, result).await {
            Ok(result) => result,
            Err(_) => panic!(
                "timed out waiting for {description}: {:#?}\n{:#?}",
                self.server.list(FUSIONINFER_SERVICES),
                self.scheduled_pods()
            ),
        }
    }

    pub(crate) async fn wait_for<T>(&self, description: &str, probe: Probe<'_, T>) -> T {
        self.wait_for_with_invariant(description, probe, &|_| {}).await
    }

    /// Waits for a condition of the service `name` and returns it.
    pub(crate) async fn wait_for_condition(&self, name: &str, condition_type: &str, reason: &str) -> Value {
        let probe = |server: &Server| {
            let condition = condition(server, name, condition_type)?;
            (condition["reason"] == reason).then_some(condition)
        };
        self.wait_for(&format!("{condition_type} {reason} of {name}"), &probe).await
    }

    /// Waits until the service is ready at its current generation.
    pub(crate) async fn wait_until_ready(&self, name: &str) -> Arc<Value> {
        self.wait_for(&format!("{name} to be ready"), &|server| ready_service(server, name)).await
    }

    /// Returns the last container that was started for a Pod.
    pub(crate) fn started_container(&self, pod: &str) -> StartedContainer {
        self.started.lock().unwrap()[pod].clone()
    }

    /// Refuses connections to a Pod, or accepts them again. Its probes observe this.
    pub(crate) fn set_reachable(&self, pod: &str, reachable: bool) {
        let pod = self.server.get("pods", "default", pod).unwrap();
        let address = pod["status"]["podIP"].as_str().unwrap().parse().unwrap();
        let mut unreachable = self.unreachable.lock().unwrap();
        if reachable {
            unreachable.remove(&address)
        } else {
            unreachable.insert(address)
        };
    }

    /// Returns the number of scheduled Pods per replica: `decode-0 4`.
    pub(crate) fn scheduled_pods(&self) -> Vec<String> {
        scheduled_pods(&self.server).into_iter().map(|(replica, count)| format!("{replica} {count}")).collect()
    }

    pub(crate) fn service(&self, name: &str) -> Arc<Value> {
        self.server.get(FUSIONINFER_SERVICES, "default", name).unwrap()
    }

    pub(crate) fn object_names(&self, resource: &str) -> Vec<String> {
        let name = |object: Arc<Value>| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.server.list(resource).into_iter().map(name).collect()
    }
}

pub(crate) fn condition(server: &Server, name: &str, condition_type: &str) -> Option<Value> {
    let service = server.get(FUSIONINFER_SERVICES, "default", name)?;
    ::cluster::find_current_condition(&service, condition_type).cloned()
}

pub(crate) fn ready_service(server: &Server, name: &str) -> Option<Arc<Value>> {
    let is_ready = condition(server, name, "Ready")?["status"] == "True";
    is_ready.then(|| server.get(FUSIONINFER_SERVICES, "default", name)).flatten()
}

/// Returns the number of scheduled Pods per replica.
pub(crate) fn scheduled_pods(server: &Server) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for pod in server.list("pods").iter().filter(|pod| pod["spec"]["nodeName"].is_string()) {
        let label =
            |key: &str| pod["metadata"]["labels"][format!("fusioninfer.io/{key}")].as_str().unwrap_or("?").to_owned();
        *counts.entry(format!("{}-{}", label("role-name"), label("replica-index"))).or_default() += 1;
    }
    counts
}

/// Returns a role whose Pods request `gpus` GPUs each.
pub(crate) fn role(name: &str, kind: &str, replicas: i64, nodes: i64, gpus: i64) -> Value {
    json!({"name": name, "componentType": kind, "replicas": replicas, "multinode": {"nodeCount": nodes},
        "template": {"spec": {"containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.11.0",
            "command": ["vllm", "serve", "deepseek-ai/DeepSeek-R1"], "ports": [{"name": "http", "containerPort": 8000}],
            "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]}}})
}

pub(crate) fn service_with_roles(name: &str, roles: Vec<Value>) -> Value {
    json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"roles": roles}})
}

/// Returns a service with ten Pods of eight GPUs each (seed 002, Story 4).
pub(crate) fn disaggregated_service() -> Value {
    let (prefill, decode) = (role("prefill", "prefiller", 1, 2, 8), role("decode", "decoder", 2, 4, 8));
    service_with_roles("deepseek-r1-disagg", vec![prefill, decode])
}
