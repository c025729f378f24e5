//! Endpoints of an InferencePool and their state.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use serde_json::Value;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::DropGuard;

use super::scrape::Scraper;
use crate::{
    candidate::{Candidate, MetricsSample},
    engine_metrics::EngineMetrics,
    index::{is_active, prompt_token_range, ready_address, string_at},
    pool::{Endpoint, EndpointLoad, PromptTokenRange},
};

/// Results of scraping an endpoint.
#[derive(Debug, Default)]
pub(super) struct ScrapeState {
    /// Last scraped metrics and when they were scraped.
    pub(super) last_metrics: Mutex<Option<(EngineMetrics, Instant)>>,
    /// Whether the last scrape failed with `ECONNREFUSED`.
    pub(super) connection_refused: AtomicBool,
    /// Notified to request a scrape before the next one is due.
    pub(super) scrape_requested: Notify,
}

/// A port of a ready Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiscoveredEndpoint {
    pub(super) address: SocketAddr,
    pub(super) pod: String,
    pub(super) prompt_tokens: PromptTokenRange,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
}

/// An endpoint with the state that is retained when its Pod object changes.
#[derive(Debug, Clone)]
pub(super) struct EndpointState {
    pub(super) endpoint: Endpoint,
    pub(super) uid: String,
    labels: BTreeMap<String, String>,
    scrape: Arc<ScrapeState>,
    /// Stops scraping when the last clone is dropped.
    _scrape_guard: Arc<DropGuard>,
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
        string_at(pod, "/metadata/namespace") == string_at(pool, "/metadata/namespace")
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
            pod: string_at(pod, "/metadata/name").to_owned(),
            prompt_tokens: prompt_token_range(pod),
            uid: string_at(pod, "/metadata/uid").to_owned(),
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

impl EndpointState {
    /// Returns the state in `old` if the endpoint belongs to the same Pod; otherwise starts scraping the endpoint.
    pub(super) fn new(discovered: DiscoveredEndpoint, old: &[EndpointState], scraper: &Scraper) -> Self {
        let DiscoveredEndpoint { address, pod, prompt_tokens, uid, labels } = discovered;
        if let Some(state) = old.iter().find(|state| state.endpoint.address == address && state.uid == uid) {
            return Self { labels, ..state.clone() };
        }
        let (load, scrape): (Arc<EndpointLoad>, Arc<ScrapeState>) = (Arc::default(), Arc::default());
        let scrape_guard = Arc::new(scraper.start(address, Arc::clone(&load), Arc::clone(&scrape)));
        let endpoint = Endpoint { address, pod, prompt_tokens, load };
        Self { endpoint, uid, labels, scrape, _scrape_guard: scrape_guard }
    }

    /// Requests a scrape before the next one is due.
    pub(super) fn scrape_now(&self) {
        self.scrape.scrape_requested.notify_one();
    }

    /// Returns the candidate for a scheduling decision at `now`.
    pub(super) fn candidate(&self, now: Instant) -> Candidate {
        let last = self.scrape.last_metrics.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let metrics =
            last.map(|(metrics, scraped)| MetricsSample { metrics, age: now.saturating_duration_since(scraped) });
        let connection_refused = self.scrape.connection_refused.load(Relaxed);
        Candidate { endpoint: self.endpoint.clone(), labels: self.labels.clone(), metrics, connection_refused }
    }
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
