//! Scorers: one module per signal, all with scores from 0 to 1.

pub(crate) mod kv_cache;
pub(crate) mod least_loaded;
pub(crate) mod lora;
pub(crate) mod no_hit_lru;
pub(crate) mod prefix;
pub(crate) mod queue;
pub(crate) mod requests;

use std::net::SocketAddr;

use crate::{
    candidate::Candidate,
    policy::SchedulingRequest,
    score::{no_hit_lru::ColdPlacement, prefix::PrefixIndex},
};

/// A scorer. It returns a score from 0 (worst) to 1 (best) for each candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scorer {
    /// `queue-scorer`: few queued requests.
    Queue,
    /// `load-aware-scorer`: few queued requests, relative to a threshold instead of the other candidates.
    LoadAware { threshold: f64 },
    /// `running-requests-size-scorer`: few running requests.
    RunningRequests,
    /// `kv-cache-utilization-scorer`: high fraction of free KV cache.
    KvCache,
    /// `lora-affinity-scorer`: the adapter is loaded or can be loaded.
    Lora,
    /// `active-request-scorer`: few requests in flight. The score is 1 up to `idle_threshold` requests and at most
    /// `max_busy_score` above.
    ActiveRequests { idle_threshold: usize, max_busy_score: f64 },
    /// `token-load-scorer`: few tokens in flight, relative to a threshold.
    TokenLoad { threshold: f64 },
    /// `prefix-cache-scorer`: the endpoint caches a prefix of the prompt. Contains the position of the prefix index.
    Prefix(usize),
    /// `no-hit-lru-scorer`: a prompt that no endpoint caches goes to the endpoint that least recently received one.
    NoHitLru,
}

/// State of the scorers that depends on previous requests.
#[derive(Debug, Default)]
pub(crate) struct SchedulerState {
    /// Prefix indexes, in the order of the prefix configurations of the policy.
    pub(crate) prefix_indexes: Vec<PrefixIndex>,
    /// Placement of prompts that no endpoint cached.
    pub(crate) cold_placement: ColdPlacement,
}

impl Scorer {
    /// Returns the scores in the order of `candidates`.
    pub(crate) fn scores(
        self,
        request: &SchedulingRequest<'_>,
        candidates: &[&Candidate],
        state: &SchedulerState,
    ) -> Vec<f64> {
        let score_each =
            |score: &dyn Fn(&Candidate) -> f64| candidates.iter().map(|candidate| score(candidate)).collect();
        match self {
            Scorer::Queue => queue::scores(candidates),
            Scorer::LoadAware { threshold } => score_each(&|candidate| queue::load_aware_score(candidate, threshold)),
            Scorer::RunningRequests => requests::running_scores(candidates),
            Scorer::KvCache => score_each(&kv_cache::score),
            Scorer::Lora => score_each(&|candidate| lora::score(request.model, candidate)),
            Scorer::ActiveRequests { idle_threshold, max_busy_score } => {
                requests::active_request_scores(candidates, idle_threshold, max_busy_score)
            }
            Scorer::TokenLoad { threshold } => {
                score_each(&|candidate| requests::token_load_score(candidate, threshold))
            }
            Scorer::Prefix(position) => {
                let (hashes, index) = (request.prefix_hashes.get(position), state.prefix_indexes.get(position));
                let cached_fraction = |candidate: &Candidate| {
                    hashes.zip(index).map(|(hashes, index)| index.matched_fraction(hashes, candidate))
                };
                score_each(&|candidate| cached_fraction(candidate).unwrap_or(0.0))
            }
            Scorer::NoHitLru if state.has_prefix_hit(request, candidates) => {
                vec![no_hit_lru::NEUTRAL_SCORE; candidates.len()]
            }
            Scorer::NoHitLru => state.cold_placement.scores(candidates),
        }
    }
}

impl SchedulerState {
    /// Removes endpoints for which `keep` is false. Another Pod may reuse the address of a removed endpoint.
    pub(crate) fn retain(&mut self, keep: impl Fn(SocketAddr) -> bool) {
        self.prefix_indexes.iter_mut().for_each(|index| index.retain(&keep));
        self.cold_placement.retain(keep);
    }

    /// Returns whether any of `candidates` caches a prefix of the prompt.
    pub(crate) fn has_prefix_hit(&self, request: &SchedulingRequest<'_>, candidates: &[&Candidate]) -> bool {
        let is_cached = |index: &PrefixIndex, hashes: &[u64]| {
            candidates.iter().any(|candidate| index.matched_blocks(hashes, candidate.endpoint.address) > 0)
        };
        self.prefix_indexes.iter().zip(request.prefix_hashes).any(|(index, hashes)| is_cached(index, hashes))
    }
}

/// Returns linear scores: 1 for the lowest value, 0 for the highest; 1 for all values if they are equal.
fn lower_is_better(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)));
    let range = high - low;
    values.iter().map(|value| if range > 0.0 { (high - value) / range } else { 1.0 }).collect()
}
