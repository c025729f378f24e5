//! The objects of a Pod's namespace that it refers to.

use std::sync::Arc;

use apimachinery::pod::{Amounts, amounts};
use serde_json::Value;

use super::environment::Sources;
use crate::Server;
use crate::object;
use crate::watch::Subscription;
use crate::workloads::volume_claim;

/// Reads the API server.
pub(super) struct InNamespace<'a> {
    pub(super) server: &'a Server,
    pub(super) namespace: &'a str,
    /// The Pod's node.
    pub(super) node: &'a str,
}

impl<'a> InNamespace<'a> {
    pub(super) fn of(server: &'a Server, pod: &'a Value) -> Self {
        Self { server, namespace: object::namespace(pod), node: object::text(pod, "/spec/nodeName") }
    }
}

impl Sources for InNamespace<'_> {
    fn config_map(&self, name: &str) -> Option<Arc<Value>> {
        self.server.get("configmaps", self.namespace, name)
    }

    fn secret(&self, name: &str) -> Option<Arc<Value>> {
        self.server.get("secrets", self.namespace, name)
    }

    fn pod(&self, name: &str) -> Option<Arc<Value>> {
        self.server.get("pods", self.namespace, name)
    }

    fn volume(&self, claim: &str) -> Option<Arc<Value>> {
        let claim = self.server.get(volume_claim::CLAIMS, self.namespace, claim)?;
        let bound = object::text(&claim, "/status/phase") == "Bound";
        let name = object::text(&claim, "/spec/volumeName");
        bound.then(|| self.server.get(volume_claim::VOLUMES, "", name)).flatten()
    }

    fn allocatable(&self) -> Amounts {
        let node = self.server.get("nodes", "", self.node);
        amounts(node.as_ref().and_then(|node| node.pointer("/status/allocatable")))
    }
}

/// Waits until something changed that the Pod could refer to. Cancel-safe.
pub(super) async fn changed(changes: &mut Subscription, pod: &Value) {
    loop {
        // Whoever missed changes looks again.
        let Ok(change) = changes.next().await else { return };
        let of_namespace = change.namespace == object::namespace(pod);
        let relevant = match change.resource.as_str() {
            "configmaps" | "secrets" | volume_claim::CLAIMS => true,
            "pods" => change.name != object::name(pod),
            _ => false,
        };
        if of_namespace && relevant {
            return;
        }
    }
}
