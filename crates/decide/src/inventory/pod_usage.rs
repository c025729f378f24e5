//! Resources that Pods use, by node and by service.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::NodeInfo;
use super::node_info::{self, SERVICE_LABEL};

/// Quantity by resource name; CPU in thousandths, memory in MiB.
type Units = BTreeMap<String, u32>;
/// Namespace and name.
type PodKey = (String, String);

/// Pods that use resources, with sums by node and by service.
#[derive(Clone, Debug, Default)]
pub(super) struct PodUsageIndex {
    pods: BTreeMap<PodKey, PodUsage>,
    /// Pod names by namespace and service.
    services: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    /// Used units by node and resource, including nodes that are not known yet.
    node_usage: BTreeMap<String, BTreeMap<String, u64>>,
}

/// Resources of one Pod.
#[derive(Clone, Debug, PartialEq)]
struct PodUsage {
    node: String,
    units: Units,
    labels: BTreeMap<String, String>,
}

/// Resources that the Pods of one service use, by node. They are available to a new decision for the same service.
#[derive(Clone, Debug, Default)]
pub struct ServiceUsage(BTreeMap<String, Units>);

// === impl PodUsageIndex ===

impl PodUsageIndex {
    /// Adds, updates or (with `None`) removes a Pod, and returns the nodes whose usage changed. Terminal and unbound Pods use
    /// nothing.
    pub(super) fn set(&mut self, namespace: &str, name: &str, pod: Option<&Value>) -> BTreeSet<String> {
        let key = (namespace.to_owned(), name.to_owned());
        let usage = pod.and_then(PodUsage::from_pod);
        if self.pods.get(&key) == usage.as_ref() {
            return BTreeSet::new();
        }
        let previous = self.pods.remove(&key);
        let nodes = previous.iter().chain(&usage).map(|usage| usage.node.clone()).collect();
        if let Some(previous) = previous {
            self.update_node_usage(&previous, u64::saturating_sub);
            self.remove_from_service(&key, &previous);
        }
        if let Some(usage) = usage {
            self.update_node_usage(&usage, u64::saturating_add);
            self.add_to_service(&key, &usage);
            self.pods.insert(key, usage);
        }
        nodes
    }

    /// Returns the resources that all Pods on a node use.
    pub(super) fn requested(&self, node: &str) -> Units {
        let to_u32 = |units: &u64| u32::try_from(*units).unwrap_or(u32::MAX);
        self.node_usage.get(node).into_iter().flatten().map(|(name, units)| (name.clone(), to_u32(units))).collect()
    }

    pub(super) fn service_usage(&self, namespace: &str, service: &str) -> ServiceUsage {
        let mut service_usage = ServiceUsage::default();
        for pod in self.pods_of_service(namespace, service) {
            let units = service_usage.0.entry(pod.node.clone()).or_default();
            for (resource, count) in &pod.units {
                let sum = units.entry(resource.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        service_usage
    }

    /// Returns the labels of the Pods of a service.
    pub(super) fn pod_labels<'a>(
        &'a self,
        namespace: &'a str,
        service: &'a str,
    ) -> impl Iterator<Item = &'a BTreeMap<String, String>> {
        self.pods_of_service(namespace, service).map(|pod| &pod.labels)
    }

    fn pods_of_service<'a>(&'a self, namespace: &'a str, service: &'a str) -> impl Iterator<Item = &'a PodUsage> {
        let names = self.services.get(namespace).and_then(|services| services.get(service));
        let key = move |name: &String| (namespace.to_owned(), name.clone());
        names.into_iter().flatten().filter_map(move |name| self.pods.get(&key(name)))
    }

    fn update_node_usage(&mut self, pod: &PodUsage, change: impl Fn(u64, u64) -> u64) {
        let usage = self.node_usage.entry(pod.node.clone()).or_default();
        for (resource, units) in &pod.units {
            let sum = usage.entry(resource.clone()).or_default();
            *sum = change(*sum, u64::from(*units));
        }
        usage.retain(|_, units| *units > 0);
        if usage.is_empty() {
            self.node_usage.remove(&pod.node);
        }
    }

    fn add_to_service(&mut self, (namespace, name): &PodKey, pod: &PodUsage) {
        let Some(service) = pod.labels.get(SERVICE_LABEL) else { return };
        let services = self.services.entry(namespace.clone()).or_default();
        services.entry(service.clone()).or_default().insert(name.clone());
    }

    fn remove_from_service(&mut self, (namespace, name): &PodKey, pod: &PodUsage) {
        let (Some(service), Some(services)) = (pod.labels.get(SERVICE_LABEL), self.services.get_mut(namespace)) else {
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

// === impl PodUsage ===

impl PodUsage {
    fn from_pod(pod: &Value) -> Option<Self> {
        let node = pod.pointer("/spec/nodeName")?.as_str().filter(|_| !node_info::is_pod_terminal(pod))?;
        let units: Units = node_info::pod_requests(pod).into_iter().filter(|(_, units)| *units > 0).collect();
        let uses_accelerators = units.keys().any(|name| name.contains('/'));
        // The labels of other Pods are not needed, and most Pods of a cluster use no accelerators.
        let labels = if uses_accelerators { node_info::labels_of(pod) } else { BTreeMap::new() };
        (!units.is_empty()).then(|| Self { node: node.to_owned(), units, labels })
    }
}

// === impl ServiceUsage ===

impl ServiceUsage {
    pub(super) fn uses_node(&self, node: &str) -> bool {
        self.0.contains_key(node)
    }

    /// Returns the node with the requests of the service apart from the others.
    pub(super) fn exclude_from(&self, node: &NodeInfo) -> NodeInfo {
        let mut node = node.clone();
        for (resource, units) in self.0.get(&node.name).into_iter().flatten() {
            if let Some(requested) = node.requested.get_mut(resource) {
                *requested = requested.saturating_sub(*units);
            }
            node.requested_by_service.insert(resource.clone(), *units);
        }
        node
    }
}
