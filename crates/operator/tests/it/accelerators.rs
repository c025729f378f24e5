//! Classes: what is discovered, what is counted, what stays as a person wrote it.

use std::sync::Arc;

use operator::{Metrics, Options};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::cluster::{CATALOGUE, SERVICES, World, five_lines};

pub(crate) const CLASSES: &str = "acceleratorclasses.ome.io";
const MODEL: &str = "llama-3-2-3b-instruct";

/// Story 2's runtime, for the models of one architecture.
const UNIVERSAL: &str = r#"
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: sglang-universal}
spec:
  supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true}]
  acceleratorRequirements:
    requiredCapabilities: {minComputeCapability: "8.0", requiredFeatures: [tensor-cores]}
  engineConfig: {runner: {name: ome-container, image: "example.com/sglang:1"}}
"#;

pub(crate) fn gpu(name: &str, product: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": "81559",
            "nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0"}},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti"},
            "conditions": [{"type": "Ready", "status": "True"}]}})
}

pub(crate) fn by_hand(name: &str, selector: Value) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": name},
        "spec": {"discovery": {"nodeSelector": selector}, "capabilities": {"memoryGB": "80Gi", "computeCapability": "9.0",
            "features": ["tensor-cores"]}, "resources": [{"name": "nvidia.com/gpu"}]}})
}

/// Facts of the shipped classes, as the binary passes them.
pub(crate) fn knowing() -> Options {
    let documents = api::manifest::read("catalogue", CATALOGUE[0].1).unwrap();
    Options { known_classes: documents.into_iter().map(|document| document.value).collect(), ..Options::default() }
}

pub(crate) fn names(server: &embedded::Server, resource: &str) -> Vec<String> {
    server.list(resource).iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

impl World {
    /// Waits for a class of which `holds`.
    pub(crate) async fn class(&self, name: &str, holds: impl Fn(&Value) -> bool) -> Arc<Value> {
        self.until(&format!("class {name}"), |server| server.get(CLASSES, "", name).filter(|class| holds(class))).await
    }

    /// Changes the class as a person would.
    pub(crate) fn edit_class(&self, name: &str, change: impl Fn(&mut Value)) {
        let mut class = (*self.server.get(CLASSES, "", name).unwrap()).clone();
        change(&mut class);
        self.server.update(CLASSES, class).unwrap();
    }
}

// spec: ACC-7
// spec: ACC-8
// spec: ACC-39
// spec: ACC-41
#[tokio::test(start_paused = true)]
async fn products_of_nodes_become_classes_and_nothing_else_changes() {
    let world = World::empty();
    world.server.create("nodes", gpu("a", "NVIDIA-X900")).unwrap();
    world.server.create("nodes", gpu("b", "NVIDIA-X900")).unwrap();
    let amd = json!({"metadata": {"name": "c", "labels": {"amd.com/gpu.product": "MI250X"}}, "status": {"allocatable": {"amd.com/gpu": "8"}}});
    world.server.create("nodes", amd).unwrap();
    let nodes = world.server.list("nodes");
    world.operate(knowing());
    let class = world.class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 16).await;
    world.class("mi250x", |class| class["status"]["availableNodes"] == 1).await;
    world.quiet().await;
    assert_eq!(names(&world.server, CLASSES), ["mi250x", "nvidia-x900"]);
    assert_eq!(class["metadata"]["labels"]["ome.io/auto-discovered"], "true");
    assert!(class["spec"]["cost"].is_null());
    assert_eq!(world.server.list("nodes"), nodes, "no node is touched");
    assert!(names(&world.server, "clusterservingruntimes.ome.io").is_empty());
    assert!(names(&world.server, "servingruntimes.ome.io").is_empty());
}

// spec: ACC-41
// spec: ACC-47
#[tokio::test(start_paused = true)]
async fn what_a_person_writes_or_edits_stays() {
    let world = World::empty();
    world.server.create("nodes", gpu("a", "NVIDIA-X900")).unwrap();
    world.operate(knowing());
    world.class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 8).await;
    world.edit_class("nvidia-x900", |class| class["spec"]["capabilities"]["memoryGB"] = json!("96Gi"));
    world.server.create(CLASSES, by_hand("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X901"}))).unwrap();
    // Nodes and classes are watched apart: a node that is heard of first would be discovered.
    world.class("mine", |class| class["status"]["conditions"].is_array()).await;
    world.server.create("nodes", gpu("b", "NVIDIA-X900")).unwrap();
    world.server.create("nodes", gpu("c", "NVIDIA-X901")).unwrap();
    world.class("mine", |class| class["status"]["nodes"] == json!(["c"])).await;
    let edited = world.class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 16).await;
    world.quiet().await;
    assert_eq!(edited["spec"]["capabilities"]["memoryGB"], "96Gi");
    assert_eq!(names(&world.server, CLASSES), ["mine", "nvidia-x900"]);
}

