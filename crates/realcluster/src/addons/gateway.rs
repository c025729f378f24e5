//! CustomResourceDefinitions of the Gateway API and its Inference Extension; no gateway is started.

use anyhow::Result;
use serde_json::Value;

use crate::cluster::RealCluster;
use crate::objects::read_manifests;

/// Go modules and the paths of their definitions.
const DEFINITIONS: [(&str, &str); 5] = [
    ("sigs.k8s.io/gateway-api-inference-extension", "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml"),
    ("sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_gatewayclasses.yaml"),
    ("sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_gateways.yaml"),
    ("sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_referencegrants.yaml"),
    ("sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"),
];

// === impl RealCluster ===

impl RealCluster {
    /// Returns the upstream definitions of InferencePool and the Gateway API. Omits definitions whose module is not in the
    /// module cache.
    ///
    /// # Errors
    /// A definition cannot be read.
    pub fn gateway_definitions(&self) -> Result<Vec<Value>> {
        let mut definitions = Vec::new();
        for (module, file) in DEFINITIONS {
            if let Some(source) = self.binaries.newest_module_source(module) {
                definitions.extend(read_manifests(&source.join(file))?);
            }
        }
        definitions.retain(|object| object["kind"] == "CustomResourceDefinition");
        Ok(definitions)
    }
}
