//! Accelerator classes: discovery, counts, and user edits.

use std::sync::Arc;

use operator::{Metrics, Options};
use serde_json::{Value, json};

use crate::test_cluster::{CATALOG, OME_SERVICES, TestCluster, minimal_service};

pub(crate) const CLASSES: &str = "acceleratorclasses.ome.io";
const MODEL: &str = "llama-3-2-3b-instruct";

/// A runtime for all models of one architecture (seed 000, Story 2).
const UNIVERSAL_RUNTIME: &str = r#"
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: sglang-universal}
spec:
  supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true}]
  acceleratorRequirements:
    requiredCapabilities: {minComputeCapability: "8.0", requiredFeatures: [tensor-cores]}
  engineConfig: {runner: {name: ome-container, image: "example.com/sglang:1"}}
"#;

pub(crate) fn gpu_node(name: &str, product: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": "81559",
            "nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0"}},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti"},
            "conditions": [{"type": "Ready", "status": "True"}]}})
}

pub(crate) fn user_class(name: &str, selector: Value) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": name},
        "spec": {"discovery": {"nodeSelector": selector}, "capabilities": {"memoryGB": "80Gi", "computeCapability": "9.0",
            "features": ["tensor-cores"]}, "resources": [{"name": "nvidia.com/gpu"}]}})
}

/// Returns a copy of a generated object as `kubectl get -o yaml` and `kubectl create` make it: with its annotations.
pub(crate) fn copy_of(object: &Value, name: &str) -> Value {
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "spec": object["spec"], "metadata": {"name": name,
        "labels": object["metadata"]["labels"], "annotations": object["metadata"]["annotations"]}})
}

/// Returns options with the shipped classes, as the binary passes them.
pub(crate) fn options_with_known_classes() -> Options {
    let documents = api::parse_manifest("catalogue", CATALOG[0].1).unwrap();
    Options { known_classes: documents.into_iter().map(|document| document.value).collect(), ..Options::default() }
}

pub(crate) fn names(server: &embedded::Server, resource: &str) -> Vec<String> {
    server.list(resource).iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

impl TestCluster {
    /// Waits for a class for which `predicate` holds.
    pub(crate) async fn wait_for_class(&self, name: &str, predicate: impl Fn(&Value) -> bool) -> Arc<Value> {
        self.wait_for(&format!("class {name}"), |server| server.get(CLASSES, "", name).filter(|class| predicate(class)))
            .await
    }

    /// Updates a class as a user would.
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
async fn discovers_classes_from_node_labels() {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create("nodes", gpu_node("a", "NVIDIA-X900")).unwrap();
    test_cluster.server.create("nodes", gpu_node("b", "NVIDIA-X900")).unwrap();
    let amd = json!({"metadata": {"name": "c", "labels": {"amd.com/gpu.product": "MI250X"}}, "status": {"allocatable": {"amd.com/gpu": "8"}}});
    test_cluster.server.create("nodes", amd).unwrap();
    let nodes = test_cluster.server.list("nodes");
    test_cluster.start_operator(options_with_known_classes());
    let class = test_cluster.wait_for_class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 16).await;
    test_cluster.wait_for_class("mi250x", |class| class["status"]["availableNodes"] == 1).await;
    test_cluster.wait_until_idle().await;
    assert_eq!(names(&test_cluster.server, CLASSES), ["mi250x", "nvidia-x900"]);
    assert_eq!(class["metadata"]["labels"]["ome.io/auto-discovered"], "true");
    assert!(class["spec"]["cost"].is_null());
    assert_eq!(test_cluster.server.list("nodes"), nodes, "no node is modified");
    assert!(names(&test_cluster.server, "clusterservingruntimes.ome.io").is_empty());
    assert!(names(&test_cluster.server, "servingruntimes.ome.io").is_empty());
}

// spec: ACC-41
// spec: ACC-47
#[tokio::test(start_paused = true)]
async fn keeps_user_classes_and_edits() {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create("nodes", gpu_node("a", "NVIDIA-X900")).unwrap();
    test_cluster.start_operator(options_with_known_classes());
    test_cluster.wait_for_class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 8).await;
    test_cluster.edit_class("nvidia-x900", |class| class["spec"]["capabilities"]["memoryGB"] = json!("96Gi"));
    test_cluster.server.create(CLASSES, user_class("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X901"}))).unwrap();
    // Nodes and classes are watched separately. If the node were observed before the class, discovery would create
    // another class for it.
    test_cluster.wait_for_class("mine", |class| class["status"]["conditions"].is_array()).await;
    test_cluster.server.create("nodes", gpu_node("b", "NVIDIA-X900")).unwrap();
    test_cluster.server.create("nodes", gpu_node("c", "NVIDIA-X901")).unwrap();
    test_cluster.wait_for_class("mine", |class| class["status"]["nodes"] == json!(["c"])).await;
    let edited_class =
        test_cluster.wait_for_class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 16).await;
    test_cluster.wait_until_idle().await;
    assert_eq!(edited_class["spec"]["capabilities"]["memoryGB"], "96Gi");
    assert_eq!(names(&test_cluster.server, CLASSES), ["mine", "nvidia-x900"]);
}

