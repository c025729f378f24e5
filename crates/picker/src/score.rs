//! Scorers: one module per signal, all with scores from 0 to 1, except `cost`, which estimates a cost in tokens.
//! `recent_models` and `state` are the state of the scorers.

pub(crate) mod cost;
pub(crate) mod kv_cache;
pub(crate) mod least_loaded;
pub(crate) mod lora;
pub(crate) mod no_hit_lru;
pub(crate) mod queue;
mod recent_models;
mod relative;
pub(crate) mod requests;
pub(crate) mod state;

use crate::{candidate::Candidate, scheduling_request::SchedulingRequest};
use state::SchedulerState;

/// A scorer. It returns a score from 0 (worst) to 1 (best) for each candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scorer {
    /// `queue-scorer`: few queued requests.
    Queue,
    /// `load-aware-scorer`: few queued requests, relative to a threshold instead of the other candidates.
    LoadAware {
        /// Number of queued requests with the score 0.
        threshold: f64,
    },
    /// `running-requests-size-scorer`: few running requests.
    RunningRequests,
    /// `kv-cache-utilization-scorer`: high fraction of free KV cache.
    KvCache,
    /// `lora-affinity-scorer`: the adapter is loaded or can be loaded.
    Lora,
    /// `active-request-scorer`: few requests in flight. The score is 1 up to `idle_threshold` requests and at most
    /// `max_busy_score` above.
    ActiveRequests {
        /// Maximum number of requests of an idle endpoint.
        idle_threshold: usize,
        /// Maximum score of a busy endpoint.
        max_busy_score: f64,
    },
    /// `token-load-scorer`: few tokens in flight, relative to a threshold.
    TokenLoad {
        /// Number of tokens with the score 0.
        threshold: f64,
    },
    /// `prefix-cache-scorer`: the endpoint caches a prefix of the prompt. Contains the position of the prefix configuration.
    Prefix(usize),
    /// `no-hit-lru-scorer`: a prompt that no endpoint caches goes to the endpoint that least recently received one.
    NoHitLru,
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
                // A prompt shorter than a block has no hashes, and no cached blocks.
                let blocks = request.prefix_hashes.get(position).map_or(1, |hashes| hashes.len().max(1)) as f64;
                score_each(&|candidate| candidate.cached_blocks(position) as f64 / blocks)
            }
            Scorer::NoHitLru if candidates.iter().any(|candidate| candidate.has_prefix_hit()) => {
                vec![no_hit_lru::NEUTRAL_SCORE; candidates.len()]
            }
            Scorer::NoHitLru => state.cold_placement.scores(candidates),
        }
    }
}
