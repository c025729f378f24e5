//! State of an endpoint of an InferencePool.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
};

use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use super::{
    discovery::DiscoveredEndpoint,
    scrape::{ScrapeState, Scraper},
};
use crate::{
    candidate::{Candidate, MetricsSample},
    endpoint::{Endpoint, EndpointLoad},
};

/// An endpoint with the state that is retained when its Pod object changes.
#[derive(Debug, Clone)]
pub(super) struct EndpointState {
    /// The endpoint.
    pub(super) endpoint: Endpoint,
    /// UID of the Pod: another Pod may reuse the address.
    pub(super) uid: String,
    labels: BTreeMap<String, String>,
    scrape: Arc<ScrapeState>,
    /// Stops scraping when the last clone is dropped.
    _scrape_guard: Arc<DropGuard>,
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
