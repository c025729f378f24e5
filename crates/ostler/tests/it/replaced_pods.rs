//! Requests of clients while the Pods of a service are replaced: by a larger model on one or several nodes, and by the drain of
//! a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DynamicObject, EvictParams, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use crate::session::{Session, TempDirectory, ostler, outcome, post_chat, wait_until};

const NAME: &str = "inferenceservice.ome.io/chat";

/// Clients that send requests to model `chat` until they are stopped.
struct Clients {
    stop: Arc<AtomicBool>,
    responses: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

/// A cluster with service `chat`, which is ready.
struct ReplacementTest {
    session: Session,
    client: kube::Client,
}

// === impl Clients ===

impl Clients {
    /// Starts clients, and waits until each of them has received responses.
    fn start(session: &Session) -> Self {
        let (stop, responses) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |_| {
            let (stop, responses) = (Arc::clone(&stop), Arc::clone(&responses));
            let host = session.gateway.trim_start_matches("http://").to_owned();
            std::thread::spawn(move || {
                let mut failures = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let response = send_request(&host);
                    if !response.starts_with("HTTP/1.0 200") && !response.starts_with("HTTP/1.1 200") {
                        failures.push(response);
                    }
                    responses.fetch_add(1, Ordering::Relaxed);
                }
                failures
            })
        };
        let threads = (0..4).map(client).collect();
        let clients = Self { stop, responses, threads };
        clients.wait_for_responses();
        clients
    }

    /// Waits for further responses.
    fn wait_for_responses(&self) {
        let before = self.responses.load(Ordering::Relaxed);
        wait_until("further responses", || (self.responses.load(Ordering::Relaxed) > before + 20).then_some(()));
    }

    /// Stops the clients and checks that no request failed.
    fn assert_no_failures(self) {
        self.wait_for_responses();
        self.stop.store(true, Ordering::Relaxed);
        let failures: Vec<String> = self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(failures, [""; 0]);
    }
}

/// Sends a chat completion and returns the response.
fn send_request(host: &str) -> String {
    let messages = json!([{"role": "user", "content": "Why do horses sleep standing?"}]);
    let body = json!({"model": "chat", "messages": messages, "max_tokens": 16}).to_string();
    post_chat(host, &body)
}

// === impl ReplacementTest ===

