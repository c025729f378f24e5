//! State of the scorers.

use std::net::SocketAddr;

use super::{no_hit_lru::ColdPlacement, prefix::PrefixIndex, recent_models::RecentModels};
use crate::{candidate::Candidate, scheduling_request::SchedulingRequest};

/// State of the scorers that depends on previous requests.
#[derive(Debug, Default)]
pub(crate) struct SchedulerState {
    /// Prefix indexes, in the order of the prefix configurations of the policy.
    pub(crate) prefix_indexes: Vec<PrefixIndex>,
    /// Placement of prompts that no endpoint cached.
    pub(crate) cold_placement: ColdPlacement,
    /// Models that each endpoint with LoRA adapters received last.
    pub(crate) recent_models: RecentModels,
}

impl SchedulerState {
    /// Removes endpoints for which `keep` is false. Another Pod may reuse the address of a removed endpoint.
    pub(crate) fn retain(&mut self, keep: impl Fn(SocketAddr) -> bool) {
        self.prefix_indexes.iter_mut().for_each(|index| index.retain(&keep));
        self.cold_placement.retain(&keep);
        self.recent_models.retain(keep);
    }

    /// Returns whether any of `candidates` caches a prefix of the prompt.
    pub(crate) fn has_prefix_hit(&self, request: &SchedulingRequest<'_>, candidates: &[&Candidate]) -> bool {
        let is_cached = |index: &PrefixIndex, hashes: &[u64]| {
            candidates.iter().any(|candidate| index.matched_blocks(hashes, candidate.endpoint.address) > 0)
        };
        self.prefix_indexes.iter().zip(request.prefix_hashes).any(|(index, hashes)| is_cached(index, hashes))
    }
}
