//! A server and a node agent whose disk is slow, or full for a while.

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

use super::crash_tests::{PATIENCE, open};
use super::faults::Disk;
use crate::Server;
use crate::cluster::Cluster;
use crate::node::Folders;
use crate::node::process::ProcessRunner;
use crate::ports::{
    Admission, AdmissionRequest, AdmissionResponse, AdmitAll, Container, Exit, Loopback, Ports, Runner, SystemClock,
    SystemRandom,
};

#[tokio::test]
async fn nobody_is_told_before_it_is_on_disk() {
    timeout(PATIENCE, answers_wait()).await.expect("somebody is never told");
}

/// Answers of writes, of reads that could show them, and watches wait for the disk.
async fn answers_wait() {
    let disk = Disk::default();
    let ports = Ports {
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
        admission: Arc::new(AdmitAll),
        runner: Arc::new(ProcessRunner::default()),
        network: Arc::new(Loopback),
    };
    let server = Server::on(&ports, open(&disk).unwrap());
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
    assert!(server.get("configmaps", "default", "a").is_some(), "the next write may build on it");
    let mut read = pin!(request("GET", &Value::Null));
    assert!(poll!(&mut read).is_pending());
    assert!(poll!(pin!(changes.next())).is_pending());

    disk.set_slow(false);
    assert_eq!(write.await.unwrap().status(), 201);
    assert_eq!(read.await.unwrap().status(), 200);
    assert_eq!(changes.next().await.unwrap().name, "a");

    // What cannot be stored is answered so, and nobody sees it.
    disk.set_full(true);
    let refused = request("POST", &json!({"metadata": {"name": "b"}})).await.unwrap();
    assert_eq!(refused.status(), 507);
    assert!(changes.next().await.is_err(), "who follows the changes looks at everything again");
    assert!(server.get("configmaps", "default", "b").is_none());
    assert_eq!(request("GET", &Value::Null).await.unwrap().status(), 200);
    disk.set_full(false);
}

/// Counts what is asked of Pods while nothing can be stored.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Admission for Counting {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        if request.resource == "pods" {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        AdmissionResponse { allowed: true, ..AdmissionResponse::default() }
    }
}

/// Every container ends when the test says so.
#[derive(Default)]
struct EndsWhenTold(CancellationToken);

impl Runner for EndsWhenTold {
    fn run(&self, _container: Container, stop: CancellationToken) -> BoxFuture<'static, Exit> {
        let told = self.0.clone();
        Box::pin(async move {
            tokio::select! {
                () = told.cancelled() => {}
                () = stop.cancelled() => {}
            }
            Exit { code: 0, message: String::new() }
        })
    }
}

#[tokio::test]
async fn what_a_full_disk_refused_the_node_agent_says_again() {
    timeout(PATIENCE, a_pod_ends_on_a_full_disk()).await.expect("the end of the Pod is never told");
}

/// Once there is room, its Pod says so.
async fn a_pod_ends_on_a_full_disk() {
    let (disk, admission, end) = (Disk::default(), Arc::new(Counting::default()), CancellationToken::new());
    let ports = Ports {
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
        admission: Arc::clone(&admission) as Arc<dyn Admission>,
        runner: Arc::new(EndsWhenTold(end.clone())),
        network: Arc::new(Loopback),
    };
    let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}});
    let cluster = Cluster::start_on(open(&disk).unwrap(), ports, vec![node], Folders::default());
    let server = cluster.server().clone();
    let phase = async |expected: &str| {
        let mut changes = server.subscribe();
        let pod = || server.get("pods", "default", "job");
        while pod().is_none_or(|pod| pod["status"]["phase"] != expected) {
            let _ = changes.next().await;
        }
    };
    let pod = json!({"metadata": {"name": "job", "namespace": "default"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "main"}]}});
    server.create("pods", pod).unwrap();
    phase("Running").await;
    server.flush().await.unwrap();

    disk.set_full(true);
    // Whoever writes first is undone; from then on everybody is refused.
    while server.create("configmaps", json!({"metadata": {"generateName": "c", "namespace": "default"}})).is_ok() {
        tokio::task::yield_now().await;
    }
    let asked = admission.0.load(Ordering::SeqCst);
    end.cancel();
    while admission.0.load(Ordering::SeqCst) == asked {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.get("pods", "default", "job").unwrap()["status"]["phase"], "Running");

    disk.set_full(false);
    phase("Succeeded").await;
    cluster.stop().await;
}
