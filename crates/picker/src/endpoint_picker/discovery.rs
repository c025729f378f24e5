//! Finds the endpoints of an InferencePool.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use cluster::metadata_field;
use serde_json::Value;

use crate::{
    endpoint::PromptTokenRange,
    pod::{is_active, prompt_token_range, ready_address},
};

/// A port of a ready Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiscoveredEndpoint {
    /// IP address of the Pod and port.
    pub(super) address: SocketAddr,
    /// Name of the Pod.
    pub(super) pod: String,
    /// Prompt sizes that the Pod is intended for.
    pub(super) prompt_tokens: PromptTokenRange,
    /// UID of the Pod.
    pub(super) uid: String,
    /// Labels of the Pod.
    pub(super) labels: BTreeMap<String, String>,
}

/// Returns the endpoints of an InferencePool ordered by address: every target port of every selected, ready Pod.
pub(super) fn discover_endpoints(pool: &Value, pods: &[Arc<Value>]) -> Vec<DiscoveredEndpoint> {
    let selector = &pool["spec"]["selector"];
    // In v1alpha2 the selector is a map of labels.
    let selector = selector["matchLabels"].as_object().or(selector.as_object());
    let Some(selector) = selector.filter(|selector| !selector.is_empty()) else { return Vec::new() };
    let ports = target_ports(&pool["spec"]);
    let is_selected = |pod: &&Arc<Value>| {
        let labels = &pod["metadata"]["labels"];
        metadata_field(pod, "namespace") == metadata_field(pool, "namespace")
            && selector.iter().all(|(key, value)| labels[key] == *value)
    };
    let mut endpoints = Vec::new();
    for pod in pods.iter().filter(is_selected).filter(|pod| is_active(pod)) {
        let Some(ip) = ready_address(pod) else { continue };
        let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        let labels: BTreeMap<String, String> = labels.collect();
        endpoints.extend(ports.iter().map(|port| DiscoveredEndpoint {
            address: SocketAddr::new(ip, *port),
            pod: metadata_field(pod, "name").to_owned(),
            prompt_tokens: prompt_token_range(pod),
            uid: metadata_field(pod, "uid").to_owned(),
            labels: labels.clone(),
        }));
    }
    endpoints.sort_by_key(|endpoint| endpoint.address);
    endpoints
}

/// Returns the target ports of a pool. In v1alpha2 there is only `targetPortNumber`.
fn target_ports(spec: &Value) -> BTreeSet<u16> {
    let ports = spec["targetPorts"].as_array().into_iter().flatten().map(|port| &port["number"]);
    let numbers = ports.chain([&spec["targetPortNumber"]]);
    numbers.filter_map(|number| u16::try_from(number.as_u64()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, namespace: &str, ip: &str, ready: &str, app: &str) -> Arc<Value> {
        Arc::new(
            json!({"metadata": {"name": name, "namespace": namespace, "uid": name, "labels": {"app": app, "role": "x"}},
            "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": ready}]}}),
        )
    }

    #[test]
    fn discovers_target_ports_of_ready_pods() {
        let pool = json!({"metadata": {"namespace": "ns"}, "spec": {
            "selector": {"matchLabels": {"app": "llama", "role": "x"}}, "targetPorts": [{"number": 8001}, {"number": 8000}]}});
        let pods = [
            pod("b", "ns", "10.0.0.2", "True", "llama"),
            pod("a", "ns", "10.0.0.1", "True", "llama"),
            pod("unready", "ns", "10.0.0.3", "False", "llama"),
            pod("other-namespace", "other", "10.0.0.4", "True", "llama"),
            pod("other-app", "ns", "10.0.0.5", "True", "qwen"),
        ];
        let addresses: Vec<String> =
            discover_endpoints(&pool, &pods).iter().map(|endpoint| endpoint.address.to_string()).collect();
        assert_eq!(addresses, ["10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "10.0.0.2:8001"]);
        let alpha_pool =
            json!({"metadata": {"namespace": "ns"}, "spec": {"selector": {"app": "qwen"}, "targetPortNumber": 9000}});
        let addresses: Vec<String> =
            discover_endpoints(&alpha_pool, &pods).iter().map(|endpoint| endpoint.address.to_string()).collect();
        assert_eq!(addresses, ["10.0.0.5:9000"]);
        let without_selector = json!({"metadata": {"namespace": "ns"}, "spec": {"targetPorts": [{"number": 8000}]}});
        assert!(discover_endpoints(&without_selector, &pods).is_empty());
    }
}
