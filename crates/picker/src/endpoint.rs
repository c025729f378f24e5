//! Endpoints, and the requests in flight on each of them.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// One port of a Pod.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// IP address and port.
    pub address: SocketAddr,
    /// Name of the Pod.
    pub pod: String,
    /// Prompt sizes that the Pod is intended for.
    pub prompt_tokens: PromptTokenRange,
    /// Load of the endpoint, shared by all pools that select the Pod.
    pub load: Arc<EndpointLoad>,
}

/// Range of prompt sizes in tokens; both bounds are inclusive and optional.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromptTokenRange {
    /// Lower bound.
    pub min: Option<u64>,
    /// Upper bound.
    pub max: Option<u64>,
}

/// Requests in flight on one endpoint.
#[derive(Debug, Default)]
pub struct EndpointLoad {
    requests: AtomicUsize,
    tokens: AtomicU64,
}

/// Guard that counts a request as in flight until the guard is dropped.
#[derive(Debug)]
pub struct InFlight {
    load: Arc<EndpointLoad>,
    tokens: u64,
}

// === impl PromptTokenRange ===

impl PromptTokenRange {
    /// Returns whether the range contains a prompt of `tokens`.
    pub fn contains(self, tokens: u64) -> bool {
        self.min.is_none_or(|min| min <= tokens) && self.max.is_none_or(|max| tokens <= max)
    }
}

// === impl EndpointLoad ===

impl EndpointLoad {
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
        InFlight { load: Arc::clone(self), tokens }
    }
}

// === impl InFlight ===

impl Drop for InFlight {
    fn drop(&mut self) {
        self.load.requests.fetch_sub(1, Relaxed);
        self.load.tokens.fetch_sub(self.tokens, Relaxed);
    }
}
