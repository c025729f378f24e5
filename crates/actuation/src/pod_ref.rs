//! Reference to one version of a Pod: the target of a write.

use apimachinery::object;
use serde_json::Value;

/// One version of a Pod. A write is rejected if the Pod was recreated or changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
    /// Finalizers, which a merge patch replaces as a whole.
    pub finalizers: Vec<String>,
}

// === impl PodRef ===

impl PodRef {
    /// Returns the reference to a Pod.
    #[must_use]
    pub fn new(pod: &Value) -> PodRef {
        PodRef {
            namespace: object::namespace(pod).to_owned(),
            name: object::name(pod).to_owned(),
            uid: object::uid(pod).to_owned(),
            resource_version: object::resource_version(pod).to_owned(),
            finalizers: object::finalizers(pod).into_iter().map(str::to_owned).collect(),
        }
    }

    /// Returns whether the Pod has a finalizer.
    #[must_use]
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|name| name == finalizer)
    }

    /// Returns the finalizers with `finalizer` added.
    pub(crate) fn with_finalizer(&self, finalizer: &str) -> Vec<String> {
        let mut finalizers = self.without_finalizer(finalizer);
        finalizers.push(finalizer.to_owned());
        finalizers
    }

    /// Returns the finalizers without `finalizer`.
    pub(crate) fn without_finalizer(&self, finalizer: &str) -> Vec<String> {
        self.finalizers.iter().filter(|name| *name != finalizer).cloned().collect()
    }
}
