//! Looks up the objects that a Pod refers to in the API server.

use std::sync::Arc;

use apimachinery::{ResourceList, object, parse_resource_list, persistent_volume};
use apiserver::{Server, Subscription};
use serde_json::Value;

use crate::environment::ObjectSource;

/// Reads the objects of one namespace from the API server.
pub(crate) struct NamespaceSources<'a> {
    pub(crate) server: &'a Server,
    pub(crate) namespace: &'a str,
    /// The node of the Pod.
    pub(crate) node: &'a str,
}

impl<'a> NamespaceSources<'a> {
    pub(crate) fn new(server: &'a Server, pod: &'a Value) -> Self {
        Self { server, namespace: object::namespace(pod), node: object::text(pod, "/spec/nodeName") }
    }
}

impl ObjectSource for NamespaceSources<'_> {
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
        let claim = self.server.get(persistent_volume::CLAIMS, self.namespace, claim)?;
        let is_bound = object::text(&claim, "/status/phase") == "Bound";
        let name = object::text(&claim, "/spec/volumeName");
        is_bound.then(|| self.server.get(persistent_volume::VOLUMES, "", name)).flatten()
    }

    fn allocatable(&self) -> ResourceList {
        let node = self.server.get("nodes", "", self.node);
        parse_resource_list(node.as_ref().and_then(|node| node.pointer("/status/allocatable")))
    }
}

/// Waits for a change of an object that the Pod may refer to. Cancel-safe.
pub(crate) async fn wait_for_change(changes: &mut Subscription, pod: &Value) {
    loop {
        // An error means that changes were missed; the caller then checks all objects again.
        let Ok(change) = changes.next().await else { return };
        let is_in_namespace = change.namespace == object::namespace(pod);
        let is_relevant = match change.resource.as_str() {
            "configmaps" | "secrets" | persistent_volume::CLAIMS => true,
            "pods" => change.name != object::name(pod),
            _ => false,
        };
        if is_in_namespace && is_relevant {
            return;
        }
    }
}
