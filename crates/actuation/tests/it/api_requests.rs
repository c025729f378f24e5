//! Which requests the controller sends to the API server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actuation::{ControllerOptions, run_controller};
use cluster::{LeaderElection, LeaderElectionTimings};
use embedded::Server;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::controller::{
    create_requester, delete_requester, is_ready, options, patch, providers, serve_requester, start_engine,
    start_requester, start_server, wait_for,
};

/// Namespace of the controller.
const OWN_NAMESPACE: &str = "system";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/system/leases";
/// Number of renewals of the Lease during which nothing else is requested.
const QUIET_RENEWALS: usize = 50;

/// A controller with leader election, whose requests are recorded.
struct Recorded {
    /// Method, path and query of each request.
    requests: Arc<Mutex<Vec<String>>>,
    options: ControllerOptions,
    stop: CancellationToken,
}

impl Recorded {
    fn start(server: &Server, identity: &str) -> Recorded {
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&requests);
        let record = move |request: axum::extract::Request| {
            log.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
            std::future::ready(request)
        };
        let router = embedded::router(server).layer(axum::middleware::map_request(record));
        let leader_election = LeaderElection {
            namespace: OWN_NAMESPACE.to_owned(),
            name: "ostler-actuation".to_owned(),
            identity: identity.to_owned(),
            timings: LeaderElectionTimings {
                retry_period: Duration::from_millis(20),
                ..LeaderElectionTimings::default()
            },
        };
        let options = ControllerOptions {
            leader_election: Some(leader_election),
            namespace: OWN_NAMESPACE.to_owned(),
            ..options(kube::Client::new(router, "default"))
        };
        let stop = CancellationToken::new();
        tokio::spawn(run_controller(options.clone(), stop.clone()));
        Recorded { requests, options, stop }
    }

    /// Returns the requests since the last call.
    fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    /// Waits until the controller has sent requests about the Lease, and returns all requests since the last call.
    async fn take_requests_of_renewals(&self) -> Vec<String> {
        let count = async || {
            let requests = self.requests.lock().unwrap();
            (requests.iter().filter(|request| request.contains(LEASES)).count() >= QUIET_RENEWALS).then_some(())
        };
        wait_for("renewals", count).await;
        self.take_requests()
    }
}

fn start_server_with_namespace() -> Server {
    let server = start_server();
    server.create("namespaces", json!({"metadata": {"name": OWN_NAMESPACE}})).unwrap();
    server
}

fn only_concern_the_lease(requests: &[String]) -> bool {
    requests.iter().all(|request| request.contains(LEASES))
}

/// Requesters of another namespace are neither read nor changed. Besides its namespaces, the controller reads Nodes, and `gpu-map`
/// and the Lease of its own namespace.
// spec: DP-42
#[tokio::test]
async fn requests_concern_the_configured_namespaces() {
    let server = start_server_with_namespace();
    server.create("namespaces", json!({"metadata": {"name": "other"}})).unwrap();
    let (requester, engine) = (start_requester().await, start_engine().await);
    create_requester(&server, "r", requester.1, &patch(engine.port()));
    let mut foreign = server.get("pods", "default", "r").unwrap().as_ref().clone();
    server.force_delete("pods", "default", "r", None).unwrap();
    foreign["metadata"] = json!({"name": "r", "namespace": "other", "annotations": foreign["metadata"]["annotations"]});
    server.create("pods", foreign.clone()).unwrap();
    foreign["metadata"]["resourceVersion"] =
        server.get("pods", "other", "r").unwrap()["metadata"]["resourceVersion"].clone();
    let foreign = server.update_status("pods", foreign).unwrap();

    let controller = Recorded::start(&server, "one");
    serve_requester(&server, "r", requester, engine).await;
    delete_requester(&server, "r").await;
    assert_eq!(server.get("pods", "other", "r"), Some(foreign));
    assert_eq!(providers(&server).len(), 1);
    let own_map = "/api/v1/namespaces/system/configmaps?";
    let is_expected = |request: &String| {
        let (_, path) = request.split_once(' ').unwrap();
        path.contains("/namespaces/default/")
            || path.starts_with("/api/v1/nodes?")
            || path.starts_with(own_map) && path.contains("fieldSelector=metadata.name%3Dgpu-map")
            || path.starts_with(LEASES)
    };
    let requests = controller.take_requests();
    let others: Vec<&String> = requests.iter().filter(|request| !is_expected(request)).collect();
    assert!(others.is_empty(), "{others:#?}");
    assert!(requests.iter().any(|request| request.contains(own_map)), "{requests:#?}");
}

/// A thousand Pods, one pair and one sleeper among them: the watches report all changes.
// spec: DP-43
#[tokio::test]
async fn quiet_system_is_not_read_nor_written() {
    let server = start_server_with_namespace();
    for index in 0..1000 {
        let spec = json!({"nodeName": "node-1", "containers": [{"name": "c", "image": "x"}]});
        server
            .create("pods", json!({"metadata": {"name": format!("p-{index}"), "namespace": "default"}, "spec": spec}))
            .unwrap();
    }
    let controller = Recorded::start(&server, "one");
    let provider = serve_requester(&server, "r", start_requester().await, start_engine().await).await;
    wait_for("the label of the requester", async || {
        let pod = server.get("pods", "default", "r").unwrap();
        (pod["metadata"]["labels"]["dual-pods.llm-d.ai/dual"] == provider.as_str()).then_some(())
    })
    .await;
    // Events are published later.
    wait_for("rest", async || only_concern_the_lease(&controller.take_requests_of_renewals().await).then_some(()))
        .await;
    let requests = controller.take_requests_of_renewals().await;
    assert!(only_concern_the_lease(&requests), "{requests:#?}");
}

/// Of two controllers one acts; the other one reads the Lease only, until the first one ends.
// spec: DP-51
#[tokio::test]
async fn only_the_leader_acts() {
    let server = start_server_with_namespace();
    let first = Recorded::start(&server, "first");
    let (requester, engine) = (start_requester().await, start_engine().await);
    wait_for("the leader", async || server.get("leases.coordination.k8s.io", OWN_NAMESPACE, "ostler-actuation")).await;
    let second = Recorded::start(&server, "second");
    let provider = serve_requester(&server, "r", requester, engine).await;
    assert!(only_concern_the_lease(&second.take_requests_of_renewals().await));

    first.stop.cancel();
    delete_requester(&server, "r").await;
    assert!(
        second
            .take_requests()
            .iter()
            .any(|request| request.starts_with(&format!("PATCH /api/v1/namespaces/default/pods/{provider}")))
    );
}

/// How long a requester waits for its engine is recorded by path.
// spec: DP-91
#[tokio::test]
async fn time_to_ready_is_recorded_by_path() {
    let server = start_server_with_namespace();
    let controller = Recorded::start(&server, "one");
    let engine = start_engine().await;
    serve_requester(&server, "first", start_requester().await, engine).await;
    delete_requester(&server, "first").await;
    let (probes, spi) = start_requester().await;
    create_requester(&server, "second", spi, &patch(engine.port()));
    wait_for("readiness", async || is_ready(probes).await.then_some(())).await;
    let count = |path: &str| format!("ostler_actuation_seconds_count{{path=\"{path}\"}} 1\n");
    wait_for("both paths", async || {
        let metrics = controller.options.metrics.render();
        (metrics.contains(&count("cold")) && metrics.contains(&count("hot"))).then_some(())
    })
    .await;
}
