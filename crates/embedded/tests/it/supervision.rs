//! Panics in ports: the affected object or task is retried, everything else continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use embedded::ports::{Admission, AdmissionRequest, AdmissionResponse, NoDevices, Ports, ServerPorts};
use embedded::{Cluster, DEFAULT_HISTORY_SIZE, NodeDirectories, Server, Store, StoreSettings, TaskStatus};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use crate::faulty_storage::FaultyStorage;
use crate::workloads::{HealthyNetwork, PausedClock, SimulatedRuntime, condition, deployment, pod};

/// Panics when it reviews a matching write while it is broken.
struct BrokenAdmission {
    is_broken: AtomicBool,
    matches: fn(&AdmissionRequest<'_>) -> bool,
}

// === impl BrokenAdmission ===

impl BrokenAdmission {
    fn new(matches: fn(&AdmissionRequest<'_>) -> bool) -> Arc<Self> {
        Arc::new(Self { is_broken: AtomicBool::new(true), matches })
    }

    fn repair(&self) {
        self.is_broken.store(false, Ordering::SeqCst);
    }
}

impl Admission for BrokenAdmission {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        assert!(!(self.is_broken.load(Ordering::SeqCst) && (self.matches)(request)), "broken admission");
        AdmissionResponse { allowed: true, ..AdmissionResponse::default() }
    }
}

fn start(admission: &Arc<BrokenAdmission>) -> Cluster {
    start_with_store(Store::new(DEFAULT_HISTORY_SIZE), Arc::clone(admission) as Arc<dyn Admission>)
}

fn start_with_store(store: Store, admission: Arc<dyn Admission>) -> Cluster {
    let server = ServerPorts { clock: Arc::new(PausedClock::new()), admission, ..ServerPorts::default() };
    let runtime = Arc::new(SimulatedRuntime::default());
    let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}});
    let ports = Ports { server, runtime, network: Arc::new(HealthyNetwork), devices: Arc::new(NoDevices) };
    Cluster::start_with_store(store, ports, vec![node], NodeDirectories::default()).unwrap()
}

fn named_deployment(name: &str) -> Value {
    let mut deployment = deployment(1, "one");
    deployment["metadata"]["name"] = json!(name);
    deployment
}

fn is_available(server: &Server, name: &str) -> bool {
    let deployment = server.get("deployments.apps", "default", name).unwrap();
    condition(&deployment, "Available")["status"] == "True"
}

