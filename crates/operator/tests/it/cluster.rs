//! An embedded API server with our kinds, the shipped catalogue and one node, and the operator at work on it, all on paused
//! time: it passes only when nobody has anything to do, so a busy machine changes nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use embedded::Server;
use embedded::ports::{
    Admission, AdmissionRequest, AdmissionResponse, AdmitAll, Clock, Container, Exit, Loopback, Ports, Runner,
    SystemRandom,
};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const SERVICES: &str = "inferenceservices.ome.io";
pub(crate) const ROLES: &str = "inferenceservices.fusioninfer.io";
pub(crate) const CATALOGUE: [(&str, &str); 3] = [
    ("acceleratorclasses.ome.io", include_str!("../../../decide/src/tests/small/classes.yaml")),
    ("clusterservingruntimes.ome.io", include_str!("../../../decide/src/tests/small/runtimes.yaml")),
    ("clusterbasemodels.ome.io", include_str!("../../../decide/src/tests/small/models.yaml")),
];

/// How long something may take that comes, in paused time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3600);

/// A clock that goes with tokio's paused time.
pub(crate) struct Paused {
    base: jiff::Timestamp,
    start: Instant,
}

impl Paused {
    pub(crate) fn start() -> Self {
        Self { base: "2026-01-01T00:00:00Z".parse().unwrap(), start: Instant::now() }
    }

    fn time(&self) -> jiff::Timestamp {
        self.base.checked_add(jiff::SignedDuration::try_from(self.start.elapsed()).unwrap()).unwrap()
    }
}

impl Clock for Paused {
    fn now(&self) -> jiff::Timestamp {
        self.time()
    }
}

impl ::cluster::Clock for Paused {
    fn now(&self) -> jiff::Timestamp {
        self.time()
    }
}

/// Nothing is run here: these tests end at the workloads' objects.
struct NoRunner;

impl Runner for NoRunner {
    fn run(&self, _: Container, _: CancellationToken) -> BoxFuture<'static, Exit> {
        Box::pin(async { Exit { code: 1, message: String::new() } })
    }
}

/// The review that a cluster asks the webhook for.
#[derive(Default)]
struct Gate(OnceLock<Server>);

struct Objects<'a>(&'a Server);

impl Admission for Gate {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        let asked = operator::admission::Request { object: request.object, old: request.old };
        let verdict =
            self.0.get().map(|server| operator::admission::review(&asked, &Objects(server))).unwrap_or_default();
        AdmissionResponse {
            allowed: verdict.allowed(),
            message: String::new(),
            causes: verdict.causes(),
            warnings: verdict.warnings,
        }
    }
}

impl operator::admission::View for Objects<'_> {
    fn list(&self, kind: ::cluster::Kind) -> Vec<Arc<Value>> {
        self.0.list(&kind.resource())
    }
}

pub(crate) struct World {
    pub(crate) server: Server,
    /// Requests of the operator that are not reads.
    pub(crate) writes: Arc<AtomicUsize>,
    /// Its reads: the first lists and watches.
    reads: Arc<AtomicUsize>,
    clock: Arc<Paused>,
    stop: CancellationToken,
    _stop: DropGuard,
}

impl World {
    /// Our kinds, the catalogue, one H100 node, and the operator; LeaderWorkerSet only if asked for.
    pub(crate) async fn start(leader_worker_set: bool) -> World {
        let world = World::stocked();
        if leader_worker_set {
            world.install_leader_worker_set();
        }
        world.operate(operator::Options::default());
        world
    }

    /// Our kinds, the catalogue and one H100 node, and nobody at work.
    pub(crate) fn stocked() -> World {
        let world = World::empty();
        world.server.create("nodes", node()).unwrap();
        CATALOGUE.iter().for_each(|(resource, text)| world.create_all(resource, text));
        world
    }

    /// Our kinds and the operator, and what `server` holds already.
    pub(crate) fn on(server: Server, options: operator::Options) -> World {
        let world = World::of(server);
        world.operate(options);
        world
    }

    /// Our kinds, and nobody at work.
    pub(crate) fn empty() -> World {
        World::of(bare())
    }

    fn of(server: Server) -> World {
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        World { server, writes: Arc::default(), reads: Arc::default(), clock: Arc::new(Paused::start()), stop, _stop }
    }

