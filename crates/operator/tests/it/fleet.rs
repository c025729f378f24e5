//! Small objects to choose among: everything that a test does not state is equal.

use embedded::Server;
use serde_json::{Value, json};

pub(crate) const RUNTIMES: &str = "clusterservingruntimes.ome.io";
pub(crate) const NAMESPACED_RUNTIMES: &str = "servingruntimes.ome.io";
pub(crate) const CLASSES: &str = "acceleratorclasses.ome.io";

/// A node with eight accelerators whose product is `product`.
pub(crate) fn node(name: &str, product: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti"},
            "capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// A class of the nodes with the product of its name.
pub(crate) fn class(name: &str, memory: &str, dollars: &str) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": name},
        "spec": {"vendor": "nvidia", "discovery": {"nodeSelector": {"nvidia.com/gpu.product": name}},
            "capabilities": {"memoryGB": memory, "computeCapability": "9.0"},
            "resources": [{"name": "nvidia.com/gpu"}], "cost": {"perHour": dollars}}})
}

/// A runtime for any safetensors model, whose image is `example.com/NAME:1`.
pub(crate) fn runtime(name: &str) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterServingRuntime", "metadata": {"name": name},
        "spec": {"supportedModelFormats": [{"modelFormat": {"name": "safetensors"}, "autoSelect": true}],
            "acceleratorRequirements": {"requiredCapabilities": {"computeCapability": "8.0"}},
            "engineConfig": {"runner": {"name": "ome-container", "image": format!("example.com/{name}:1"),
                "args": ["--port=8080"]}}}})
}

/// The same in the namespace `namespace`.
pub(crate) fn namespaced(name: &str, namespace: &str) -> Value {
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

/// A service of the model that prefers what is cheap.
pub(crate) fn service(name: &str, model: &str) -> Value {
    let mut service = crate::cluster::five_lines(name, model);
    service["spec"]["acceleratorSelector"] = json!({"strategy": "cost"});
    service
}

/// One runtime `any`, one model `small` of 3B; classes come with their node.
pub(crate) fn furnish(server: &Server, classes: &[(&str, &str, &str)]) {
    server.create(RUNTIMES, runtime("any")).unwrap();
    server.create("clusterbasemodels.ome.io", model("small", "3B")).unwrap();
    for (name, memory, dollars) in classes {
        add_class(server, name, memory, dollars);
    }
}

pub(crate) fn add_class(server: &Server, name: &str, memory: &str, dollars: &str) {
    server.create("nodes", node(&format!("node-{name}"), name)).unwrap();
    server.create(CLASSES, class(name, memory, dollars)).unwrap();
}

/// The class of the engine by the decision on record.
pub(crate) fn class_of(service: &Value) -> &Value {
    &service["status"]["decision"]["components"]["engine"]["acceleratorClass"]
}
