//! The compared policies.

mod cost;
mod epp;
mod least_requests;
mod policy;
mod round_robin;
mod sglang;

pub(crate) use policy::Policy;

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

    /// Returns a policy for the gateway with this position among its replicas, to `engines` with `kv_blocks` each.
    pub(crate) fn policy(self, engines: usize, kv_blocks: usize, replica: usize, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::RoundRobin => Box::new(round_robin::RoundRobin::new(engines)),
            Self::LeastRequests => Box::new(least_requests::LeastRequests::new(engines)),
            Self::Epp => Box::new(epp::Epp::new(engines, kv_blocks, seed)),
            Self::Sglang => Box::new(sglang::CacheAware::new(engines)),
            Self::Cost => Box::new(cost::Cost::new(engines, replica, seed)),
        }
    }
}