    /// Cancelled with the world.
    pub(crate) fn stopped(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Starts the operator.
    pub(crate) fn operate(&self, options: operator::Options) {
        let options = operator::Options { clock: self.clock.clone(), ..options };
        tokio::spawn(operator::run(self.client(), options, self.stop.clone()));
    }

    /// Creates every document of `text`.
    pub(crate) fn create_all(&self, resource: &str, text: &str) {
        for document in api::manifest::read("test", text).unwrap() {
            self.server.create(resource, document.value).unwrap();
        }
    }

    /// Waits until nothing changes any more.
    pub(crate) async fn quiet(&self) {
        let mut changes = self.server.subscribe();
        while tokio::time::timeout(Duration::from_secs(10), changes.next()).await.is_ok() {}
    }

    /// How many requests the operator has sent: writes and reads.
    pub(crate) fn requests(&self) -> (usize, usize) {
        (self.writes.load(Ordering::Relaxed), self.reads.load(Ordering::Relaxed))
    }

    pub(crate) fn install_leader_worker_set(&self) {
        let definition = api::neighbours::leader_worker_set_crd();
        self.server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
    }

    fn client(&self) -> kube::Client {
        let (writes, reads) = (self.writes.clone(), self.reads.clone());
        let service =
            tower::util::MapRequest::new(self.server.router(), move |request: http::Request<kube::client::Body>| {
                let counter = if request.method() == http::Method::GET { &reads } else { &writes };
                counter.fetch_add(1, Ordering::Relaxed);
                request.map(axum::body::Body::new)
            });
        kube::Client::new(service, "default")
    }

    /// Waits until `probe` finds what it looks for; looks again after every change.
    pub(crate) async fn until<T>(&self, what: &str, probe: impl Fn(&Server) -> Option<T>) -> T {
        let mut changes = self.server.subscribe();
        let found = async {
            loop {
                if let Some(found) = probe(&self.server) {
                    return found;
                }
                let _ = changes.next().await;
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(found) => found,
            Err(_) => panic!("waited in vain for {what}: {:#?}", self.server.list(SERVICES)),
        }
    }

    /// Waits for a condition of a service and returns the service.
    pub(crate) async fn condition(&self, resource: &str, name: &str, kind: &str, status: &str) -> Arc<Value> {
        self.until(&format!("{kind}={status} of {name}"), |server| {
            let service = server.get(resource, "default", name)?;
            let holds = cluster::conditions::find(&service["status"]["conditions"], kind)?["status"] == status;
            holds.then_some(service)
        })
        .await
    }

    /// Changes the spec as a person would.
    pub(crate) fn edit(&self, resource: &str, name: &str, change: impl Fn(&mut Value)) {
        let mut object = (*self.server.get(resource, "default", name).unwrap()).clone();
        change(&mut object);
        self.server.update(resource, object).unwrap();
    }

    /// Plays the Deployment controller: everything wanted is there and ready.
    pub(crate) fn ready(&self, deployment: &str) {
        let mut object = (*self.server.get("deployments.apps", "default", deployment).unwrap()).clone();
        let replicas = object["spec"]["replicas"].as_i64().unwrap_or(1);
        object["status"] = json!({"observedGeneration": object["metadata"]["generation"], "replicas": replicas,
            "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas});
        self.server.update_status("deployments.apps", object).unwrap();
    }
}

/// An API server with our kinds and their admission, and nothing else.
pub(crate) fn bare() -> Server {
    let admission = Arc::new(Gate::default());
    let server = server(Arc::new(Paused::start()), api::crds(), admission.clone());
    admission.0.set(server.clone()).ok();
    server
}

/// An API server with these definitions, whose writes nobody reviews.
pub(crate) fn with_definitions(definitions: Vec<Value>) -> Server {
    server(Arc::new(Paused::start()), definitions, Arc::new(AdmitAll))
}

/// One whose objects are created when `clock` says.
pub(crate) fn with_clock(clock: Arc<dyn Clock>, definitions: Vec<Value>) -> Server {
    server(clock, definitions, Arc::new(AdmitAll))
}

fn server(clock: Arc<dyn Clock>, definitions: Vec<Value>, admission: Arc<dyn Admission>) -> Server {
    let ports = Ports {
        clock,
        random: Arc::new(SystemRandom),
        admission,
        runner: Arc::new(NoRunner),
        network: Arc::new(Loopback),
    };
    let server = Server::new(&ports);
    for definition in definitions {
        server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
    }
    server
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "gpu-a", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559",
            "nvidia.com/gpu.count": "8", "nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0"}},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti"},
            "capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}})
}

pub(crate) fn five_lines(name: &str, model: &str) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": name, "namespace": "default"},
        "spec": {"model": {"name": model}}})
}
