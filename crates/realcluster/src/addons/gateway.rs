//! Definitions of the Gateway API and of its extension for inference; no gateway is started.

use anyhow::Result;
use serde_json::Value;

use crate::cluster::RealCluster;
use crate::objects::read;

/// Go modules and where each ships the definition.
const DEFINITIONS: [(&str, &str); 2] = [
    ("sigs.k8s.io/gateway-api-inference-extension", "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml"),
    ("sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"),
];

// === impl RealCluster ===

impl RealCluster {
    /// The definitions of InferencePool and HTTPRoute as upstream ships them; without those whose source is not in Go's
    /// cache.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn gateway_definitions(&self) -> Result<Vec<Value>> {
        let mut found = Vec::new();
        for (module, file) in DEFINITIONS {
            if let Some(source) = self.binaries.newest(module) {
                found.extend(read(&source.join(file))?);
            }
        }
        found.retain(|object| object["kind"] == "CustomResourceDefinition");
        Ok(found)
    }
}
