//! A request as scorers and policy read it.

use crate::request::estimate_tokens;

/// A request to schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchedulingRequest<'a> {
    /// Model name of the engines.
    pub(crate) model: &'a str,
    /// Size of the prompt in bytes, as encoded in JSON.
    pub(crate) prompt_bytes: usize,
    /// Block hashes of the prompt, one list per prefix index.
    pub(crate) prefix_hashes: &'a [Vec<u64>],
}

// === impl SchedulingRequest ===

impl SchedulingRequest<'_> {
    /// Returns the estimated number of tokens of the prompt.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        estimate_tokens(self.prompt_bytes) as u64
    }
}
