//! A cluster on a disk that is temporarily full.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use embedded::ports::{
    Admission, AdmissionRequest, AdmissionResponse, ContainerConfig, ContainerExit, ContainerRuntime, NoDevices, Ports,
    ServerPorts, TcpNetwork,
};
use embedded::{Cluster, NodeDirectories, Store, StoreSettings};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::faulty_storage::FaultyStorage;

/// Counts the admission requests for Pods while the disk is full.
#[derive(Default)]
struct CountingAdmission(AtomicUsize);

/// Runs containers that exit when the test cancels the token.
#[derive(Default)]
struct ExitOnCancel(CancellationToken);

// === impl CountingAdmission ===

impl Admission for CountingAdmission {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        if request.resource == "pods" {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        AdmissionResponse { allowed: true, ..AdmissionResponse::default() }
    }
}

// === impl ExitOnCancel ===

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
    timeout(Duration::from_secs(300), check_pod_phase_after_full_disk())
        .await
        .expect("the final phase of the Pod is missing");
}

/// The Pod reaches its final phase once the disk has free space.
async fn check_pod_phase_after_full_disk() {
    let (admission, exit) = (Arc::new(CountingAdmission::default()), CancellationToken::new());
    let directory = tempfile::tempdir().unwrap();
    let is_full = Arc::new(AtomicBool::new(false));
    let disk = FaultyStorage::new(directory.path(), {
        let is_full = Arc::clone(&is_full);
        move |file, bytes| {
            if is_full.load(Ordering::SeqCst) {
                file.append(&bytes[..bytes.len() / 2])?;
                return Err(io::ErrorKind::StorageFull.into());
            }
            file.append(bytes)
        }
    });
    let settings = StoreSettings { retry_delay: Duration::from_millis(1), ..StoreSettings::default() };
    let store = Store::open(Arc::new(disk), settings).unwrap();
    let ports = Ports {
        server: ServerPorts { admission: Arc::clone(&admission) as Arc<dyn Admission>, ..ServerPorts::default() },
        runtime: Arc::new(ExitOnCancel(exit.clone())),
        network: Arc::new(TcpNetwork),
        devices: Arc::new(NoDevices),
    };
    let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}});
    let cluster = Cluster::start_with_store(store, ports, vec![node], NodeDirectories::default()).unwrap();
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

    is_full.store(true, Ordering::SeqCst);
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

    is_full.store(false, Ordering::SeqCst);
    wait_for_phase("Succeeded").await;
    cluster.stop().await;
}
