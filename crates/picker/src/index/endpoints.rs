//! Finds the endpoints of a pool.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use cluster::metadata_field;
use serde_json::Value;

use super::pool_states::PoolStates;
use crate::{
    endpoint::Endpoint,
    pod::{is_active, prompt_token_range, ready_address},
};

/// Labels that select Pods. As for a Service, an empty selector selects nothing.
type Selector = BTreeMap<String, String>;

/// Endpoints of a pool.
pub(super) struct Endpoints {
    /// Ready endpoints, sorted by address.
    pub(super) ready: Vec<Arc<Endpoint>>,
    /// Number of endpoints, ready or not.
    pub(super) count: usize,
}

/// Returns the endpoints of a pool: every port of every selected Pod in the namespace.
pub(super) fn find(
    pods: &[Arc<Value>],
    namespace: &str,
    selector: &Selector,
    ports: &BTreeSet<u16>,
    states: &impl PoolStates,
) -> Endpoints {
    let is_selected = |pod: &&Arc<Value>| {
        let labels = &pod["metadata"]["labels"];
        !selector.is_empty()
            && metadata_field(pod, "namespace") == namespace
            && selector.iter().all(|(key, value)| labels[key] == value.as_str())
    };
    let mut endpoints = Endpoints { ready: Vec::new(), count: 0 };
    for pod in pods.iter().filter(is_selected).filter(|pod| is_active(pod)) {
        endpoints.count = endpoints.count.saturating_add(ports.len());
        let Some(ip) = ready_address(pod) else { continue };
        let labels = labels(pod);
        endpoints.ready.extend(ports.iter().map(|port| {
            let (address, uid) = (SocketAddr::new(ip, *port), metadata_field(pod, "uid"));
            Arc::new(Endpoint {
                address,
                pod: metadata_field(pod, "name").to_owned(),
                uid: uid.to_owned(),
                labels: labels.clone(),
                prompt_tokens: prompt_token_range(pod),
                state: states.endpoint(address, uid),
            })
        }));
    }
    endpoints.ready.sort_by_key(|endpoint| endpoint.address);
    endpoints
}

fn labels(pod: &Value) -> BTreeMap<String, String> {
    let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Returns the selector of an InferencePool. In v1alpha2, it is a map of labels. A selector with a value that is not a
/// string selects nothing.
pub(super) fn inference_pool_selector(spec: &Value) -> Selector {
    let selector = &spec["selector"];
    let labels = selector["matchLabels"].as_object().or(selector.as_object()).into_iter().flatten();
    let labels: Option<Selector> = labels.map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    labels.unwrap_or_default()
}

/// Returns the target ports of an InferencePool. In v1alpha2, there is only `targetPortNumber`.
pub(super) fn inference_pool_ports(spec: &Value) -> BTreeSet<u16> {
    let ports = spec["targetPorts"].as_array().into_iter().flatten().map(|port| &port["number"]);
    let numbers = ports.chain([&spec["targetPortNumber"]]);
    numbers.filter_map(|number| u16::try_from(number.as_u64()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::index::pool_states::tests::NewStates;

    fn pod(name: &str, namespace: &str, ip: &str, ready: &str, app: &str) -> Arc<Value> {
        Arc::new(
            json!({"metadata": {"name": name, "namespace": namespace, "uid": name, "labels": {"app": app, "role": "x"}},
            "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": ready}]}}),
        )
    }

    #[test]
    fn finds_target_ports_of_ready_pods() {
        let pods = [
            pod("b", "ns", "10.0.0.2", "True", "llama"),
            pod("a", "ns", "10.0.0.1", "True", "llama"),
            pod("unready", "ns", "10.0.0.3", "False", "llama"),
            pod("other-namespace", "other", "10.0.0.4", "True", "llama"),
            pod("other-app", "ns", "10.0.0.5", "True", "qwen"),
        ];
        let addresses = |spec: &Value| -> Vec<String> {
            let (selector, ports) = (inference_pool_selector(spec), inference_pool_ports(spec));
            let endpoints = find(&pods, "ns", &selector, &ports, &NewStates);
            endpoints.ready.iter().map(|endpoint| endpoint.address.to_string()).collect()
        };
        let spec = json!({"selector": {"matchLabels": {"app": "llama", "role": "x"}}, "targetPorts": [{"number": 8001}, {"number": 8000}]});
        assert_eq!(addresses(&spec), ["10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "10.0.0.2:8001"]);
        let alpha_spec = json!({"selector": {"app": "qwen"}, "targetPortNumber": 9000});
        assert_eq!(addresses(&alpha_spec), ["10.0.0.5:9000"]);
        let without_selector = json!({"targetPorts": [{"number": 8000}]});
        assert!(addresses(&without_selector).is_empty());
    }
}