// spec: ACC-47
#[tokio::test(start_paused = true)]
async fn user_class_takes_the_nodes_of_a_discovered_class() {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create("nodes", gpu_node("a", "NVIDIA-X900")).unwrap();
    test_cluster.start_operator(options_with_known_classes());
    test_cluster.wait_for_class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 8).await;
    test_cluster.server.create(CLASSES, user_class("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X900"}))).unwrap();
    test_cluster.wait_for_class("mine", |class| class["status"]["totalAccelerators"] == 8).await;
    test_cluster.wait_for_class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 0).await;
    test_cluster.server.delete(CLASSES, "", "mine", None).unwrap();
    test_cluster.wait_for_class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 8).await;
}

// spec: ACC-47
#[tokio::test(start_paused = true)]
async fn creates_no_classes_without_discovery() {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create("nodes", gpu_node("a", "NVIDIA-X900")).unwrap();
    test_cluster.create_all(CATALOG[2].0, CATALOG[2].1);
    test_cluster.create_all("clusterservingruntimes.ome.io", UNIVERSAL_RUNTIME);
    test_cluster.server.create(CLASSES, user_class("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X900"}))).unwrap();
    test_cluster.server.create("nodes", gpu_node("b", "NVIDIA-X901")).unwrap();
    test_cluster.start_operator(Options { discovery: false, ..options_with_known_classes() });
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", MODEL)).unwrap();
    let service = test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    assert_eq!(service["status"]["components"]["engine"]["selectedAccelerator"]["acceleratorClass"], "mine");
    assert_eq!(names(&test_cluster.server, CLASSES), ["mine"]);
}

// spec: ACC-45
#[tokio::test(start_paused = true)]
async fn gpu_operator_labels_are_sufficient() {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create("nodes", gpu_node("a", "NVIDIA-H100-80GB-HBM3")).unwrap();
    test_cluster.create_all(CATALOG[2].0, CATALOG[2].1);
    test_cluster.create_all("clusterservingruntimes.ome.io", UNIVERSAL_RUNTIME);
    test_cluster.start_operator(options_with_known_classes());
    test_cluster.wait_for_class("nvidia-h100-80gb-hbm3", |class| class["status"]["totalAccelerators"] == 8).await;
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", MODEL)).unwrap();
    let service = test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    assert_eq!(service["status"]["decision"]["runtime"]["name"], "sglang-universal");
    test_cluster.mark_deployment_ready("chat-engine");
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "Ready", "True").await;
}

/// With the feature gate off, no class is created or counted, and services are decided without them.
// spec: ACC-125
#[tokio::test(start_paused = true)]
async fn ignores_classes_with_the_feature_gate_off() {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create("nodes", gpu_node("a", "NVIDIA-X900")).unwrap();
    test_cluster.create_all(CATALOG[2].0, CATALOG[2].1);
    test_cluster.create_all("clusterservingruntimes.ome.io", UNIVERSAL_RUNTIME);
    test_cluster.server.create(CLASSES, user_class("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X900"}))).unwrap();
    test_cluster.start_operator(Options { accelerator_aware: false, ..options_with_known_classes() });
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", MODEL)).unwrap();
    let service = test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    test_cluster.wait_until_idle().await;
    assert!(service["status"]["components"]["engine"]["selectedAccelerator"].is_null());
    let deployment = test_cluster.server.get("deployments.apps", "default", "chat-engine").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert!(pod["nodeSelector"].is_null() && pod["containers"][0]["resources"]["limits"].is_null(), "{pod}");
    assert_eq!(names(&test_cluster.server, CLASSES), ["mine"]);
    assert!(test_cluster.server.get(CLASSES, "", "mine").unwrap()["status"].is_null());
}

// spec: ACC-28
// spec: ACC-29
// spec: ACC-30
#[tokio::test(start_paused = true)]
async fn counts_follow_nodes_and_pods() {
    let test_cluster = TestCluster::empty();
    let class = user_class("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X900"}));
    test_cluster.server.create(CLASSES, class).unwrap();
    test_cluster.start_operator(options_with_known_classes());
    let class_without_nodes =
        test_cluster.wait_for_class("mine", |class| class["status"]["conditions"].is_array()).await;
    let nodes_matched = cluster::find_condition(&class_without_nodes["status"]["conditions"], "NodesMatched").unwrap();
    assert_eq!((&nodes_matched["status"], &nodes_matched["reason"]), (&json!("False"), &json!("NoMatchingNodes")));
    assert_eq!(nodes_matched["observedGeneration"], class_without_nodes["metadata"]["generation"]);
    for name in ["b", "a"] {
        test_cluster.server.create("nodes", gpu_node(name, "NVIDIA-X900")).unwrap();
    }
    let class_with_two_nodes =
        test_cluster.wait_for_class("mine", |class| class["status"]["availableAccelerators"] == 16).await;
    assert_eq!(class_with_two_nodes["status"]["nodes"], json!(["a", "b"]));
    let pod = json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "a",
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 3}}}]}});
    test_cluster.server.create("pods", pod).unwrap();
    test_cluster.wait_for_class("mine", |class| class["status"]["availableAccelerators"] == 13).await;
    let mut cordoned = (*test_cluster.server.get("nodes", "", "b").unwrap()).clone();
    cordoned["spec"]["unschedulable"] = json!(true);
    test_cluster.server.update("nodes", cordoned).unwrap();
    let class = test_cluster.wait_for_class("mine", |class| class["status"]["availableNodes"] == 1).await;
    assert_eq!(
        (&class["status"]["availableAccelerators"], &class["status"]["totalAccelerators"]),
        (&json!(5), &json!(16))
    );
    let mut terminated_pod = (*test_cluster.server.get("pods", "default", "p").unwrap()).clone();
    terminated_pod["status"]["phase"] = json!("Succeeded");
    test_cluster.server.update_status("pods", terminated_pod).unwrap();
    test_cluster.wait_for_class("mine", |class| class["status"]["availableAccelerators"] == 8).await;
}

