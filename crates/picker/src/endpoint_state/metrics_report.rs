//! What an engine reported at a scrape, and the requests of this process and its peers at that time.

use std::sync::Arc;

use tokio::time::Instant;

use crate::engine_metrics::EngineMetrics;

/// What an engine reported at a scrape.
#[derive(Debug, Clone)]
pub(crate) struct MetricsReport {
    /// Metrics of the engine.
    pub(crate) metrics: Arc<EngineMetrics>,
    /// Requests that this process had in flight when the engine counted its requests: the highest number since the report
    /// before the previous one, because engines count with a delay.
    pub(crate) own_requests: usize,
    /// Requests that peers had in flight, in the same way.
    pub(crate) peer_requests: usize,
    /// Peak of the requests in flight between the previous report and this one.
    pub(super) peak_requests: usize,
    /// Peak of the requests of peers in this time.
    pub(super) peak_peer_requests: usize,
    /// When the metrics were scraped.
    pub(crate) time: Instant,
}

// === impl MetricsReport ===

impl MetricsReport {
    /// Returns the number of requests of this process and its peers.
    pub(super) fn known_requests(&self) -> usize {
        self.own_requests.saturating_add(self.peer_requests)
    }

    /// Returns the number of requests of other clients when the engine reported.
    pub(super) fn others(&self) -> usize {
        self.other_requests(0) as usize
    }

    /// Returns the number of requests of other clients of the engine: its requests without those of this process and its peers,
    /// which have `peer_requests` in flight now. A request that the engine has not counted yet, or still counts, is not one of
    /// them. One of a peer is until the peer's next update, and never after it.
    pub(crate) fn other_requests(&self, peer_requests: usize) -> f64 {
        let reported = self.metrics.running.unwrap_or(0.0) + self.metrics.waiting.unwrap_or(0.0);
        (reported - self.own_requests as f64 - self.peer_requests.max(peer_requests) as f64).max(0.0)
    }
}
