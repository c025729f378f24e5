//! Minimal nodes, classes, runtimes and models, which are identical except for the values that a test sets.

use embedded::Server;
use serde_json::{Value, json};

pub(crate) const RUNTIMES: &str = "clusterservingruntimes.ome.io";
pub(crate) const NAMESPACED_RUNTIMES: &str = "servingruntimes.ome.io";
pub(crate) const CLASSES: &str = "acceleratorclasses.ome.io";

/// Returns a node with eight accelerators of `product`.
pub(crate) fn node(name: &str, product: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti"},
            "capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// Returns a class for the nodes whose product equals its name.
pub(crate) fn class(name: &str, memory: &str, price_per_hour: &str) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": name},
        "spec": {"vendor": "nvidia", "discovery": {"nodeSelector": {"nvidia.com/gpu.product": name}},
            "capabilities": {"memoryGB": memory, "computeCapability": "9.0"},
            "resources": [{"name": "nvidia.com/gpu"}], "cost": {"perHour": price_per_hour}}})
}

/// Returns a runtime for all safetensors models with image `example.com/NAME:1`.
pub(crate) fn runtime(name: &str) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterServingRuntime", "metadata": {"name": name},
        "spec": {"supportedModelFormats": [{"modelFormat": {"name": "safetensors"}, "autoSelect": true}],
            "acceleratorRequirements": {"requiredCapabilities": {"computeCapability": "8.0"}},
            "engineConfig": {"runner": {"name": "ome-container", "image": format!("example.com/{name}:1"),
                "args": ["--port=8080"]}}}})
}

/// Returns the same runtime as a ServingRuntime in `namespace`.
pub(crate) fn namespaced_runtime(name: &str, namespace: &str) -> Value {
    let mut runtime = runtime(name);
    runtime["kind"] = json!("ServingRuntime");
    runtime["metadata"]["namespace"] = json!(namespace);
    runtime
}

pub(crate) fn model(name: &str, size: &str) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel", "metadata": {"name": name},
        "spec": {"modelFormat": {"name": "safetensors"}, "modelParameterSize": size,
            "storage": {"storageUri": "hf://example/model", "path": "/mnt/models/m"}}})
}

/// Returns a service of the model that prefers low cost.
pub(crate) fn service(name: &str, model: &str) -> Value {
    let mut service = crate::test_cluster::minimal_service(name, model);
    service["spec"]["acceleratorSelector"] = json!({"strategy": "cost"});
    service
}

/// Creates one runtime `any`, one model `small` of 3B, and classes with one node each.
pub(crate) fn create_supply(server: &Server, classes: &[(&str, &str, &str)]) {
    server.create(RUNTIMES, runtime("any")).unwrap();
    server.create("clusterbasemodels.ome.io", model("small", "3B")).unwrap();
    for (name, memory, price_per_hour) in classes {
        add_class_with_node(server, name, memory, price_per_hour);
    }
}

pub(crate) fn add_class_with_node(server: &Server, name: &str, memory: &str, price_per_hour: &str) {
    server.create("nodes", node(&format!("node-{name}"), name)).unwrap();
    server.create(CLASSES, class(name, memory, price_per_hour)).unwrap();
}

/// Returns the class that is selected for the engine.
pub(crate) fn selected_class(service: &Value) -> &Value {
    &service["status"]["components"]["engine"]["selectedAccelerator"]["acceleratorClass"]
}
