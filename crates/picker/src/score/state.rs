//! State of the scorers.

use std::net::SocketAddr;

use super::{no_hit_lru::ColdPlacement, recent_models::RecentModels};

/// State of the scorers that depends on previous requests.
#[derive(Debug, Default)]
pub(crate) struct SchedulerState {
    /// Placement of prompts that no endpoint cached.
    pub(crate) cold_placement: ColdPlacement,
    /// Models that each endpoint with LoRA adapters received last.
    pub(crate) recent_models: RecentModels,
}

impl SchedulerState {
    /// Removes endpoints for which `keep` is false. Another Pod may reuse the address of a removed endpoint.
    pub(crate) fn retain(&mut self, keep: impl Fn(SocketAddr) -> bool) {
        self.cold_placement.retain(&keep);
        self.recent_models.retain(keep);
    }
}
