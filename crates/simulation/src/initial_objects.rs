//! The objects that exist when a run starts: definitions, and what services select from.

use std::sync::{Arc, LazyLock};

use apimachinery::Status;
use embedded::Server;
use embedded::ports::ServerPorts;
use serde_json::{Value, json};

use crate::clock::StoppedClock;
use crate::seed::{Seed, SeededRandom};

/// Resource of the definitions.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Resource of the models.
pub(crate) const MODELS: &str = "clusterbasemodels.ome.io";
/// Resource of the runtimes.
pub(crate) const RUNTIMES: &str = "clusterservingruntimes.ome.io";
/// Resource of the accelerator classes.
pub(crate) const CLASSES: &str = "acceleratorclasses.ome.io";
/// Resources of the services.
pub(crate) const SERVICES: [&str; 2] = ["inferenceservices.ome.io", "inferenceservices.fusioninfer.io"];

/// Resource that only Pods of gangs request, so that Deployments do not compete with them.
pub(crate) const GANG_RESOURCE: &str = "example.com/interconnect";

/// Image that people set in the workloads of the operator.
pub(crate) const EDITED_IMAGE: &str = "example.com/edited";

/// Returns the API server with the initial objects, of which each run has a fork: compiling the definitions takes longer
/// than a run.
///
/// # Errors
/// The API server rejected an initial object.
pub(crate) fn initial_server() -> Result<&'static Server, Status> {
    static SERVER: LazyLock<Result<Server, Status>> = LazyLock::new(|| {
        let (clock, random) = (Arc::new(StoppedClock), Arc::new(SeededRandom::new(Seed(0))));
        let server = Server::new(&ServerPorts { clock, random, ..ServerPorts::default() });
        create_initial_objects(&server)?;
        Ok(server)
    });
    SERVER.as_ref().map_err(Status::clone)
}

fn create_initial_objects(server: &Server) -> Result<(), Status> {
    for definition in definitions() {
        server.create(DEFINITIONS, definition.clone())?;
    }
    for (resource, object) in supply() {
        server.create(resource, object)?;
    }
    server.create("nodes", node("gpu-a")).map(drop)
}

/// Returns the definitions of ostler and of the integrations, which are generated once.
pub(crate) fn definitions() -> &'static [Value] {
    static DEFINITIONS: LazyLock<Vec<Value>> =
        LazyLock::new(|| api::crds().into_iter().chain(api::integrations::crds()).collect());
    &DEFINITIONS
}

/// Returns what services select from, with its resources.
pub(crate) fn supply() -> [(&'static str, Value); 3] {
    let model = json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel", "metadata": {"name": "small"},
        "spec": {"modelFormat": {"name": "safetensors"}, "modelParameterSize": "3B",
            "storage": {"storageUri": "hf://example/model", "path": "/mnt/models/m"}}});
    let class = json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": "big"},
        "spec": {"vendor": "nvidia", "discovery": {"nodeSelector": {"nvidia.com/gpu.product": "big"}},
            "capabilities": {"memoryGB": "80Gi", "computeCapability": "9.0"},
            "resources": [{"name": "nvidia.com/gpu"}], "cost": {"perHour": "5"}}});
    [(MODELS, model), (RUNTIMES, runtime(8080)), (CLASSES, class)]
}

/// Returns the runtime of all services.
pub(crate) fn runtime(port: u16) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterServingRuntime", "metadata": {"name": "any"},
        "spec": {"supportedModelFormats": [{"modelFormat": {"name": "safetensors"}, "autoSelect": true}],
            "engineConfig": {"runner": {"name": "ome-container", "image": "example.com/any:1",
                "args": [format!("--port={port}")]}}}})
}

/// Returns a node with accelerators: enough for all Deployments, and for two Pods of gangs.
pub(crate) fn node(name: &str) -> Value {
    let resources = json!({"nvidia.com/gpu": "64", GANG_RESOURCE: "2", "cpu": "960", "memory": "10Ti", "pods": "110"});
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "big"}},
        "status": {"allocatable": resources, "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True"}]}})
}
