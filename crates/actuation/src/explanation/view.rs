//! The state of all nodes, from the objects of a cluster.

use std::sync::Arc;

use api::dual_pods::GPU_MAP;
use cluster::{Kind, NamespacedName, Stores};
use serde_json::Value;

use crate::coordinator::{CONFIG_MAP, Coordinator, NODE, POD, cache_policy};
use crate::facts::{Activity, Process, Verification};
use crate::gpu_map::GpuMap;
use crate::names::FIELD_MANAGER;
use crate::node::{Engine, NodeState};
use crate::settings::Settings;

/// The state of all nodes, from objects that were read once.
#[derive(Debug)]
pub struct ClusterView {
    coordinator: Coordinator,
    stores: Stores,
    pub(super) settings: Settings,
    /// Namespace of the controller.
    namespace: String,
}

// === impl ClusterView ===

impl ClusterView {
    /// Returns the state of the nodes in `objects`, which are of [`watched_kinds`](crate::watched_kinds). `namespace` is that of the
    /// controller, whose `gpu-map` applies to namespaces without one, and `settings` are its settings.
    #[must_use]
    pub fn new(
        objects: impl IntoIterator<Item = (Kind, Vec<Value>)>,
        namespace: &str,
        settings: Settings,
    ) -> ClusterView {
        let stores = Stores::with_cache_policy(FIELD_MANAGER, cache_policy);
        let mut coordinator = Coordinator::new(settings.clone(), stores.clone(), namespace.to_owned());
        let changes: Vec<_> =
            objects.into_iter().flat_map(|(kind, objects)| stores.replace_all(kind, objects)).collect();
        changes.iter().for_each(|change| coordinator.observe(change));
        ClusterView { coordinator, stores, settings, namespace: namespace.to_owned() }
    }

    /// Returns the state of a node with the recorded state of its engines; an empty state without requesters and providers.
    pub(super) fn node(&self, name: &str) -> NodeState {
        let mut node = self.coordinator.node(name).cloned().unwrap_or_default();
        node.engines.values_mut().for_each(recall);
        node
    }

    /// Returns the state of the node of a Pod that is a requester or a provider and assigned to a node.
    pub(super) fn node_of(&self, uid: &str) -> Option<NodeState> {
        let has_pod = |node: &&NodeState| node.servers.contains_key(uid) || node.engines.keys().any(|id| id.pod == uid);
        let node = self.coordinator.nodes().find(has_pod)?;
        Some(self.node(&node.name))
    }

    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.stores.get(POD, &NamespacedName::new(namespace, name))
    }

    pub(super) fn node_object(&self, name: &str) -> Option<Arc<Value>> {
        self.stores.get(NODE, &NamespacedName::new("", name))
    }

    /// Returns the namespace whose `gpu-map` applies to requesters of `namespace`.
    #[must_use]
    pub fn gpu_map_namespace(&self, namespace: &str) -> String {
        let exists = self.stores.get(CONFIG_MAP, &NamespacedName::new(namespace, GPU_MAP)).is_some();
        if exists { namespace.to_owned() } else { self.namespace.clone() }
    }

    /// Returns the `gpu-map` that applies to requesters of `namespace`.
    pub(super) fn gpu_map(&self, namespace: &str) -> GpuMap {
        let key = NamespacedName::new(&self.gpu_map_namespace(namespace), GPU_MAP);
        self.stores.get(CONFIG_MAP, &key).map(|map| GpuMap::from_config_map(&map)).unwrap_or_default()
    }
}

/// Sets what the controller observed of an engine when it last changed the label `sleeping`.
fn recall(engine: &mut Engine) {
    let provider = &engine.provider;
    engine.facts.activity = match (provider.last_awake, provider.is_labeled_sleeping) {
        (Some(_), Some(true)) => Some(Activity::Asleep),
        (Some(_), Some(false)) => Some(Activity::Awake),
        _ => None,
    };
    // Whether a launcher still has it is not recorded.
    engine.facts.instance.process = engine.provider.instance.as_ref().map(|_| Process::Running);
    engine.facts.instance.is_healthy = engine.provider.last_awake.is_some();
    engine.facts.verification = Some(Verification { completion: None });
}
