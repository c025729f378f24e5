//! The compared policies.

mod cost;
mod epp;
mod least_requests;
mod round_robin;
mod sglang;

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
}

/// The policies by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyKind {
    RoundRobin,
    LeastRequests,
    /// Endpoint picker of gateway-api-inference-extension 1.5.0 with its default scorers and weights.
    Epp,
    /// Cache-aware policy of sglang's router with its default thresholds.
    Sglang,
    /// The default policy of this crate.
    Cost,
}

// === impl PolicyKind ===

impl PolicyKind {
    pub(crate) const ALL: [Self; 5] = [Self::RoundRobin, Self::LeastRequests, Self::Epp, Self::Sglang, Self::Cost];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round robin",
            Self::LeastRequests => "least requests",
            Self::Epp => "EPP",
            Self::Sglang => "sglang",
            Self::Cost => "ostler",
        }
    }

    /// Returns a policy for a gateway to `engines` with `kv_blocks` each.
    pub(crate) fn policy(self, engines: usize, kv_blocks: usize, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::RoundRobin => Box::new(round_robin::RoundRobin::new(engines)),
            Self::LeastRequests => Box::new(least_requests::LeastRequests::new(engines)),
            Self::Epp => Box::new(epp::Epp::new(engines, kv_blocks, seed)),
            Self::Sglang => Box::new(sglang::CacheAware::new(engines)),
            Self::Cost => Box::new(cost::Cost::new(engines, seed)),
        }
    }
}
