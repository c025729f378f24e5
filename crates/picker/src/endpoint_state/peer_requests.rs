//! Requests of the peers of this process on an endpoint.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::peers::{EndpointLoad, FairShare};

/// Requests that the peers of this process have in flight on an endpoint, as of their last updates.
#[derive(Debug, Default)]
pub(super) struct PeerRequests {
    requests: AtomicUsize,
    tokens: AtomicU64,
    remaining_tokens: AtomicU64,
    /// Highest number of requests since the last report.
    peak: AtomicUsize,
    /// [`FairShare`] of this process; the fraction as bits of a `f64`.
    fair_fraction: AtomicU64,
    is_contended: AtomicBool,
}

// === impl PeerRequests ===

impl PeerRequests {
    /// Records the requests in flight of all peers, and the share of this process.
    pub(super) fn record(&self, load: EndpointLoad, share: FairShare) {
        let Self { requests, tokens, remaining_tokens, peak, fair_fraction, is_contended } = self;
        requests.store(load.requests, Relaxed);
        tokens.store(load.tokens, Relaxed);
        remaining_tokens.store(load.remaining_tokens, Relaxed);
        peak.fetch_max(load.requests, Relaxed);
        fair_fraction.store(share.fraction.to_bits(), Relaxed);
        is_contended.store(share.is_contended, Relaxed);
    }

    /// Returns the requests in flight.
    pub(super) fn load(&self) -> EndpointLoad {
        EndpointLoad {
            requests: self.requests.load(Relaxed),
            tokens: self.tokens.load(Relaxed),
            remaining_tokens: self.remaining_tokens.load(Relaxed),
        }
    }

    /// Returns the share of this process.
    pub(super) fn fair_share(&self) -> FairShare {
        let fraction = f64::from_bits(self.fair_fraction.load(Relaxed));
        FairShare { fraction, is_contended: self.is_contended.load(Relaxed) }
    }

    /// Returns the highest number of requests since the last call.
    pub(super) fn take_peak(&self) -> usize {
        self.peak.swap(self.requests.load(Relaxed), Relaxed)
    }
}
