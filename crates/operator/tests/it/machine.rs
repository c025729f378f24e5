//! A cluster whose workloads, scheduler and node agent work too, on paused time and with containers that only pretend.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use embedded::Server;
use embedded::node::Folders;
use embedded::ports::{AdmitAll, Container, Exit, Network, Ports, Purpose, Runner, Stream, SystemRandom};
use futures::future::BoxFuture;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::{PATIENCE, Paused, ROLES, World};

pub(crate) const SETS: &str = "leaderworkersets.leaderworkerset.x-k8s.io";
pub(crate) const GROUPS: &str = "podgroups.scheduling.volcano.sh";
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const GPUS_PER_NODE: usize = 8;

/// Image `bad` fails after a moment, anything else runs until it is stopped.
struct Pretend;

impl Runner for Pretend {
    fn run(&self, container: Container, stop: CancellationToken) -> BoxFuture<'static, Exit> {
        Box::pin(async move {
            if container.purpose == Purpose::Serve && container.image != "bad" {
                stop.cancelled().await;
                return Exit { code: 0, message: String::new() };
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            Exit { code: i32::from(container.image == "bad"), message: String::new() }
        })
    }
}

/// Answers every connection as a healthy server, over HTTP and gRPC.
struct Healthy;

impl Network for Healthy {
    fn connect(&self, _address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(4096);
            tokio::spawn(async move {
                let service =
                    TowerToHyperService::new(tower::service_fn(|_request| async { Ok::<_, Infallible>(well()) }));
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(theirs), service).await;
            });
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

/// `SERVING`, as a message of `grpc.health.v1`, to whoever reads it.
fn well() -> http::Response<axum::body::Body> {
    let message: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
    http::Response::builder().header("grpc-status", "0").body(message.into()).unwrap()
}

/// Everything but a real machine.
pub(crate) struct Machine {
    pub(crate) world: World,
    pub(crate) server: Server,
    nodes: usize,
}

/// How a test looks at a server.
pub(crate) type Probe<'a, T> = &'a dyn Fn(&Server) -> Option<T>;

impl Machine {
    /// Our kinds and the neighbours', and nodes of eight GPUs.
    pub(crate) fn with_gpus(gpus: usize) -> Machine {
        Machine::of(gpus, [api::crds(), api::neighbours::crds()].concat())
    }

    pub(crate) fn of(gpus: usize, definitions: Vec<Value>) -> Machine {
        let ports = Ports {
            clock: Arc::new(Paused::start()),
            random: Arc::new(SystemRandom),
            admission: Arc::new(AdmitAll),
            runner: Arc::new(Pretend),
            network: Arc::new(Healthy),
        };
        let server = Server::new(&ports);
        for definition in definitions {
            server.create(DEFINITIONS, definition).unwrap();
        }
        let world = World::on(server.clone(), operator::Options::default());
        let stop = world.stopped();
        tokio::spawn(embedded::workloads::run(server.clone(), ports.clone(), None, stop.clone()));
        tokio::spawn(embedded::scheduler::run(server.clone(), ports.clone(), stop.clone()));
        tokio::spawn(embedded::node_lifecycle::run(server.clone(), ports.clone(), stop.clone()));
        tokio::spawn(embedded::node::run(server.clone(), ports, Folders::default(), stop));
        let mut machine = Machine { world, server, nodes: 0 };
        machine.grow_to(gpus);
        machine
    }

