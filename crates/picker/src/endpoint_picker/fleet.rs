//! Which endpoints the pool has, and what is known of each.

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
    index::{lives, prompts, ready_address, text},
    member::{Member, Reading},
    pool::{Endpoint, Load, Prompts},
    reading::Gauges,
};

/// What scraping found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The last gauges and when they were read.
    pub last: Mutex<Option<(Gauges, Instant)>>,
    /// Nobody listens there.
    pub refuses: AtomicBool,
    /// Asks for a reading before the next is due.
    pub look: Notify,
}

/// A port of a ready Pod, as the cluster tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub address: SocketAddr,
    pub pod: String,
    pub prompts: Prompts,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
}

/// An endpoint with what outlives a change of its Pod's object.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub endpoint: Endpoint,
    pub uid: String,
    labels: BTreeMap<String, String>,
    seen: Arc<Seen>,
    /// Ends the scraping with the last that knows the endpoint.
    _scraping: Arc<DropGuard>,
}

/// The endpoints of an InferencePool, by address: every target port of every ready Pod that it selects.
pub(super) fn endpoints(pool: &Value, pods: &[Arc<Value>]) -> Vec<Found> {
    let selector = &pool["spec"]["selector"];
    // The version before had the labels themselves here.
    let selector = selector["matchLabels"].as_object().or(selector.as_object());
    let Some(selector) = selector.filter(|selector| !selector.is_empty()) else { return Vec::new() };
    let ports = ports(&pool["spec"]);
    let selected = |pod: &&Arc<Value>| {
        let labels = &pod["metadata"]["labels"];
        text(pod, "/metadata/namespace") == text(pool, "/metadata/namespace")
            && selector.iter().all(|(key, value)| labels[key] == *value)
    };
    let mut found = Vec::new();
    for pod in pods.iter().filter(selected).filter(|pod| lives(pod)) {
        let Some(ip) = ready_address(pod) else { continue };
        let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        let labels: BTreeMap<String, String> = labels.collect();
        found.extend(ports.iter().map(|port| Found {
            address: SocketAddr::new(ip, *port),
            pod: text(pod, "/metadata/name").to_owned(),
            prompts: prompts(pod),
            uid: text(pod, "/metadata/uid").to_owned(),
            labels: labels.clone(),
        }));
    }
    found.sort_by_key(|found| found.address);
    found
}

/// The target ports; the version before had one.
fn ports(spec: &Value) -> BTreeSet<u16> {
    let listed = spec["targetPorts"].as_array().into_iter().flatten().map(|port| &port["number"]);
    let numbers = listed.chain([&spec["targetPortNumber"]]);
    numbers.filter_map(|number| u16::try_from(number.as_u64()?).ok()).collect()
}

impl Known {
    /// What `before` knows of the same Pod's port is kept; another Pod at its address begins anew.
    pub(super) fn of(found: Found, before: &[Known], scraper: &Scraper) -> Self {
        let same = before.iter().find(|known| known.endpoint.address == found.address && known.uid == found.uid);
        if let Some(known) = same {
            return Self { labels: found.labels, ..known.clone() };
        }
        let (load, seen): (Arc<Load>, Arc<Seen>) = (Arc::default(), Arc::default());
        let scraping = Arc::new(scraper.follow(found.address, Arc::clone(&load), Arc::clone(&seen)));
        let endpoint = Endpoint { address: found.address, pod: found.pod, prompts: found.prompts, load };
        Self { endpoint, uid: found.uid, labels: found.labels, seen, _scraping: scraping }
    }

    /// Has it read soon.
    pub(super) fn look(&self) {
        self.seen.look.notify_one();
    }

    /// As the policy sees it at `now`.
    pub(super) fn member(&self, now: Instant) -> Member {
        let last = self.seen.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reading = last.map(|(gauges, read)| Reading { gauges, age: now.saturating_duration_since(read) });
        let refuses = self.seen.refuses.load(Relaxed);
        Member { endpoint: self.endpoint.clone(), labels: self.labels.clone(), reading, refuses }
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
    fn every_target_port_of_every_ready_pod() {
        let pool = json!({"metadata": {"namespace": "ns"}, "spec": {
            "selector": {"matchLabels": {"app": "llama", "role": "x"}}, "targetPorts": [{"number": 8001}, {"number": 8000}]}});
        let pods = [
            pod("b", "ns", "10.0.0.2", "True", "llama"),
            pod("a", "ns", "10.0.0.1", "True", "llama"),
            pod("unready", "ns", "10.0.0.3", "False", "llama"),
            pod("elsewhere", "other", "10.0.0.4", "True", "llama"),
            pod("another", "ns", "10.0.0.5", "True", "qwen"),
        ];
        let found: Vec<String> = endpoints(&pool, &pods).iter().map(|found| found.address.to_string()).collect();
        assert_eq!(found, ["10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "10.0.0.2:8001"]);
        let older =
            json!({"metadata": {"namespace": "ns"}, "spec": {"selector": {"app": "qwen"}, "targetPortNumber": 9000}});
        let found: Vec<String> = endpoints(&older, &pods).iter().map(|found| found.address.to_string()).collect();
        assert_eq!(found, ["10.0.0.5:9000"]);
        let nothing = json!({"metadata": {"namespace": "ns"}, "spec": {"targetPorts": [{"number": 8000}]}});
        assert!(endpoints(&nothing, &pods).is_empty());
    }
}