// spec: ACC-47
#[tokio::test(start_paused = true)]
async fn ones_own_class_for_a_discovered_product_takes_its_nodes() {
    let world = World::empty();
    world.server.create("nodes", gpu("a", "NVIDIA-X900")).unwrap();
    world.operate(knowing());
    world.class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 8).await;
    world.server.create(CLASSES, by_hand("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X900"}))).unwrap();
    world.class("mine", |class| class["status"]["totalAccelerators"] == 8).await;
    world.class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 0).await;
    world.server.delete(CLASSES, "", "mine", None).unwrap();
    world.class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 8).await;
}

// spec: ACC-47
#[tokio::test(start_paused = true)]
async fn with_discovery_off_only_written_classes_exist() {
    let world = World::empty();
    world.server.create("nodes", gpu("a", "NVIDIA-X900")).unwrap();
    world.create_all(CATALOGUE[2].0, CATALOGUE[2].1);
    world.create_all("clusterservingruntimes.ome.io", UNIVERSAL);
    world.server.create(CLASSES, by_hand("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X900"}))).unwrap();
    world.server.create("nodes", gpu("b", "NVIDIA-X901")).unwrap();
    world.operate(Options { discovery: false, ..knowing() });
    world.server.create(SERVICES, five_lines("chat", MODEL)).unwrap();
    let service = world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
    assert_eq!(service["status"]["components"]["engine"]["selectedAccelerator"]["acceleratorClass"], "mine");
    assert_eq!(names(&world.server, CLASSES), ["mine"]);
}

// spec: ACC-45
#[tokio::test(start_paused = true)]
async fn labels_of_the_gpu_operator_suffice() {
    let world = World::empty();
    world.server.create("nodes", gpu("a", "NVIDIA-H100-80GB-HBM3")).unwrap();
    world.create_all(CATALOGUE[2].0, CATALOGUE[2].1);
    world.create_all("clusterservingruntimes.ome.io", UNIVERSAL);
    world.operate(knowing());
    world.class("nvidia-h100-80gb-hbm3", |class| class["status"]["totalAccelerators"] == 8).await;
    world.server.create(SERVICES, five_lines("chat", MODEL)).unwrap();
    let service = world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
    assert_eq!(service["status"]["decision"]["runtime"]["name"], "sglang-universal");
    world.ready("chat-engine");
    world.condition(SERVICES, "chat", "Ready", "True").await;
}

/// The gate is off: no class is made or counted, and services are decided without them.
// spec: ACC-125
#[tokio::test(start_paused = true)]
async fn with_the_gate_off_nothing_is_done_about_classes() {
    let world = World::empty();
    world.server.create("nodes", gpu("a", "NVIDIA-X900")).unwrap();
    world.create_all(CATALOGUE[2].0, CATALOGUE[2].1);
    world.create_all("clusterservingruntimes.ome.io", UNIVERSAL);
    world.server.create(CLASSES, by_hand("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X900"}))).unwrap();
    world.operate(Options { accelerator_aware: false, ..knowing() });
    world.server.create(SERVICES, five_lines("chat", MODEL)).unwrap();
    let service = world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
    world.quiet().await;
    assert!(service["status"]["components"]["engine"]["selectedAccelerator"].is_null());
    let deployment = world.server.get("deployments.apps", "default", "chat-engine").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert!(pod["nodeSelector"].is_null() && pod["containers"][0]["resources"]["limits"].is_null(), "{pod}");
    assert_eq!(names(&world.server, CLASSES), ["mine"]);
    assert!(world.server.get(CLASSES, "", "mine").unwrap()["status"].is_null());
}

// spec: ACC-28
// spec: ACC-29
// spec: ACC-30
#[tokio::test(start_paused = true)]
async fn numbers_follow_nodes_and_pods() {
    let world = World::empty();
    let class = by_hand("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X900"}));
    world.server.create(CLASSES, class).unwrap();
    world.operate(knowing());
    let none = world.class("mine", |class| class["status"]["conditions"].is_array()).await;
    let matched = cluster::conditions::find(&none["status"]["conditions"], "NodesMatched").unwrap();
    assert_eq!((&matched["status"], &matched["reason"]), (&json!("False"), &json!("NoMatchingNodes")));
    assert_eq!(matched["observedGeneration"], none["metadata"]["generation"]);
    for name in ["b", "a"] {
        world.server.create("nodes", gpu(name, "NVIDIA-X900")).unwrap();
    }
    let all = world.class("mine", |class| class["status"]["availableAccelerators"] == 16).await;
    assert_eq!(all["status"]["nodes"], json!(["a", "b"]));
    let pod = json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "a",
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 3}}}]}});
    world.server.create("pods", pod).unwrap();
    world.class("mine", |class| class["status"]["availableAccelerators"] == 13).await;
    let mut cordoned = (*world.server.get("nodes", "", "b").unwrap()).clone();
    cordoned["spec"]["unschedulable"] = json!(true);
    world.server.update("nodes", cordoned).unwrap();
    let class = world.class("mine", |class| class["status"]["availableNodes"] == 1).await;
    assert_eq!(
        (&class["status"]["availableAccelerators"], &class["status"]["totalAccelerators"]),
        (&json!(5), &json!(16))
    );
    let mut ended = (*world.server.get("pods", "default", "p").unwrap()).clone();
    ended["status"]["phase"] = json!("Succeeded");
    world.server.update_status("pods", ended).unwrap();
    world.class("mine", |class| class["status"]["availableAccelerators"] == 8).await;
}

