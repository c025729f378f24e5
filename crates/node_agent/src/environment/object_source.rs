//! The objects that a Pod refers to.

use std::sync::Arc;

use apimachinery::ResourceList;
use serde_json::Value;

/// Looks up the objects that a Pod refers to.
pub(crate) trait ObjectSource {
    /// Returns a ConfigMap.
    fn config_map(&self, name: &str) -> Option<Arc<Value>>;
    /// Returns a Secret.
    fn secret(&self, name: &str) -> Option<Arc<Value>>;
    /// Returns a Pod.
    fn pod(&self, name: &str) -> Option<Arc<Value>>;
    /// Returns the PersistentVolume of a bound claim.
    fn volume(&self, claim: &str) -> Option<Arc<Value>>;
    /// Returns the allocatable resources of the node, which a container without limits may use.
    fn allocatable(&self) -> ResourceList;
}

/// A ConfigMap `settings`, a Secret `hf` and a Pod `l-0`.
#[cfg(test)]
pub(crate) struct FixedSource;

// === impl FixedSource ===

#[cfg(test)]
impl ObjectSource for FixedSource {
    fn config_map(&self, name: &str) -> Option<Arc<Value>> {
        let map = serde_json::json!({"data": {"level": "high", "port": "1"}, "binaryData": {"blob": "AAE="}});
        (name == "settings").then(|| Arc::new(map))
    }

    fn secret(&self, name: &str) -> Option<Arc<Value>> {
        (name == "hf").then(|| Arc::new(serde_json::json!({"data": {"token": "c2VjcmV0"}})))
    }

    fn pod(&self, name: &str) -> Option<Arc<Value>> {
        let pod = serde_json::json!({
            "metadata": {"namespace": "n"}, "spec": {"hostname": "l-0", "subdomain": "l"},
            "status": {"podIP": "127.16.0.9"},
        });
        (name == "l-0").then(|| Arc::new(pod))
    }

    fn volume(&self, _claim: &str) -> Option<Arc<Value>> {
        None
    }

    fn allocatable(&self) -> ResourceList {
        ResourceList::from([("ephemeral-storage".to_owned(), apimachinery::Quantity::from_units(9))])
    }
}
