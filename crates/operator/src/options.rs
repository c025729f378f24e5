//! Options of the operator.

use std::sync::Arc;

use cluster::{Clock, Health, LeaderElection, SystemClock};
use serde_json::Value;

use crate::DEFAULT_NAMESPACE;
use crate::admission::WebhookOptions;
use crate::metrics::Metrics;

/// Options of the operator.
#[derive(Clone)]
pub struct Options {
    /// Feature gate `AcceleratorAwareScheduling`.
    pub accelerator_aware: bool,
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Leader election among several replicas; `None` if this is the only replica.
    pub leader_election: Option<LeaderElection>,
    /// Whether accelerator classes are created from node labels.
    pub discovery: bool,
    /// Namespaces whose objects are read and written; empty: all. With namespaces, no cluster-scoped object is written, so
    /// accelerator classes and ResourceFlavors are not maintained.
    pub namespaces: Vec<String>,
    /// Namespace of the operator, which contains the base set of accelerator classes.
    pub namespace: String,
    /// Shipped AcceleratorClasses that discovery reads facts from; they are not applied.
    pub known_classes: Vec<Value>,
    /// Image of the endpoint pickers of routers, which equals the image of the operator.
    pub picker_image: String,
    /// Metrics of the operator.
    pub metrics: Arc<Metrics>,
    /// Liveness and readiness of the operator.
    pub health: Arc<Health>,
    /// Options of the admission webhook; `None` if writes are validated by direct function call or not at all.
    pub webhook: Option<WebhookOptions>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            accelerator_aware: true,
            clock: Arc::new(SystemClock),
            leader_election: None,
            discovery: true,
            namespaces: Vec::new(),
            namespace: DEFAULT_NAMESPACE.to_owned(),
            known_classes: Vec::new(),
            picker_image: plan::DEFAULT_PICKER_IMAGE.to_owned(),
            metrics: Arc::default(),
            health: Arc::default(),
            webhook: None,
        }
    }
}

// === impl Options ===

impl Options {
    /// Returns whether the operator maintains accelerator classes: their statuses, those that it creates, and the
    /// ResourceFlavors linked to them.
    pub(crate) fn maintains_classes(&self) -> bool {
        self.accelerator_aware && self.namespaces.is_empty()
    }
}
