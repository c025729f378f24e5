//! A panic in a container or in the worker of a Pod affects no other Pod and leaves nothing running.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use embedded::ports::{
    Admission, AdmissionRequest, AdmissionResponse, ContainerConfig, ContainerExit, ContainerRuntime, NoDevices,
    ServerPorts, TcpNetwork,
};
use embedded::{NodeDirectories, Server};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Containers of image `panic` panic; others run until they are stopped.
#[derive(Clone, Default)]
struct RecordingRuntime {
    /// `+POD` when a container starts, `-POD` when it ends.
    runs: Arc<Mutex<Vec<String>>>,
}

/// Records the end of a container on drop.
struct Run {
    runtime: RecordingRuntime,
    pod: String,
}

/// Panics in the worker of Pod `faulty` when it reports that its container runs, as long as panics remain.
struct FaultyAdmission {
    remaining_panics: AtomicUsize,
}

// === impl RecordingRuntime ===

impl RecordingRuntime {
    fn record(&self, run: String) {
        self.runs.lock().unwrap().push(run);
    }

    fn runs_of(&self, pod: &str) -> String {
        let runs = self.runs.lock().unwrap();
        runs.iter().filter(|run| &run[1..] == pod).map(|run| &run[..1]).collect()
    }
}

impl ContainerRuntime for RecordingRuntime {
    fn run(&self, container: ContainerConfig, stop: CancellationToken) -> BoxFuture<'static, ContainerExit> {
        let run = Run { runtime: self.clone(), pod: container.pod };
        Box::pin(async move {
            run.runtime.record(format!("+{}", run.pod));
            assert_ne!(container.image, "panic");
            stop.cancelled().await;
            ContainerExit { code: 0, message: String::new() }
        })
    }
}

// === impl Run ===

impl Drop for Run {
    fn drop(&mut self) {
        self.runtime.record(format!("-{}", self.pod));
    }
}

// === impl FaultyAdmission ===

impl Admission for FaultyAdmission {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        let is_running = request.object.is_some_and(|object| object["status"]["phase"] == "Running");
        if request.resource == "pods" && request.name == "faulty" && is_running {
            let take = |remaining: usize| remaining.checked_sub(1);
            assert!(self.remaining_panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err());
        }
        AdmissionResponse { allowed: true, ..AdmissionResponse::default() }
    }
}

struct TestNode {
    server: Server,
    runtime: RecordingRuntime,
    stop: CancellationToken,
    agent: tokio::task::JoinHandle<()>,
}

// === impl TestNode ===

impl TestNode {
    fn start(panics: usize) -> Self {
        let admission = Arc::new(FaultyAdmission { remaining_panics: AtomicUsize::new(panics) });
        let server = Server::new(&ServerPorts { admission, ..ServerPorts::default() });
        let (runtime, stop) = (RecordingRuntime::default(), CancellationToken::new());
        let agent = tokio::spawn(embedded::run_node_agent(
            server.clone(),
            Arc::new(runtime.clone()),
            Arc::new(TcpNetwork),
            Arc::new(NoDevices),
            NodeDirectories::default(),
            stop.clone(),
        ));
        Self { server, runtime, stop, agent }
    }

    fn create_pod(&self, name: &str, image: &str) {
        let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": image}]});
        let pod = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        self.server.create("pods", pod).unwrap();
    }

    fn pod(&self, name: &str) -> Option<Arc<Value>> {
        self.server.get("pods", "default", name)
    }

    fn has_event(&self, reason: &str) -> bool {
        self.server.list("events").iter().any(|event| event["reason"] == reason)
    }

    async fn wait_for(&self, description: &str, predicate: impl Fn() -> bool) {
        let mut changes = self.server.subscribe();
        let waiting = async {
            while !predicate() {
                let _ = changes.next().await;
            }
        };
        let result = tokio::time::timeout(Duration::from_secs(3600), waiting).await;
        assert!(result.is_ok(), "timed out waiting for: {description}; {:?}", self.server.list("pods"));
    }

    async fn stop(self) {
        self.stop.cancel();
        self.agent.await.unwrap();
    }
}

fn is_running(pod: Option<&Arc<Value>>) -> bool {
    pod.is_some_and(|pod| pod["status"]["containerStatuses"][0]["state"]["running"].is_object())
}

#[tokio::test(start_paused = true)]
async fn worker_that_panics_is_restarted() {
    let node = TestNode::start(2);
    node.create_pod("other", "i");
    node.wait_for("the other Pod runs", || is_running(node.pod("other").as_ref())).await;
    node.create_pod("faulty", "i");
    node.wait_for("the Pod runs", || is_running(node.pod("faulty").as_ref())).await;
    assert_eq!(node.runtime.runs_of("faulty"), "+-+-+", "the containers end before the next worker starts");
    assert_eq!(node.runtime.runs_of("other"), "+", "the other Pod is not affected");
    assert!(node.has_event("FailedSync"));
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pod_whose_worker_always_panics_can_be_deleted() {
    let node = TestNode::start(usize::MAX);
    node.create_pod("faulty", "i");
    node.wait_for("the worker failed", || node.has_event("FailedSync")).await;
    node.server.delete("pods", "default", "faulty", None).unwrap();
    node.wait_for("the Pod is removed", || node.pod("faulty").is_none()).await;
    let runs = node.runtime.runs_of("faulty");
    assert!(runs.ends_with('-'), "no container runs: {runs}");
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn container_that_panics_is_restarted_like_one_that_crashes() {
    let node = TestNode::start(0);
    node.create_pod("crashing", "panic");
    node.wait_for("the second restart", || {
        node.pod("crashing").is_some_and(|pod| pod["status"]["containerStatuses"][0]["restartCount"] == 2)
    })
    .await;
    node.wait_for("back-off", || {
        let pod = node.pod("crashing").unwrap();
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    })
    .await;
    let pod = node.pod("crashing").unwrap();
    let terminated = &pod["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&terminated["exitCode"], &terminated["reason"]), (&json!(255), &json!("Unknown")));
    let message = terminated["message"].as_str().unwrap();
    assert!(message.starts_with("internal error of the node agent: panicked: "), "{message}");
    node.stop().await;
}
