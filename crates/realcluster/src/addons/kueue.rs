//! CustomResourceDefinitions of Kueue; its controllers are not started.

use anyhow::Result;
use serde_json::Value;

use crate::cluster::RealCluster;
use crate::objects::read_manifests;

// === impl RealCluster ===

impl RealCluster {
    /// Returns Kueue's definition of ResourceFlavor, or `None` if its module is not in the module cache.
    ///
    /// # Errors
    /// The definition cannot be read.
    pub fn resource_flavor_definition(&self) -> Result<Option<Value>> {
        let Some(source) = self.binaries.newest_module_source("sigs.k8s.io/kueue") else { return Ok(None) };
        let definitions =
            read_manifests(&source.join("config/components/crd/bases/kueue.x-k8s.io_resourceflavors.yaml"))?;
        Ok(definitions.into_iter().next())
    }
}