impl ReplacementTest {
    async fn start(nodes: &str, replicas: u32) -> Self {
        let directory = TempDirectory::new();
        let engine = json!({"minReplicas": replicas, "maxReplicas": replicas});
        let chat = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
            "metadata": {"name": "chat", "namespace": "default"},
            "spec": {"model": {"name": "llama-3-2-3b-instruct"}, "engine": engine}});
        let file = directory.file("chat.json", &chat.to_string());
        let session = Session::start(&["--nodes", nodes, "-f", &file]);
        let config = Kubeconfig::read_from(&session.kubeconfig).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        config.proxy_url = None;
        // Otherwise the client repeats an eviction that a disruption budget forbids.
        config.default_retry = false;
        rustls::crypto::ring::default_provider().install_default().ok();
        let test = Self { session, client: kube::Client::try_from(config).unwrap() };
        test.wait_for_rollout();
        test
    }

    /// Waits until the service is ready.
    fn wait_for_rollout(&self) {
        let args = ["rollout", "status", NAME, "--timeout", "10m", "--kubeconfig", &self.session.kubeconfig];
        let (stdout, stderr, code) = outcome(&ostler(&args).output().unwrap());
        assert_eq!(code, Some(0), "{stdout}{stderr}");
    }

    fn services(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("ome.io", "v1beta1", "InferenceService");
        Api::namespaced_with(self.client.clone(), "default", &ApiResource::from_gvk(&kind))
    }

    /// Returns the names of the engine Pods and their nodes; the node is empty for a Pod that is not scheduled.
    async fn pods(&self) -> Vec<(String, String)> {
        let pods = Api::<Pod>::default_namespaced(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let name_and_node = |pod: Pod| {
            let node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
            (pod.metadata.name.unwrap(), node)
        };
        pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).map(name_and_node).collect()
    }

    async fn set_unschedulable(&self, node: &str, unschedulable: bool) {
        let patch = json!({"spec": {"unschedulable": unschedulable}});
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// Evicts a Pod like `kubectl drain`. Returns the cause if a disruption budget forbids it.
    async fn evict(&self, pod: &str) -> Result<(), String> {
        let pods = Api::<Pod>::default_namespaced(self.client.clone());
        match pods.evict(pod, &EvictParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 429 => {
                Err(status.details.as_ref().unwrap().causes[0].message.clone())
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Drains a node like `kubectl drain`: cordons it, and repeats evictions that a disruption budget forbids.
    async fn drain(&self, node: &str) {
        self.set_unschedulable(node, true).await;
        for (pod, _) in self.pods().await.into_iter().filter(|(_, of)| of == node) {
            while self.evict(&pod).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

/// The larger model selects another runtime and another class. Clients use the name of the service throughout.
#[tokio::test]
async fn larger_model_replaces_the_smaller_one_without_a_failed_request() {
    let test = ReplacementTest::start("1×L40S-48G, 8×H100-80G", 1).await;
    let clients = Clients::start(&test.session);
    let edit = json!({"spec": {"model": {"name": "llama-3-3-70b-instruct"}}});
    let services = test.services();
    services.patch("chat", &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    test.wait_for_rollout();
    clients.assert_no_failures();
    let engine: Value = services.get("chat").await.unwrap().data["status"]["components"]["engine"].clone();
    assert_eq!(engine["selectedAccelerator"]["acceleratorClass"], "nvidia-h100-80gb");
}

/// The larger model needs two nodes, so a LeaderWorkerSet replaces the Deployment, and then a Deployment replaces the
/// LeaderWorkerSet.
#[tokio::test]
async fn model_on_several_nodes_replaces_the_smaller_one_without_a_failed_request() {
    let test = ReplacementTest::start("1×L40S-48G, 8×H100-80G ×2", 1).await;
    let clients = Clients::start(&test.session);
    let services = test.services();
    for (model, nodes) in [("deepseek-v3", json!(2)), ("llama-3-2-3b-instruct", Value::Null)] {
        let edit = json!({"spec": {"model": {"name": model}}});
        services.patch("chat", &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
        test.wait_for_rollout();
        clients.wait_for_responses();
        let engine: Value = services.get("chat").await.unwrap().data["status"]["components"]["engine"].clone();
        assert_eq!(engine["nodes"], nodes, "{model}");
    }
    clients.assert_no_failures();
    let remaining = || async { test.pods().await.len() };
    while remaining().await > 1 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// The other replica serves during the drain of a node. A second drain waits for the disruption budget of the engine as
/// long as no node can run the evicted Pod.
#[tokio::test]
async fn drained_node_fails_no_request() {
    let test = ReplacementTest::start("8×H100-80G ×2", 2).await;
    let clients = Clients::start(&test.session);
    let first = test.pods().await[0].1.clone();
    let second = if first == "h100-0" { "h100-1" } else { "h100-0" };
    test.drain(&first).await;
    test.wait_for_rollout();
    clients.wait_for_responses();
    let pods = test.pods().await;
    assert!(pods.len() == 2 && pods.iter().all(|(_, node)| node == second), "{pods:?}");

    test.set_unschedulable(second, true).await;
    test.evict(&pods[0].0).await.unwrap();
    let budget = "The disruption budget chat-engine needs 1 healthy pods and has 1 currently";
    assert_eq!(test.evict(&pods[1].0).await.unwrap_err(), budget);
    clients.wait_for_responses();
    assert!(test.pods().await.contains(&pods[1]), "the Pod keeps running");

    test.set_unschedulable(&first, false).await;
    test.drain(second).await;
    test.wait_for_rollout();
    clients.assert_no_failures();
    let pods = test.pods().await;
    assert!(pods.len() == 2 && pods.iter().all(|(_, node)| *node == first), "{pods:?}");
}
