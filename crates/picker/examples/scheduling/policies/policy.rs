//! What the simulation needs of a policy.

use std::time::Duration;

use crate::{engine::Gauges, trace::Request};

/// Selects engines for the requests of one gateway.
pub(crate) trait Policy {
    /// Returns the pause between two scrapes of an engine; `None` if the policy reads no metrics.
    fn scrape_interval(&self) -> Option<Duration> {
        None
    }

    /// Returns the engine for a request. `index` identifies the request in other calls.
    fn select(&mut self, index: usize, request: &Request) -> usize;

    /// Records that the first token of a response passed the gateway.
    fn first_token(&mut self, _index: usize) {}

    /// Records that a response ended.
    fn finished(&mut self, _index: usize) {}

    /// Records the metrics of an engine.
    fn scraped(&mut self, _engine: usize, _gauges: &Gauges) {}

    /// Returns the state for other replicas if it is due.
    fn peer_message(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Records the state of another replica.
    fn record_peer_message(&mut self, _message: &[u8]) {}
}
