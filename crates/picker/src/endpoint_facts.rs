//! What a policy knows about an endpoint before any request.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::prefix_index::PrefixCache;

/// What the policy of a pool knows about an endpoint. It is computed when the pool is built, because comparing labels for each
/// request would take longer than the rest of a decision.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointFacts {
    /// Whether the policy sends requests to the endpoint.
    pub(crate) serves_requests: bool,
    /// Whether the policy sends prompts to the endpoint that another one continues.
    pub(crate) computes_prompts: bool,
    /// Prompts that the endpoint has presumably cached, by prefix configuration of the policy.
    pub(crate) prefix_caches: SmallVec<[Arc<PrefixCache>; 1]>,
}
