//! What Pods hold of extended resources: by node, and by service.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::NodeInfo;
use super::node_info::{self, SERVICE_LABEL};

/// Units per extended resource.
type Units = BTreeMap<String, u32>;
/// Namespace and name.
type PodKey = (String, String);

/// The Pods that hold something, and their sums.
#[derive(Clone, Debug, Default)]
pub(super) struct Pods {
    pods: BTreeMap<PodKey, PodUsage>,
    /// Names of the Pods of each service, by namespace.
    services: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    /// What is held per node name, also of nodes that are not known (yet).
    loads: BTreeMap<String, BTreeMap<String, u64>>,
}

/// What one Pod holds.
#[derive(Clone, Debug, PartialEq)]
struct PodUsage {
    node: String,
    units: Units,
    labels: BTreeMap<String, String>,
}

/// What the Pods of one service hold, per node: it does not count against the service itself.
#[derive(Clone, Debug, Default)]
pub struct ServiceUsage(BTreeMap<String, Units>);

// === impl Pods ===

impl Pods {
    /// Takes a Pod in, or out with `None`, and names the nodes whose load has changed. One that has ended or has no node
    /// holds nothing.
    pub(super) fn set(&mut self, namespace: &str, name: &str, pod: Option<&Value>) -> BTreeSet<String> {
        let key = (namespace.to_owned(), name.to_owned());
        let held = pod.and_then(PodUsage::read);
        if self.pods.get(&key) == held.as_ref() {
            return BTreeSet::new();
        }
        let before = self.pods.remove(&key);
        let nodes = before.iter().chain(&held).map(|held| held.node.clone()).collect();
        if let Some(before) = before {
            self.load(&before, u64::saturating_sub);
            self.leave_service(&key, &before);
        }
        if let Some(held) = held {
            self.load(&held, u64::saturating_add);
            self.join_service(&key, &held);
            self.pods.insert(key, held);
        }
        nodes
    }

    /// What all Pods of a node hold.
    pub(super) fn requested(&self, node: &str) -> Units {
        let small = |units: &u64| u32::try_from(*units).unwrap_or(u32::MAX);
        self.loads.get(node).into_iter().flatten().map(|(name, units)| (name.clone(), small(units))).collect()
    }

    pub(super) fn service_usage(&self, namespace: &str, service: &str) -> ServiceUsage {
        let mut holdings = ServiceUsage::default();
        for held in self.of_service(namespace, service) {
            let units = holdings.0.entry(held.node.clone()).or_default();
            for (resource, count) in &held.units {
                let sum = units.entry(resource.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        holdings
    }

    /// Labels of the Pods of a service.
    pub(super) fn pod_labels<'a>(
        &'a self,
        namespace: &'a str,
        service: &'a str,
    ) -> impl Iterator<Item = &'a BTreeMap<String, String>> {
        self.of_service(namespace, service).map(|held| &held.labels)
    }

    fn of_service<'a>(&'a self, namespace: &'a str, service: &'a str) -> impl Iterator<Item = &'a PodUsage> {
        let names = self.services.get(namespace).and_then(|services| services.get(service));
        let key = move |name: &String| (namespace.to_owned(), name.clone());
        names.into_iter().flatten().filter_map(move |name| self.pods.get(&key(name)))
    }

    fn load(&mut self, held: &PodUsage, change: impl Fn(u64, u64) -> u64) {
        let load = self.loads.entry(held.node.clone()).or_default();
        for (resource, units) in &held.units {
            let sum = load.entry(resource.clone()).or_default();
            *sum = change(*sum, u64::from(*units));
        }
        load.retain(|_, units| *units > 0);
        if load.is_empty() {
            self.loads.remove(&held.node);
        }
    }

    fn join_service(&mut self, (namespace, name): &PodKey, held: &PodUsage) {
        let Some(service) = held.labels.get(SERVICE_LABEL) else { return };
        let services = self.services.entry(namespace.clone()).or_default();
        services.entry(service.clone()).or_default().insert(name.clone());
    }

    fn leave_service(&mut self, (namespace, name): &PodKey, held: &PodUsage) {
        let (Some(service), Some(services)) = (held.labels.get(SERVICE_LABEL), self.services.get_mut(namespace)) else {
            return;
        };
        let Some(pods) = services.get_mut(service) else { return };
        pods.remove(name);
        if pods.is_empty() {
            services.remove(service);
        }
        if services.is_empty() {
            self.services.remove(namespace);
        }
    }
}

// === impl Held ===

impl PodUsage {
    fn read(pod: &Value) -> Option<Self> {
        let node = pod.pointer("/spec/nodeName")?.as_str().filter(|_| !node_info::is_pod_terminal(pod))?;
        let units: Units = node_info::pod_requests(pod).into_iter().filter(|(_, units)| *units > 0).collect();
        (!units.is_empty()).then(|| Self { node: node.to_owned(), units, labels: node_info::labels_of(pod) })
    }
}

// === impl Holdings ===

impl ServiceUsage {
    pub(super) fn has_on(&self, node: &str) -> bool {
        self.0.contains_key(node)
    }

    /// The node without what is held on it.
    pub(super) fn given_back(&self, node: &NodeInfo) -> NodeInfo {
        let mut node = node.clone();
        for (resource, units) in self.0.get(&node.name).into_iter().flatten() {
            if let Some(requested) = node.requested.get_mut(resource) {
                *requested = requested.saturating_sub(*units);
            }
        }
        node
    }
}