    /// Adds nodes until there are so many GPUs.
    pub(crate) fn grow_to(&mut self, gpus: usize) {
        for index in self.nodes..gpus / GPUS_PER_NODE {
            let amounts =
                json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": GPUS_PER_NODE.to_string()});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{index:02}")},
                "status": {"allocatable": amounts, "capacity": amounts}});
            let mut stored = (*self.server.create("nodes", node.clone()).unwrap()).clone();
            stored["status"] = node["status"].clone();
            self.server.update_status("nodes", stored).unwrap();
            self.nodes = index + 1;
        }
    }

    /// Adds new nodes with so many GPUs.
    pub(crate) fn grow_again(&mut self, gpus: usize) {
        self.grow_to(self.nodes * GPUS_PER_NODE + gpus);
    }

    /// Waits until `probe` finds what it looks for, and checks after every change that `holds`.
    pub(crate) async fn until_with<T>(&self, what: &str, probe: Probe<'_, T>, holds: &dyn Fn(&Server)) -> T {
        let mut changes = self.server.subscribe();
        let found = async {
            loop {
                holds(&self.server);
                if let Some(found) = probe(&self.server) {
                    return found;
                }
                let _ = changes.next().await;
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(found) => found,
            Err(_) => panic!("waited in vain for {what}: {:#?}\n{:#?}", self.server.list(ROLES), self.placed()),
        }
    }

    pub(crate) async fn until<T>(&self, what: &str, probe: Probe<'_, T>) -> T {
        self.until_with(what, probe, &|_| {}).await
    }

    /// Waits for a condition of the service `name` and returns it.
    pub(crate) async fn condition(&self, name: &str, kind: &str, reason: &str) -> Value {
        let probe = |server: &Server| {
            let condition = condition(server, name, kind)?;
            (condition["reason"] == reason).then_some(condition)
        };
        self.until(&format!("{kind} {reason} of {name}"), &probe).await
    }

    /// Waits until the service is ready on its present generation.
    pub(crate) async fn ready(&self, name: &str) -> Arc<Value> {
        self.until(&format!("{name} to be ready"), &|server| ready(server, name)).await
    }

    /// Pods with a node, by replica: `decode-0 4`.
    pub(crate) fn placed(&self) -> Vec<String> {
        placed(&self.server).into_iter().map(|(replica, count)| format!("{replica} {count}")).collect()
    }

    pub(crate) fn service(&self, name: &str) -> Arc<Value> {
        self.server.get(ROLES, "default", name).unwrap()
    }

    pub(crate) fn names(&self, resource: &str) -> Vec<String> {
        let name = |object: Arc<Value>| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.server.list(resource).into_iter().map(name).collect()
    }
}

pub(crate) fn condition(server: &Server, name: &str, kind: &str) -> Option<Value> {
    let service = server.get(ROLES, "default", name)?;
    let condition = ::cluster::conditions::find(&service["status"]["conditions"], kind)?;
    (condition["observedGeneration"] == service["metadata"]["generation"]).then(|| condition.clone())
}

pub(crate) fn ready(server: &Server, name: &str) -> Option<Arc<Value>> {
    let is_ready = condition(server, name, "Ready")?["status"] == "True";
    is_ready.then(|| server.get(ROLES, "default", name)).flatten()
}

/// How many Pods of each replica have a node.
pub(crate) fn placed(server: &Server) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for pod in server.list("pods").iter().filter(|pod| pod["spec"]["nodeName"].is_string()) {
        let label =
            |key: &str| pod["metadata"]["labels"][format!("fusioninfer.io/{key}")].as_str().unwrap_or("?").to_owned();
        *counts.entry(format!("{}-{}", label("role-name"), label("replica-index"))).or_default() += 1;
    }
    counts
}

/// A role whose Pods take `gpus` each.
pub(crate) fn role(name: &str, kind: &str, replicas: i64, nodes: i64, gpus: i64) -> Value {
    json!({"name": name, "componentType": kind, "replicas": replicas, "multinode": {"nodeCount": nodes},
        "template": {"spec": {"containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.11.0",
            "command": ["vllm", "serve", "deepseek-ai/DeepSeek-R1"], "ports": [{"name": "http", "containerPort": 8000}],
            "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]}}})
}

pub(crate) fn roles(name: &str, roles: Vec<Value>) -> Value {
    json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"roles": roles}})
}

/// Story 4 of seed 002: ten Pods of eight GPUs.
pub(crate) fn story_4() -> Value {
    let (prefill, decode) = (role("prefill", "prefiller", 1, 2, 8), role("decode", "decoder", 2, 4, 8));
    roles("deepseek-r1-disagg", vec![prefill, decode])
}
