//! Test harness: an embedded API server with ostler's CRDs, the shipped catalog and one node, and a running operator.
//! Tests use tokio's paused time, which advances only when all tasks are idle, so a busy host does not affect them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use embedded::Server;
use embedded::ports::{Admission, AdmissionRequest, AdmissionResponse, AdmitAll, Clock, ServerPorts};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt as _;

pub(crate) const OME_SERVICES: &str = "inferenceservices.ome.io";
pub(crate) const FUSIONINFER_SERVICES: &str = "inferenceservices.fusioninfer.io";
pub(crate) const CATALOG: [(&str, &str); 3] = [
    ("acceleratorclasses.ome.io", include_str!("../../../decide/src/tests/small/classes.yaml")),
    ("clusterservingruntimes.ome.io", include_str!("../../../decide/src/tests/small/runtimes.yaml")),
    ("clusterbasemodels.ome.io", include_str!("../../../decide/src/tests/small/models.yaml")),
];

/// Timeout of each wait, in paused time.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3600);

/// Clock that follows tokio's paused time.
pub(crate) struct PausedClock {
    start_time: jiff::Timestamp,
    start: Instant,
}

impl PausedClock {
    pub(crate) fn start() -> Self {
        Self { start_time: "2026-01-01T00:00:00Z".parse().unwrap(), start: Instant::now() }
    }

    fn time(&self) -> jiff::Timestamp {
        self.start_time.checked_add(jiff::SignedDuration::try_from(self.start.elapsed()).unwrap()).unwrap()
    }
}

impl Clock for PausedClock {
    fn now(&self) -> jiff::Timestamp {
        self.time()
    }
}

impl ::cluster::Clock for PausedClock {
    fn now(&self) -> jiff::Timestamp {
        self.time()
    }
}

/// Runs no containers, because these tests check only the workload objects.
/// Admission by direct function call instead of the webhook.
#[derive(Default)]
struct OperatorAdmission(OnceLock<Server>);

struct ServerObjects<'a>(&'a Server);

impl Admission for OperatorAdmission {
    fn review(&self, admission_request: &AdmissionRequest<'_>) -> AdmissionResponse {
        let request =
            operator::ValidationRequest { object: admission_request.object, old_object: admission_request.old_object };
        let result = self
            .0
            .get()
            .map(|server| operator::validate_admission(&request, &ServerObjects(server)))
            .unwrap_or_default();
        AdmissionResponse {
            allowed: result.is_allowed(),
            message: String::new(),
            causes: result.causes(),
            warnings: result.warnings,
        }
    }
}

impl operator::ObjectLister for ServerObjects<'_> {
    fn list(&self, kind: ::cluster::Kind) -> Vec<Arc<Value>> {
        self.0.list(&kind.group_resource())
    }
}

/// What happens to a request of the operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// The API server responds immediately.
    None,
    /// The API server responds after this time.
    Delay(Duration),
    /// The API server responds with this status code.
    Status(u16),
    /// The API server never responds.
    NoResponse,
}

/// Request of the operator.
pub(crate) type OperatorRequest = http::Request<kube::client::Body>;

/// Returns the fault of each request.
pub(crate) type Faults = Arc<dyn Fn(&OperatorRequest) -> Fault + Send + Sync>;

pub(crate) struct TestCluster {
    pub(crate) server: Server,
    /// Number of write requests of the operator.
    pub(crate) writes: Arc<AtomicUsize>,
    /// Number of list and watch requests of the operator.
    reads: Arc<AtomicUsize>,
    clock: Arc<PausedClock>,
    stop: CancellationToken,
    _stop: DropGuard,
}

impl TestCluster {
    /// Creates a cluster with ostler's CRDs, the catalog and one H100 node, and starts the operator. The CRD of
    /// LeaderWorkerSet is optional.
    pub(crate) async fn start(leader_worker_set: bool) -> TestCluster {
        let test_cluster = TestCluster::with_catalog();
        if leader_worker_set {
            test_cluster.install_leader_worker_set_crd();
        }
        test_cluster.start_operator(operator::Options::default());
        test_cluster
    }

