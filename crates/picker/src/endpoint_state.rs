//! State of an endpoint: its requests in flight, and what scraping the engine found.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use tokio::{sync::Notify, time::Instant};

use crate::{endpoint_health::EndpointHealth, engine_metrics::EngineMetrics};

/// State of one endpoint, which is retained when its Pod object changes.
#[derive(Debug, Default)]
pub struct EndpointState {
    requests: AtomicUsize,
    tokens: AtomicU64,
    /// Last scraped metrics and when they were scraped.
    last_metrics: Mutex<Option<(Arc<EngineMetrics>, Instant)>>,
    connection_refused: AtomicBool,
    /// Whether requests may be sent to the endpoint.
    pub(crate) health: EndpointHealth,
    /// Whether the endpoint is being scraped.
    is_scraped: AtomicBool,
    /// Notified to request a scrape before the next one is due.
    pub(crate) scrape_requested: Arc<Notify>,
}

/// Guard that counts a request as in flight until the guard is dropped.
#[derive(Debug)]
pub struct InFlight {
    state: Arc<EndpointState>,
    tokens: u64,
}

// === impl EndpointState ===

impl EndpointState {
    /// Returns the number of requests in flight.
    pub fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Returns the estimated total number of tokens of the requests in flight.
    pub fn tokens(&self) -> u64 {
        self.tokens.load(Relaxed)
    }

    /// Counts a request with an estimated number of `tokens` as in flight until the returned guard is dropped.
    pub fn begin(self: &Arc<Self>, tokens: u64) -> InFlight {
        self.requests.fetch_add(1, Relaxed);
        self.tokens.fetch_add(tokens, Relaxed);
        InFlight { state: Arc::clone(self), tokens }
    }

    /// Records that the endpoint is scraped from now on. Returns whether it was not before.
    pub(crate) fn begin_scraping(&self) -> bool {
        !self.is_scraped.swap(true, Relaxed)
    }

    /// Returns the last scraped metrics and when they were scraped.
    pub(crate) fn last_metrics(&self) -> Option<(Arc<EngineMetrics>, Instant)> {
        self.last_metrics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the metrics of a scrape.
    pub(crate) fn record_metrics(&self, metrics: EngineMetrics, now: Instant) {
        *self.last_metrics.lock().unwrap_or_else(PoisonError::into_inner) = Some((Arc::new(metrics), now));
    }

    /// Returns whether the last scrape failed with `ECONNREFUSED`, although the Pod is still reported as ready.
    pub(crate) fn connection_refused(&self) -> bool {
        self.connection_refused.load(Relaxed)
    }

    /// Records whether the endpoint refuses connections. Returns whether that changed.
    pub(crate) fn record_connection_refused(&self, is_refused: bool) -> bool {
        self.connection_refused.swap(is_refused, Relaxed) != is_refused
    }
}

// === impl InFlight ===

impl Drop for InFlight {
    fn drop(&mut self) {
        self.state.requests.fetch_sub(1, Relaxed);
        self.state.tokens.fetch_sub(self.tokens, Relaxed);
    }
}