async fn wait_until(server: &Server, predicate: impl Fn(&Server) -> bool) {
    let mut changes = server.subscribe();
    let waiting = async {
        while !predicate(server) {
            let _ = changes.next().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(3600), waiting).await.expect("the condition does not hold in time");
}

fn status_of(cluster: &Cluster, task: &str) -> TaskStatus {
    cluster.task_statuses().borrow().values().find(|status| status.name == task).unwrap().clone()
}

/// Whether the scheduler reports that a Pod is unschedulable.
fn is_scheduler_report(request: &AdmissionRequest<'_>) -> bool {
    request.resource == "pods"
        && request.object.is_some_and(|pod| condition(pod, "PodScheduled")["reason"] == "Unschedulable")
}

fn unschedulable_pod() -> Value {
    pod("large", json!({"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}}}]}))
}

#[tokio::test(start_paused = true)]
async fn controllers_retry_an_object_that_panics_and_reconcile_the_others() {
    let admission =
        BrokenAdmission::new(|request| request.resource == "replicasets.apps" && request.name.starts_with("broken"));
    let cluster = start(&admission);
    let server = cluster.server().clone();
    for name in ["broken", "web"] {
        server.create("deployments.apps", named_deployment(name)).unwrap();
    }
    wait_until(&server, |server| is_available(server, "web")).await;
    assert!(!is_available(&server, "broken"));
    let expected = ("broken".to_owned(), "deployment-controller".to_owned(), true);
    wait_until(&server, |server| internal_errors(server).contains(&expected)).await;
    admission.repair();
    wait_until(&server, |server| is_available(server, "broken")).await;
    assert_eq!(status_of(&cluster, "workload controllers").restarts, 0);
    cluster.stop().await;
}

/// Returns the Warning Events about internal errors, as object, component and whether they occurred more than once.
fn internal_errors(server: &Server) -> Vec<(String, String, bool)> {
    let events = server.list("events");
    let errors = events.iter().filter(|event| event["type"] == "Warning" && event["reason"] == "InternalError");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let describe = |event: &Arc<Value>| {
        let repeated = event["count"].as_i64().unwrap() > 1;
        (text(&event["involvedObject"]["name"]), text(&event["source"]["component"]), repeated)
    };
    errors.map(describe).collect()
}

#[tokio::test(start_paused = true)]
async fn scheduler_retries_a_pod_that_panics_and_schedules_the_others() {
    let admission = BrokenAdmission::new(is_scheduler_report);
    let cluster = start(&admission);
    let server = cluster.server().clone();
    server.create("pods", unschedulable_pod()).unwrap();
    wait_until(&server, |server| {
        let expected = ("large".to_owned(), "default-scheduler".to_owned(), true);
        internal_errors(server).contains(&expected)
    })
    .await;
    server.create("deployments.apps", named_deployment("web")).unwrap();
    wait_until(&server, |server| is_available(server, "web")).await;
    // Far more than ten failures of a task.
    let failure = tokio::time::timeout(Duration::from_secs(2 * 3600), cluster.failed()).await;
    assert!(failure.is_err(), "{failure:?}");
    assert_eq!(status_of(&cluster, "scheduler").restarts, 0);
    admission.repair();
    let reason = |server: &Server| {
        let pod = server.get("pods", "default", "large").unwrap();
        condition(&pod, "PodScheduled")["reason"].clone()
    };
    wait_until(&server, |server| reason(server) == "Unschedulable").await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn node_agent_retries_objects_that_panic() {
    let admission = BrokenAdmission::new(|request| request.operation == "UPDATE" && request.name == "broken");
    let cluster = start(&admission);
    let server = cluster.server().clone();
    for name in ["broken", "other"] {
        let allocatable = json!({"cpu": "1", "pods": "9"});
        let node = json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}});
        server.create("nodes", node).unwrap();
    }
    let is_ready =
        |server: &Server, name: &str| condition(&server.get("nodes", "", name).unwrap(), "Ready")["status"] == "True";
    wait_until(&server, |server| {
        let expected = ("broken".to_owned(), "kubelet".to_owned(), true);
        is_ready(server, "other") && internal_errors(server).contains(&expected)
    })
    .await;
    assert_eq!(status_of(&cluster, "node agent").restarts, 0);
    admission.repair();
    wait_until(&server, |server| is_ready(server, "broken")).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_panics_gets_an_error_and_the_server_continues() {
    let server = Server::new(&ServerPorts {
        admission: BrokenAdmission::new(|request| request.name == "broken"),
        ..ServerPorts::default()
    });
    let create = async |name: &str| {
        let body = json!({"metadata": {"name": name}}).to_string();
        let request = http::Request::post("/api/v1/namespaces/default/configmaps");
        let request = request.header("Content-Type", "application/json").body(Body::from(body.into_bytes())).unwrap();
        let response = crate::client(&server).send(request).await.unwrap();
        let code = response.status().as_u16();
        (code, response.into_body().collect().await.unwrap().to_bytes())
    };
    let (code, body) = create("broken").await;
    assert_eq!(code, 500);
    assert_eq!(body, "This request caused apiserver to panic. Look in the logs for details.\n");
    assert_eq!(create("other").await.0, 201);
}

/// Creates a ConfigMap and waits until it is durable.
async fn create_durably(server: &Server) -> Result<(), String> {
    let config_map = json!({"metadata": {"generateName": "c", "namespace": "default"}});
    server.create("configmaps", config_map).map_err(|status| status.to_string())?;
    server.flush().await.map_err(|failure| failure.to_string())
}

#[tokio::test]
async fn a_journal_that_panics_is_rewritten_or_fails_the_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let (is_append_broken, is_path_broken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let storage = FaultyStorage::new(directory.path(), {
        let is_broken = Arc::clone(&is_append_broken);
        move |file, bytes| {
            assert!(!is_broken.load(Ordering::SeqCst), "broken file");
            file.append(bytes)
        }
    })
    .with_display_path({
        let is_broken = Arc::clone(&is_path_broken);
        move |name| {
            assert!(!is_broken.load(Ordering::SeqCst), "broken path");
            name.to_owned()
        }
    });
    let settings = StoreSettings { retry_delay: Duration::from_millis(1), ..StoreSettings::default() };
    let store = Store::open(Arc::new(storage), settings).unwrap();
    let cluster = start_with_store(store, Arc::new(embedded::ports::AdmitAll));
    let server = cluster.server().clone();
    create_durably(&server).await.unwrap();

    is_append_broken.store(true, Ordering::SeqCst);
    // A write of a controller may fail first; then the rollback may include the ConfigMap before the flush begins.
    let error = loop {
        if let Err(error) = create_durably(&server).await {
            break error;
        }
    };
    assert!(error.contains("objects.log: panicked: broken file"), "{error}");
    is_append_broken.store(false, Ordering::SeqCst);
    while create_durably(&server).await.is_err() {
        tokio::task::yield_now().await;
    }

    is_path_broken.store(true, Ordering::SeqCst);
    is_append_broken.store(true, Ordering::SeqCst);
    let _ = create_durably(&server).await;
    let failure = cluster.failed().await;
    assert_eq!(failure.to_string(), "the store failed: objects.log: the journal thread ended");
    assert!(create_durably(&server).await.unwrap_err().contains("broken path"), "further writes are rejected");
    cluster.stop().await;
}
