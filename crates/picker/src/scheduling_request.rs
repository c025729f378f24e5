//! A request as scorers and policy read it.

use crate::{candidate::Candidate, prefix_index::PrefixIndex, request::estimate_tokens};

/// A request to schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchedulingRequest<'a> {
    /// Model name of the engines.
    pub(crate) model: &'a str,
    /// Size of the prompt in bytes, as encoded in JSON.
    pub(crate) prompt_bytes: usize,
    /// Estimated number of tokens of the prompt and of the longest possible output.
    pub(crate) max_tokens: u64,
    /// Number of output tokens that count as work of the engine.
    pub(crate) output_tokens: u64,
    /// Block hashes of the prompt, one list per prefix configuration of the policy.
    pub(crate) prefix_hashes: &'a [Vec<u64>],
}

// === impl SchedulingRequest ===

impl<'a> SchedulingRequest<'a> {
    /// Returns a request without a prompt.
    #[cfg(test)]
    pub(crate) fn new(model: &'a str) -> Self {
        Self { model, prompt_bytes: 0, max_tokens: 0, output_tokens: 0, prefix_hashes: &[] }
    }

    /// Finds the blocks of the prompt that `candidates` have presumably cached.
    pub(crate) fn find_cached_blocks(&self, index: &PrefixIndex, candidates: &mut [Candidate<'_>]) {
        for (position, hashes) in self.prefix_hashes.iter().enumerate() {
            let caches =
                candidates.iter().map(|candidate| candidate.facts.prefix_caches.get(position).map(|cache| &**cache));
            let matched = index.matches(hashes, caches);
            candidates.iter_mut().zip(matched).for_each(|(candidate, blocks)| candidate.cached_blocks.push(blocks));
        }
    }

    /// Returns the estimated number of tokens of the prompt.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        estimate_tokens(self.prompt_bytes) as u64
    }
}