// spec: ACC-46
#[tokio::test(start_paused = true)]
async fn a_heartbeat_costs_no_request() {
    let world = World::empty();
    world.server.create("nodes", gpu("a", "NVIDIA-X900")).unwrap();
    world.operate(knowing());
    world.class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 8).await;
    world.quiet().await;
    let before = world.requests();
    let updated = world.server.get(CLASSES, "", "nvidia-x900").unwrap();
    for beat in 0..10 {
        let mut node = (*world.server.get("nodes", "", "a").unwrap()).clone();
        node["status"]["conditions"][0]["lastHeartbeatTime"] = json!(format!("2026-01-01T00:00:{beat:02}Z"));
        world.server.update_status("nodes", node).unwrap();
    }
    world.quiet().await;
    assert_eq!(world.requests(), before);
    assert_eq!(world.server.get(CLASSES, "", "nvidia-x900").unwrap(), updated);
}

// spec: ACC-12
// spec: ACC-14
// spec: ACC-31
#[tokio::test(start_paused = true)]
async fn a_class_is_an_ordinary_object_with_a_status_of_its_own() {
    let world = World::empty();
    let server = &world.server;
    let mut changes = server.subscribe();
    server.create(CLASSES, by_hand("mine", json!({"a": "b"}))).unwrap();
    let mut both = (*server.get(CLASSES, "", "mine").unwrap()).clone();
    both["status"] = json!({"availableNodes": 7});
    both["spec"]["vendor"] = json!("acme");
    let written = server.update(CLASSES, both.clone()).unwrap();
    assert_eq!((&written["spec"]["vendor"], written["status"].is_null()), (&json!("acme"), true));
    both["metadata"]["resourceVersion"] = written["metadata"]["resourceVersion"].clone();
    both["spec"]["vendor"] = json!("other");
    let told = server.update_status(CLASSES, both).unwrap();
    assert_eq!((&told["spec"]["vendor"], &told["status"]["availableNodes"]), (&json!("acme"), &json!(7)));
    for field in ["discovery", "capabilities"] {
        let mut without = by_hand("without", json!({"a": "b"}));
        without["spec"].as_object_mut().unwrap().remove(field);
        let refused = server.create(CLASSES, without).unwrap_err();
        assert!(refused.to_string().contains(field), "{refused}");
    }
    let nothing_else = json!({"metadata": {"name": "bare"}, "spec": {"discovery": {}, "capabilities": {}}});
    server.create(CLASSES, nothing_else).unwrap();
    assert_eq!(names(server, CLASSES), ["bare", "mine"]);
    server.delete(CLASSES, "", "mine", None).unwrap();
    assert_eq!(names(server, CLASSES), ["bare"], "nobody holds a deletion back");
    let mut seen = Vec::new();
    while let Ok(Ok(change)) = tokio::time::timeout(std::time::Duration::from_millis(100), changes.next()).await {
        seen.push(change.name);
    }
    assert_eq!(seen, ["mine", "mine", "mine", "bare", "mine"]);
}

// spec: ACC-126
#[tokio::test(start_paused = true)]
async fn a_scrape_shows_decisions_and_accelerators() {
    let world = World::empty();
    world.server.create("nodes", gpu("a", "NVIDIA-X900")).unwrap();
    world.create_all(CATALOGUE[2].0, CATALOGUE[2].1);
    world.create_all("clusterservingruntimes.ome.io", UNIVERSAL);
    let metrics = Arc::new(Metrics::default());
    world.operate(Options { metrics: Arc::clone(&metrics), ..knowing() });
    world.class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 8).await;
    world.server.create(SERVICES, five_lines("chat", MODEL)).unwrap();
    world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
    // Sockets know no paused time.
    tokio::time::resume();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    tokio::spawn(operator::metrics::serve(listener, metrics, stop));
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(text.contains("ostler_accelerators{class=\"nvidia-x900\",state=\"total\"} 8"), "{text}");
    assert!(text.contains("ostler_accelerator_selection_total{outcome="), "{text}");
    assert!(text.contains("ostler_decision_duration_seconds_bucket{le="), "{text}");
}
