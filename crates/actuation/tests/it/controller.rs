//! The controller against the API server of `embedded`, a requester and a simulated engine over sockets. The tests report the
//! status of Pods, as a kubelet does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actuation::{ControllerOptions, RequesterDaemon, RequesterOptions, Settings, run_controller};
use api::dual_pods;
use apimachinery::object;
use embedded::Server;
use embedded::ports::ServerPorts;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const TIMEOUT: Duration = Duration::from_secs(600);
const NODE: &str = "node-1";

/// Waits until `observe` returns a value.
pub(crate) async fn wait_for<T>(what: &str, observe: impl AsyncFn() -> Option<T>) -> T {
    let poll = async {
        loop {
            match observe().await {
                Some(value) => return value,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(TIMEOUT, poll).await.unwrap_or_else(|_| panic!("timed out waiting for {what}"))
}

pub(crate) fn start_server() -> Server {
    let server = Server::new(&ServerPorts::default());
    server.create("nodes", json!({"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}})).unwrap();
    let map = json!({"metadata": {"name": "gpu-map", "namespace": "default"}, "data": {NODE: r#"{"GPU-a":0}"#}});
    server.create("configmaps", map).unwrap();
    server
}

/// Returns the options of a controller without leader election.
pub(crate) fn options(client: kube::Client) -> ControllerOptions {
    ControllerOptions {
        client,
        leader_election: None,
        namespaces: vec!["default".to_owned()],
        namespace: "default".to_owned(),
        settings: Settings { settle: Duration::ZERO, verify_completion: true, ..Settings::default() },
        metrics: Arc::default(),
        health: Arc::default(),
    }
}

/// Starts the controller.
fn start_controller(server: &Server) -> CancellationToken {
    let stop = CancellationToken::new();
    tokio::spawn(run_controller(options(kube::Client::new(embedded::router(server), "default")), stop.clone()));
    stop
}

/// Starts a requester and returns the addresses of its probe and its SPI.
pub(crate) async fn start_requester() -> (SocketAddr, SocketAddr) {
    let options = RequesterOptions {
        address: [127, 0, 0, 1].into(),
        probes_port: 0,
        spi_port: 0,
        metrics_port: None,
        debug_port: None,
        mock_accelerators: Some(vec!["GPU-a".to_owned()]),
        hold: true,
        grace_period: TIMEOUT,
    };
    let daemon = RequesterDaemon::bind(options).await.unwrap();
    let addresses = daemon.addresses().unwrap();
    tokio::spawn(daemon.run(CancellationToken::new()));
    (addresses[0], addresses[1])
}

pub(crate) async fn start_engine() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = engine::Config { dev_mode: true, enable_sleep_mode: true, ..engine::Config::new("m") };
    tokio::spawn(engine::serve(listener, config, engine::RequestMemory::default(), CancellationToken::new()));
    address
}

/// Returns the patch for an engine that listens on this port.
pub(crate) fn patch(engine_port: u16) -> String {
    let patch = json!({
        "metadata": {"labels": {"model": "m"}},
        "spec": {"containers": [{
            "name": "inference-server", "image": "vllm:1", "command": ["vllm", "serve", "m"],
            "readinessProbe": {"httpGet": {"path": "/health", "port": engine_port}},
        }]},
    });
    patch.to_string()
}

/// Creates a requester, reports that its provider runs, and waits until the requester is ready. Returns the name of the provider.
pub(crate) async fn serve_requester(
    server: &Server,
    name: &str,
    (probes, spi): (SocketAddr, SocketAddr),
    engine: SocketAddr,
) -> String {
    create_requester(server, name, spi, &patch(engine.port()));
    let provider = wait_for("the provider", async || providers(server).first().cloned()).await;
    let provider = object::name(&provider).to_owned();
    server.bind("default", &provider, NODE).unwrap();
    report_running(server, &provider, true);
    wait_for("readiness", async || is_ready(probes).await.then_some(())).await;
    provider
}

pub(crate) fn create_requester(server: &Server, name: &str, spi: SocketAddr, patch: &str) {
    let annotations =
        json!({"dual-pod.llm-d.ai/server-patch": patch, "dual-pod.llm-d.ai/admin-port": spi.port().to_string()});
    let container =
        json!({"name": "inference-server", "image": "requester:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}});
    let pod = json!({"metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"nodeName": NODE, "containers": [container]}});
    server.create("pods", pod).unwrap();
    report_running(server, name, false);
}

/// Deletes a requester, and waits until its engine is asleep and it is gone.
pub(crate) async fn delete_requester(server: &Server, name: &str) {
    server.delete("pods", "default", name, None).unwrap();
    wait_for("the end of the requester", async || {
        let pod = server.get("pods", "default", name).unwrap();
        object::finalizers(&pod).is_empty().then_some(())
    })
    .await;
    server.force_delete("pods", "default", name, None).unwrap();
}

/// Reports that the container of a Pod runs.
pub(crate) fn report_running(server: &Server, name: &str, is_ready: bool) {
    let mut pod = server.get("pods", "default", name).unwrap().as_ref().clone();
    let ready = if is_ready { "True" } else { "False" };
    let container = json!({"name": "inference-server", "containerID": format!("c://{name}"), "image": "x", "imageID": "x",
        "state": {"running": {"startedAt": jiff::Timestamp::now().to_string()}}, "ready": is_ready, "restartCount": 0});
    pod["status"] = json!({"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [container],
        "conditions": [{"type": "Ready", "status": ready}]});
    server.update_status("pods", pod).unwrap();
}

pub(crate) fn providers(server: &Server) -> Vec<Arc<Value>> {
    server.list("pods").into_iter().filter(|pod| dual_pods::is_provider(pod)).collect()
}

pub(crate) async fn is_ready(probes: SocketAddr) -> bool {
    let url = format!("http://{probes}/ready");
    let request = http::Request::get(url).body(String::new()).unwrap();
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    client.request(request).await.unwrap().status().is_success()
}

// spec: DP-62
#[tokio::test]
async fn engine_starts_sleeps_and_serves_the_next_requester() {
    let server = start_server();
    let engine = start_engine().await;
    let stop = start_controller(&server);
    let name = serve_requester(&server, "first", start_requester().await, engine).await;

    // The controller is replaced while nothing happens.
    stop.cancel();
    start_controller(&server);
    delete_requester(&server, "first").await;
    let sleeper = server.get("pods", "default", &name).unwrap();
    assert_eq!(object::label(&sleeper, dual_pods::SLEEPING), Some("true"));
    assert!(object::finalizers(&sleeper).is_empty() && object::label(&sleeper, "model").is_none());

    let (probes, spi) = start_requester().await;
    create_requester(&server, "second", spi, &patch(engine.port()));
    wait_for("readiness", async || is_ready(probes).await.then_some(())).await;
    let awake = server.get("pods", "default", &name).unwrap();
    assert_eq!(object::label(&awake, "model"), Some("m"));
    assert_eq!(providers(&server).len(), 1, "the sleeping engine was woken");
}

/// The controller is stopped for good: its finalizers are removed, the provider is deleted, and the requester is not ready.
// spec: DP-82
#[tokio::test]
async fn release_leaves_no_finalizer() {
    let server = start_server();
    let (engine, (probes, spi)) = (start_engine().await, start_requester().await);
    let stop = start_controller(&server);
    let name = serve_requester(&server, "r", (probes, spi), engine).await;
    stop.cancel();
    // Copies of both Pods by another client: only names, annotations and finalizers are those of the controller.
    for copied in [name.as_str(), "r"] {
        let mut copy = server.get("pods", "default", copied).unwrap().as_ref().clone();
        copy["metadata"] = json!({"name": format!("copy-of-{copied}"), "namespace": "default",
            "annotations": copy["metadata"]["annotations"], "finalizers": copy["metadata"]["finalizers"]});
        server.create("pods", copy).unwrap();
    }

    let client = kube::Client::new(embedded::router(&server), "default");
    let release = tokio::spawn(async move { actuation::release(client, &[], TIMEOUT).await });
    wait_for("the finalizer of the provider to be removed", async || {
        let provider = server.get("pods", "default", &name).unwrap();
        (object::is_deleting(&provider) && object::finalizers(&provider).is_empty()).then_some(())
    })
    .await;
    // As the kubelet does when the containers have ended.
    server.force_delete("pods", "default", &name, None).unwrap();
    let released = release.await.unwrap().unwrap();
    assert_eq!(released, actuation::ReleaseSummary { providers: 1, requesters: 1, unreachable: Vec::new() });
    let requester = server.get("pods", "default", "r").unwrap();
    assert!(object::finalizers(&requester).is_empty());
    assert!(!is_ready(probes).await);
    for copied in [name.as_str(), "r"] {
        let copy = server.get("pods", "default", &format!("copy-of-{copied}")).unwrap();
        assert!(!object::is_deleting(&copy) && !object::finalizers(&copy).is_empty(), "{copy}");
    }
}

/// The API server validates the provider strictly: a misspelled field is an error with its path, and nothing is created.
// spec: DP-35
#[tokio::test]
async fn unknown_field_of_the_patch_is_reported() {
    let server = start_server();
    let (_, spi) = start_requester().await;
    start_controller(&server);
    create_requester(&server, "r", spi, &patch(8000).replace("\"command\"", "\"comand\""));
    let status = wait_for("a status", async || {
        let pod = server.get("pods", "default", "r").unwrap();
        let status = pod["metadata"]["annotations"].get(dual_pods::STATUS)?.as_str()?.to_owned();
        (status != r#"{"Errors":null}"#).then_some(status)
    })
    .await;
    assert!(status.contains(r#"unknown field \"spec.containers[0].comand\""#), "{status}");
    assert!(providers(&server).is_empty());
}
