//! Kueue's definitions; its controllers are not started.

use anyhow::Result;
use serde_json::Value;

use crate::cluster::RealCluster;
use crate::objects::read;

// === impl RealCluster ===

impl RealCluster {
    /// The definition of ResourceFlavor as Kueue ships it; `None` where its source is not in Go's cache.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn flavor_definition(&self) -> Result<Option<Value>> {
        let Some(source) = self.binaries.newest("sigs.k8s.io/kueue") else { return Ok(None) };
        let read = read(&source.join("config/components/crd/bases/kueue.x-k8s.io_resourceflavors.yaml"))?;
        Ok(read.into_iter().next())
    }
}