// spec: ACC-46
#[tokio::test(start_paused = true)]
async fn heartbeat_sends_no_request() {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create("nodes", gpu_node("a", "NVIDIA-X900")).unwrap();
    test_cluster.start_operator(options_with_known_classes());
    test_cluster.wait_for_class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 8).await;
    test_cluster.wait_until_idle().await;
    let requests_before = test_cluster.requests();
    let class_before = test_cluster.server.get(CLASSES, "", "nvidia-x900").unwrap();
    for second in 0..10 {
        let mut node = (*test_cluster.server.get("nodes", "", "a").unwrap()).clone();
        node["status"]["conditions"][0]["lastHeartbeatTime"] = json!(format!("2026-01-01T00:00:{second:02}Z"));
        test_cluster.server.update_status("nodes", node).unwrap();
    }
    test_cluster.wait_until_idle().await;
    assert_eq!(test_cluster.requests(), requests_before);
    assert_eq!(test_cluster.server.get(CLASSES, "", "nvidia-x900").unwrap(), class_before);
}

// spec: ACC-12
// spec: ACC-14
// spec: ACC-31
#[tokio::test(start_paused = true)]
async fn class_has_a_status_subresource() {
    let test_cluster = TestCluster::empty();
    let server = &test_cluster.server;
    let mut changes = server.subscribe();
    server.create(CLASSES, user_class("mine", json!({"a": "b"}))).unwrap();
    let mut updated_class = (*server.get(CLASSES, "", "mine").unwrap()).clone();
    updated_class["status"] = json!({"availableNodes": 7});
    updated_class["spec"]["vendor"] = json!("acme");
    let stored = server.update(CLASSES, updated_class.clone()).unwrap();
    assert_eq!((&stored["spec"]["vendor"], stored["status"].is_null()), (&json!("acme"), true));
    updated_class["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
    updated_class["spec"]["vendor"] = json!("other");
    let report = server.update_status(CLASSES, updated_class).unwrap();
    assert_eq!((&report["spec"]["vendor"], &report["status"]["availableNodes"]), (&json!("acme"), &json!(7)));
    for field in ["discovery", "capabilities"] {
        let mut incomplete_class = user_class("without", json!({"a": "b"}));
        incomplete_class["spec"].as_object_mut().unwrap().remove(field);
        let error = server.create(CLASSES, incomplete_class).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
    let minimal_class = json!({"metadata": {"name": "bare"}, "spec": {"discovery": {}, "capabilities": {}}});
    server.create(CLASSES, minimal_class).unwrap();
    assert_eq!(names(server, CLASSES), ["bare", "mine"]);
    server.delete(CLASSES, "", "mine", None).unwrap();
    assert_eq!(names(server, CLASSES), ["bare"], "no finalizer blocks the deletion");
    let mut changed_names = Vec::new();
    while let Ok(Ok(change)) = tokio::time::timeout(std::time::Duration::from_millis(100), changes.next()).await {
        changed_names.push(change.name);
    }
    assert_eq!(changed_names, ["mine", "mine", "mine", "bare", "mine"]);
}

// spec: ACC-126
#[tokio::test(start_paused = true)]
async fn metrics_contain_decisions_and_accelerators() {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create("nodes", gpu_node("a", "NVIDIA-X900")).unwrap();
    test_cluster.create_all(CATALOG[2].0, CATALOG[2].1);
    test_cluster.create_all("clusterservingruntimes.ome.io", UNIVERSAL_RUNTIME);
    let metrics = Arc::new(Metrics::default());
    test_cluster.start_operator(Options { metrics: Arc::clone(&metrics), ..options_with_known_classes() });
    test_cluster.wait_for_class("nvidia-x900", |class| class["status"]["totalAccelerators"] == 8).await;
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", MODEL)).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    let text = metrics.render();
    assert!(text.contains("ostler_accelerators{class=\"nvidia-x900\",state=\"total\"} 8"), "{text}");
    assert!(text.contains("ostler_accelerator_selection_total{outcome="), "{text}");
    assert!(text.contains("ostler_decision_duration_seconds_bucket{le="), "{text}");
}
