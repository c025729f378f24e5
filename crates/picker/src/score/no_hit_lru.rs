//! No-hit LRU scorer: spreads prompts that no endpoint caches, so that all caches grow evenly.

use std::{collections::BTreeMap, net::SocketAddr};

use crate::candidate::Candidate;

/// Score of all candidates if an endpoint caches a prefix of the prompt: other scorers decide.
pub(crate) const NEUTRAL_SCORE: f64 = 0.5;

/// Logical time at which each endpoint last received a prompt that no endpoint cached.
#[derive(Debug, Default)]
pub(crate) struct ColdPlacement {
    last_placement: BTreeMap<SocketAddr, u64>,
    clock: u64,
}

impl ColdPlacement {
    /// Records that `endpoint` receives a prompt that no endpoint cached.
    pub(crate) fn record_placement(&mut self, endpoint: SocketAddr) {
        self.clock += 1;
        self.last_placement.insert(endpoint, self.clock);
    }

    /// Returns the time of the last placement on `endpoint`, 0 without one.
    pub(crate) fn last(&self, endpoint: SocketAddr) -> u64 {
        self.last_placement.get(&endpoint).copied().unwrap_or(0)
    }

    /// Removes endpoints for which `keep` is false.
    pub(crate) fn retain(&mut self, keep: impl Fn(SocketAddr) -> bool) {
        self.last_placement.retain(|address, _| keep(*address));
    }

    /// Returns 1 for the least recently selected endpoint, 0 for the most recent. Endpoints without a placement score
    /// equally.
    pub(crate) fn scores(&self, candidates: &[&Candidate]) -> Vec<f64> {
        let last_placement = |candidate: &&Candidate| self.last(candidate.endpoint.address);
        let count_placed_before =
            |time: u64| candidates.iter().filter(|other| last_placement(other) < time).count() as f64;
        let other_candidates = candidates.len().saturating_sub(1).max(1) as f64;
        candidates
            .iter()
            .map(|candidate| 1.0 - count_placed_before(last_placement(candidate)) / other_candidates)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::tests::candidate;

    #[test]
    fn least_recently_placed_endpoint_scores_best() {
        let candidates = [candidate(1, None), candidate(2, None), candidate(3, None)];
        let candidate_refs: Vec<&Candidate> = candidates.iter().collect();
        let mut placement = ColdPlacement::default();
        assert_eq!(placement.scores(&candidate_refs), [1.0, 1.0, 1.0]);
        placement.record_placement(candidates[1].endpoint.address);
        assert_eq!(placement.scores(&candidate_refs), [1.0, 0.0, 1.0]);
        placement.record_placement(candidates[0].endpoint.address);
        placement.record_placement(candidates[2].endpoint.address);
        assert_eq!(placement.scores(&candidate_refs), [0.5, 1.0, 0.0]);
        placement.retain(|address| address != candidates[2].endpoint.address);
        assert_eq!(placement.scores(&candidate_refs)[2], 1.0);
    }
}
