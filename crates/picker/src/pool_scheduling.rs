//! Scheduling of one pool: its policy, and what earlier decisions left behind.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use fastrand::Rng;
use tokio::time::Instant;

use crate::{
    candidate::Candidate,
    endpoint::Endpoint,
    endpoint_facts::EndpointFacts,
    endpoint_state::{InFlight, RequestTokens},
    policy::{self, SchedulingPolicy, SchedulingResult},
    prefix_index::PrefixIndex,
    profile::Rating,
    request::estimate_tokens,
    scheduling_request::SchedulingRequest,
    score::state::SchedulerState,
    served_models::ServedModels,
};

/// How the endpoints of a pool are selected, and the state of its scorers.
#[derive(Debug)]
pub struct PoolScheduling {
    policy: SchedulingPolicy,
    /// Index of the process.
    prefix_index: Arc<PrefixIndex>,
    state: Mutex<SchedulerState>,
    /// Models that the engines listed before the workload was scaled to zero.
    last_listed_models: ServedModels,
}

/// Counts a request as in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct RequestInFlight {
    /// On the endpoint that serves the request.
    pub(crate) request: InFlight,
    /// On the endpoint that computes the prompt, if that is another one, until the response starts.
    pub(crate) prefill: Option<InFlight>,
}

/// How the endpoints of a pool are rated for a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SchedulingPreview {
    /// Ratings of the endpoints that may serve the request.
    pub(crate) ratings: BTreeMap<SocketAddr, Rating>,
    /// The endpoint that would be selected, if any.
    pub(crate) selected: Option<SocketAddr>,
    /// The endpoint that would compute the prompt first, if any.
    pub(crate) prefiller: Option<SocketAddr>,
}

// === impl PoolScheduling ===

impl PoolScheduling {
    /// Returns the scheduling of a pool that has received no request.
    pub(crate) fn new(policy: SchedulingPolicy, prefix_index: Arc<PrefixIndex>) -> Self {
        Self { policy, prefix_index, state: Mutex::default(), last_listed_models: ServedModels::default() }
    }

    /// Returns what the policy knows about an endpoint before any request.
    pub(crate) fn endpoint_facts(&self, endpoint: &Endpoint) -> EndpointFacts {
        self.policy.endpoint_facts(endpoint, &self.prefix_index)
    }

    /// Records the models that the engines list at `now`.
    pub(crate) fn record_listed_models(&self, models: BTreeSet<String>, now: Instant) {
        self.last_listed_models.record(Some(models).filter(|models| !models.is_empty()), now);
    }

    /// Returns the models that the engines listed when endpoints served requests last.
    pub(crate) fn last_listed_models(&self) -> &ServedModels {
        &self.last_listed_models
    }

    /// Returns the policy.
    pub(crate) fn policy(&self) -> &SchedulingPolicy {
        &self.policy
    }

    /// Selects endpoints for a request, which is in flight until the returned guard is dropped. Returns `None` if none is
    /// eligible.
    pub(crate) fn schedule<'a>(
        &self,
        request: &SchedulingRequest<'_>,
        endpoints: impl Iterator<Item = (&'a Arc<Endpoint>, &'a EndpointFacts)>,
        now: Instant,
        rng: &mut Rng,
    ) -> Option<(SchedulingResult, RequestInFlight)> {
        // Concurrent requests are counted one after the other: each sees those before it.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut candidates: Vec<Candidate> =
            endpoints.map(|(endpoint, facts)| Candidate::new(endpoint, facts, now)).collect();
        request.find_cached_blocks(&self.prefix_index, &mut candidates);
        let result = self.policy.schedule(request, &candidates, &self.prefix_index, &mut state, rng)?;
        let prefill = result.prefill_endpoint.as_ref().map(|endpoint| endpoint.state.begin(request.prompt_tokens()));
        let cached = estimate_tokens(result.cached_bytes) as u64;
        let uncached = if prefill.is_some() { 0 } else { request.prompt_tokens().saturating_sub(cached) };
        let tokens = RequestTokens { total: request.max_tokens, uncached, output: request.output_tokens };
        let request = result.endpoint.state.begin_request(tokens);
        Some((result, RequestInFlight { request, prefill }))
    }

    /// Returns how the endpoints are rated for a request and which ones [`Self::schedule`] would select, and changes nothing.
    pub(crate) fn preview<'a>(
        &self,
        request: &SchedulingRequest<'_>,
        endpoints: impl Iterator<Item = (&'a Arc<Endpoint>, &'a EndpointFacts)>,
        now: Instant,
        rng: &mut Rng,
    ) -> SchedulingPreview {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut candidates: Vec<Candidate> =
            endpoints.map(|(endpoint, facts)| Candidate::new(endpoint, facts, now)).collect();
        request.find_cached_blocks(&self.prefix_index, &mut candidates);
        let selected = self.policy.select(request, &candidates, &state, rng);
        let address = |candidate: &Candidate<'_>| candidate.endpoint.address;
        SchedulingPreview {
            ratings: self
                .policy
                .ratings(request, &candidates, &state)
                .into_iter()
                .map(|(candidate, rating)| (address(candidate), rating))
                .collect(),
            selected: selected.as_ref().and_then(|selected| selected.endpoints.first().copied().map(address)),
            prefiller: selected.and_then(|selected| selected.prefiller.map(address)),
        }
    }

    /// Records that an endpoint other than the selected one served a request and caches its prompt.
    pub(crate) fn record_served_endpoint(&self, prefix_hashes: &[Vec<u64>], facts: &EndpointFacts) {
        policy::record_prefix(prefix_hashes, facts, &self.prefix_index);
    }

    /// Forgets what is known about endpoints for which `keep` is false. Another Pod may reuse the address of a removed
    /// endpoint.
    pub(crate) fn retain(&self, keep: impl Fn(SocketAddr) -> bool) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).retain(keep);
    }
}