    /// Creates a cluster with ostler's CRDs, the catalog and one H100 node, without a running operator.
    pub(crate) fn with_catalog() -> TestCluster {
        let test_cluster = TestCluster::empty();
        test_cluster.server.create("nodes", node()).unwrap();
        CATALOG.iter().for_each(|(resource, text)| test_cluster.create_all(resource, text));
        test_cluster
    }

    /// Starts the operator on an existing server.
    pub(crate) fn with_server(server: Server, options: operator::Options) -> TestCluster {
        let test_cluster = TestCluster::without_operator(server);
        test_cluster.start_operator(options);
        test_cluster
    }

    /// Creates a cluster with ostler's CRDs, without a running operator.
    pub(crate) fn empty() -> TestCluster {
        TestCluster::without_operator(server_with_ostler_crds())
    }

    /// Returns a cluster with an existing server, without a running operator.
    pub(crate) fn without_operator(server: Server) -> TestCluster {
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        TestCluster {
            server,
            writes: Arc::default(),
            reads: Arc::default(),
            clock: Arc::new(PausedClock::start()),
            stop,
            _stop,
        }
    }

    /// Returns a token that is cancelled when the cluster is dropped.
    pub(crate) fn shutdown_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Starts the operator.
    pub(crate) fn start_operator(&self, options: operator::Options) {
        self.start_operator_with_faults(options, Arc::new(|_: &OperatorRequest| Fault::None));
    }

    /// Starts the operator with an API server that delays or rejects some requests. The returned task completes after the
    /// shutdown.
    pub(crate) fn start_operator_with_faults(&self, options: operator::Options, faults: Faults) -> JoinHandle<()> {
        let options = operator::Options { clock: self.clock.clone(), ..options };
        let run = operator::run(self.client(faults), options, self.stop.clone());
        tokio::spawn(async move { run.await.unwrap() })
    }

    /// Starts an operator that stops when the returned guard is dropped.
    pub(crate) fn start_operator_until_dropped(&self) -> DropGuard {
        let stop = self.stop.child_token();
        let options = operator::Options { clock: self.clock.clone(), ..operator::Options::default() };
        tokio::spawn(operator::run(self.user_client(), options, stop.clone()));
        stop.drop_guard()
    }

    /// Starts the operator with its own client.
    pub(crate) fn start_operator_with_client(&self, client: kube::Client, options: operator::Options) {
        let options = operator::Options { clock: self.clock.clone(), ..options };
        tokio::spawn(operator::run(client, options, self.stop.clone()));
    }

    /// Creates every document of `text`.
    pub(crate) fn create_all(&self, resource: &str, text: &str) {
        for document in api::parse_manifest("test", text).unwrap() {
            self.server.create(resource, document.value).unwrap();
        }
    }

    /// Waits until no object changes for 10 s.
    pub(crate) async fn wait_until_idle(&self) {
        let mut changes = self.server.subscribe();
        while tokio::time::timeout(Duration::from_secs(10), changes.next()).await.is_ok() {}
    }

    /// Returns the number of write and read requests of the operator.
    pub(crate) fn requests(&self) -> (usize, usize) {
        (self.writes.load(Ordering::Relaxed), self.reads.load(Ordering::Relaxed))
    }

    pub(crate) fn install_leader_worker_set_crd(&self) {
        let definition = api::integrations::leader_worker_set_crd();
        self.server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
    }

    /// Returns a client of the API server.
    pub(crate) fn user_client(&self) -> kube::Client {
        self.client(Arc::new(|_: &OperatorRequest| Fault::None))
    }

