//! A server and a node agent on a disk that is slow or temporarily full.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use futures::future::BoxFuture;
use futures::poll;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::crash_tests::{TEST_TIMEOUT, open};
use super::faults::FaultyDisk;
use crate::Server;
use crate::cluster::Cluster;
use crate::node::NodeDirectories;
use crate::node::process_runtime::ProcessRuntime;
use crate::ports::{
    Admission, AdmissionRequest, AdmissionResponse, AdmitAll, ContainerConfig, ContainerExit, ContainerRuntime, Ports,
    SystemClock, SystemRandom, TcpNetwork,
};

#[tokio::test]
async fn responses_and_watches_wait_for_durability() {
    timeout(TEST_TIMEOUT, check_responses_wait()).await.expect("the server did not respond in time");
}

/// Checks that responses to writes, reads that could return these writes, and watches all wait for the disk.
async fn check_responses_wait() {
    let disk = FaultyDisk::default();
    let ports = Ports {
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
        admission: Arc::new(AdmitAll),
        runtime: Arc::new(ProcessRuntime::default()),
        network: Arc::new(TcpNetwork),
    };
    let server = Server::with_store(&ports, open(&disk).unwrap());
    server.flush().await.unwrap();
    let mut changes = server.subscribe();
    let request = |method: &str, body: &Value| {
        let request = http::Request::builder().method(method).uri("/api/v1/namespaces/default/configmaps");
        let request = request.header("content-type", "application/json").body(Body::from(body.to_string())).unwrap();
        server.router().oneshot(request)
    };

    disk.set_slow(true);
    let mut write = pin!(request("POST", &json!({"metadata": {"name": "a"}})));
    assert!(poll!(&mut write).is_pending());
    assert!(server.get("configmaps", "default", "a").is_some(), "later writes see the object");
    let mut read = pin!(request("GET", &Value::Null));
    assert!(poll!(&mut read).is_pending());
    assert!(poll!(pin!(changes.next())).is_pending());

    disk.set_slow(false);
    assert_eq!(write.await.unwrap().status(), 201);
    assert_eq!(read.await.unwrap().status(), 200);
    assert_eq!(changes.next().await.unwrap().name, "a");

    // A write that cannot be persisted is rejected and never becomes visible.
    disk.set_full(true);
    let rejected = request("POST", &json!({"metadata": {"name": "b"}})).await.unwrap();
    assert_eq!(rejected.status(), 507);
    assert!(changes.next().await.is_err(), "watchers relist");
    assert!(server.get("configmaps", "default", "b").is_none());
    assert_eq!(request("GET", &Value::Null).await.unwrap().status(), 200);
    disk.set_full(false);
}

/// Counts the admission requests for Pods while the disk is full.
#[derive(Default)]
struct CountingAdmission(AtomicUsize);

impl Admission for CountingAdmission {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        if request.resource == "pods" {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        AdmissionResponse { allowed: true, ..AdmissionResponse::default() }
    }
}

/// Runs containers that exit when the test cancels the token.
#[derive(Default)]
struct ExitOnCancel(CancellationToken);

impl ContainerRuntime for ExitOnCancel {
    fn run(&self, _container: ContainerConfig, stop: CancellationToken) -> BoxFuture<'static, ContainerExit> {
        let exit = self.0.clone();
        Box::pin(async move {
            tokio::select! {
                () = exit.cancelled() => {}
                () = stop.cancelled() => {}
            }
            ContainerExit { code: 0, message: String::new() }
        })
    }
}

#[tokio::test]
async fn node_agent_retries_status_after_full_disk() {
    timeout(TEST_TIMEOUT, check_pod_phase_after_full_disk()).await.expect("the final phase of the Pod is missing");
}

/// The Pod reaches its final phase once the disk has free space.
async fn check_pod_phase_after_full_disk() {
    let (disk, admission, exit) =
        (FaultyDisk::default(), Arc::new(CountingAdmission::default()), CancellationToken::new());
    let ports = Ports {
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
        admission: Arc::clone(&admission) as Arc<dyn Admission>,
        runtime: Arc::new(ExitOnCancel(exit.clone())),
        network: Arc::new(TcpNetwork),
    };
    let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}});
    let cluster = Cluster::start_with_store(open(&disk).unwrap(), ports, vec![node], NodeDirectories::default());
    let server = cluster.server().clone();
    let wait_for_phase = async |expected: &str| {
        let mut changes = server.subscribe();
        let pod = || server.get("pods", "default", "job");
        while pod().is_none_or(|pod| pod["status"]["phase"] != expected) {
            let _ = changes.next().await;
        }
    };
    let pod = json!({"metadata": {"name": "job", "namespace": "default"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "main"}]}});
    server.create("pods", pod).unwrap();
    wait_for_phase("Running").await;
    server.flush().await.unwrap();

    disk.set_full(true);
    // The first write is rolled back; all later ones are rejected.
    while server.create("configmaps", json!({"metadata": {"generateName": "c", "namespace": "default"}})).is_ok() {
        tokio::task::yield_now().await;
    }
    let requests_before = admission.0.load(Ordering::SeqCst);
    exit.cancel();
    while admission.0.load(Ordering::SeqCst) == requests_before {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.get("pods", "default", "job").unwrap()["status"]["phase"], "Running");

    disk.set_full(false);
    wait_for_phase("Succeeded").await;
    cluster.stop().await;
}