    fn client(&self, faults: Faults) -> kube::Client {
        let (writes, reads) = (self.writes.clone(), self.reads.clone());
        let router = embedded::router(&self.server);
        let service = tower::service_fn(move |request: OperatorRequest| {
            let counter = if request.method() == http::Method::GET { &reads } else { &writes };
            counter.fetch_add(1, Ordering::Relaxed);
            let (fault, router) = (faults(&request), router.clone());
            async move {
                match fault {
                    Fault::None => {}
                    Fault::Delay(delay) => tokio::time::sleep(delay).await,
                    Fault::Status(code) => return Ok(failure(code)),
                    Fault::NoResponse => std::future::pending().await,
                }
                router.oneshot(request.map(axum::body::Body::new)).await
            }
        });
        kube::Client::new(service, "default")
    }

    /// Waits until `probe` returns a value; probes again after every change.
    pub(crate) async fn wait_for<T>(&self, description: &str, probe: impl Fn(&Server) -> Option<T>) -> T {
        let mut changes = self.server.subscribe();
        let result = async {
            loop {
                if let Some(result) = probe(&self.server) {
                    return result;
                }
                let _ = changes.next().await;
            }
        };
        match tokio::time::timeout(TIMEOUT, result).await {
            Ok(result) => result,
            Err(_) => panic!("timed out waiting for {description}: {:#?}", self.server.list(OME_SERVICES)),
        }
    }

    /// Waits for a condition of a service and returns the service.
    pub(crate) async fn wait_for_condition(&self, resource: &str, name: &str, kind: &str, status: &str) -> Arc<Value> {
        self.wait_for(&format!("{kind}={status} of {name}"), |server| {
            let service = server.get(resource, "default", name)?;
            let is_fulfilled = cluster::find_condition(&service["status"]["conditions"], kind)?["status"] == status;
            is_fulfilled.then_some(service)
        })
        .await
    }

    /// Updates an object as a user would.
    pub(crate) fn update_object(&self, resource: &str, name: &str, update: impl Fn(&mut Value)) {
        let mut object = (*self.server.get(resource, "default", name).unwrap()).clone();
        update(&mut object);
        self.server.update(resource, object).unwrap();
    }

    /// Acts as the Deployment controller: all replicas are updated and ready.
    pub(crate) fn mark_deployment_ready(&self, deployment: &str) {
        let mut object = (*self.server.get("deployments.apps", "default", deployment).unwrap()).clone();
        let replicas = object["spec"]["replicas"].as_i64().unwrap_or(1);
        object["status"] = json!({"observedGeneration": object["metadata"]["generation"], "replicas": replicas,
            "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas});
        self.server.update_status("deployments.apps", object).unwrap();
    }
}

/// Returns an API server with ostler's CRDs and their admission.
pub(crate) fn server_with_ostler_crds() -> Server {
    let admission = Arc::new(OperatorAdmission::default());
    let server = server(Arc::new(PausedClock::start()), api::crds(), admission.clone());
    admission.0.set(server.clone()).ok();
    server
}

/// Returns an API server with these CRDs and without admission.
pub(crate) fn server_with_crds(definitions: Vec<Value>) -> Server {
    server(Arc::new(PausedClock::start()), definitions, Arc::new(AdmitAll))
}

/// Returns an API server whose creation timestamps come from `clock`.
pub(crate) fn server_with_clock(clock: Arc<dyn Clock>, definitions: Vec<Value>) -> Server {
    server(clock, definitions, Arc::new(AdmitAll))
}

fn server(clock: Arc<dyn Clock>, definitions: Vec<Value>, admission: Arc<dyn Admission>) -> Server {
    let server = Server::new(&ServerPorts { clock, admission, ..ServerPorts::default() });
    for definition in definitions {
        server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
    }
    server
}

/// Returns a response of an API server that rejects a request.
fn failure(code: u16) -> http::Response<axum::body::Body> {
    let reason = if code == 403 { "Forbidden" } else { "ServiceUnavailable" };
    let message = format!("requests are rejected with {code}");
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code});
    http::Response::builder().status(code).body(status.to_string().into()).unwrap()
}

pub(crate) fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "gpu-a", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559",
            "nvidia.com/gpu.count": "8", "nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0"}},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti"},
            "capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}})
}

pub(crate) fn minimal_service(name: &str, model: &str) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": name, "namespace": "default"},
        "spec": {"model": {"name": model}}})
}
