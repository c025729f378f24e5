//! Scheduling policy of an endpoint picker: one profile, or a prefill and a decode profile.

use std::sync::Arc;

use fastrand::Rng;

use crate::{
    candidate::Candidate,
    endpoint::Endpoint,
    endpoint_facts::EndpointFacts,
    filter::{Filter, Role},
    prefix_index::{PrefixConfig, PrefixIndex},
    profile::{Picker, Profile, Rating},
    request::{RequestInfo, estimate_tokens},
    scheduling_request::SchedulingRequest,
    score::{cost, state::SchedulerState},
};

/// How an endpoint picker selects endpoints. [`crate::parse_config`] builds it from an EndpointPickerConfig.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulingPolicy {
    /// Which profiles run.
    pub(crate) profile_handler: ProfileHandler,
    /// Configurations of the prefix indexes. Scorers reference them by position.
    pub(crate) prefix_configs: Vec<PrefixConfig>,
    /// Which request bodies are accepted.
    pub(crate) parser: Parser,
    /// Port that forwards requests to the engines on the other ports of its Pod (data parallelism). A request header names
    /// the selected engine.
    pub(crate) primary_port: Option<u16>,
}

/// Handling of request bodies without a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parser {
    /// Reject them, as OpenAI-compatible engines do.
    RequireModel,
    /// Accept any body.
    Passthrough,
}

/// Determines which profiles run for a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ProfileHandler {
    /// The profile runs for every request.
    Single(Profile),
    /// The decode endpoint serves the request. If the decider requires it, the prefill endpoint computes the prompt first.
    PrefillDecode {
        /// Selects the endpoint that computes the prompt.
        prefill: Profile,
        /// Selects the endpoint that serves the request.
        decode: Profile,
        /// Whether the prompt is sent to a prefill endpoint.
        decider: Decider,
    },
}

/// Condition for sending a prompt to a prefill endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decider {
    /// Every prompt.
    Always,
    /// A prompt of which the decode endpoint caches too little.
    UncachedBytesAbove {
        /// Maximum number of uncached bytes that the decode endpoint computes itself.
        bytes: usize,
    },
    /// A long prompt of which the decode endpoint caches too little.
    MinTokens {
        /// Minimum number of uncached tokens.
        uncached: usize,
        /// Minimum number of tokens of the prompt.
        prompt: usize,
    },
}

/// Candidates that a request is sent to.
pub(crate) struct Selected<'a> {
    /// The selected candidate, then those that a proxy may try if it fails; at least one.
    pub(crate) endpoints: Vec<&'a Candidate<'a>>,
    /// Candidate that computes the prompt first, if any.
    pub(crate) prefiller: Option<&'a Candidate<'a>>,
}

/// Endpoints that a request is sent to.
#[derive(Debug, Clone)]
pub(crate) struct SchedulingResult {
    /// The selected endpoint.
    pub(crate) endpoint: Arc<Endpoint>,
    /// Endpoints that a proxy may try if the selected one fails.
    pub(crate) fallbacks: Vec<Arc<Endpoint>>,
    /// Endpoint that computes the prompt first, if any.
    pub(crate) prefill_endpoint: Option<Arc<Endpoint>>,
    /// Bytes of the prompt that the selected endpoint has presumably cached.
    pub(crate) cached_bytes: usize,
}

// === impl SchedulingPolicy ===

impl Default for SchedulingPolicy {
    /// Returns the policy of pools without an EndpointPickerConfig: the endpoint with the lowest cost in tokens.
    fn default() -> Self {
        let profile = Profile { filters: Vec::new(), scorers: Vec::new(), picker: Picker::LeastCost, max_endpoints: 1 };
        Self {
            profile_handler: ProfileHandler::by_role(profile),
            prefix_configs: vec![cost::PREFIX_CONFIG],
            parser: Parser::RequireModel,
            primary_port: None,
        }
    }
}

impl SchedulingPolicy {
    /// Returns whether scraped metrics influence the selection.
    pub(crate) fn reads_metrics(&self) -> bool {
        match &self.profile_handler {
            ProfileHandler::Single(profile) => profile.reads_metrics(),
            ProfileHandler::PrefillDecode { prefill, decode, .. } => prefill.reads_metrics() || decode.reads_metrics(),
        }
    }

    /// Returns what the policy knows about an endpoint before any request. `index` is the index of the process.
    pub(crate) fn endpoint_facts(&self, endpoint: &Endpoint, index: &PrefixIndex) -> EndpointFacts {
        let (serving, prefill) = match &self.profile_handler {
            ProfileHandler::Single(profile) => (profile, None),
            ProfileHandler::PrefillDecode { prefill, decode, .. } => (decode, Some(prefill)),
        };
        EndpointFacts {
            serves_requests: serving.matches_labels(&endpoint.labels),
            computes_prompts: prefill.is_some_and(|profile| profile.matches_labels(&endpoint.labels)),
            prefix_caches: self
                .prefix_configs
                .iter()
                .map(|config| endpoint.state.prefix_cache(config, index))
                .collect(),
        }
    }

    /// Returns the block hashes of a prompt for [`SchedulingRequest::prefix_hashes`].
    pub(crate) fn prefix_hashes(&self, model: &str, body: &[u8], info: &RequestInfo) -> Vec<Vec<u64>> {
        let chunks = || info.prompt_spans.iter().filter_map(|span| body.get(span.clone()));
        self.prefix_configs.iter().map(|config| config.block_hashes(model, chunks())).collect()
    }

    /// Selects endpoints among `candidates`, and records in `index` and `state` which endpoints cache the prompt. Returns `None`
    /// if no candidate is eligible.
    pub(crate) fn schedule(
        &self,
        request: &SchedulingRequest<'_>,
        candidates: &[Candidate<'_>],
        index: &PrefixIndex,
        state: &mut SchedulerState,
        rng: &mut Rng,
    ) -> Option<SchedulingResult> {
        let Selected { endpoints, prefiller } = self.select(request, candidates, state, rng)?;
        let candidate = *endpoints.first()?;
        let selected = candidate.endpoint.address;
        let adapter_slots = candidate.adapter_slots();
        if adapter_slots > 0 {
            state.recent_models.record(selected, request.model, adapter_slots);
        }
        let cached_bytes = self.cached_bytes(candidate);
        let is_cold = !candidates.iter().any(Candidate::has_prefix_hit);
        for candidate in [Some(candidate), prefiller].into_iter().flatten() {
            record_prefix(request.prefix_hashes, candidate.facts, index);
            if is_cold {
                state.cold_placement.record_placement(candidate.endpoint.address);
            }
        }
        let mut endpoints = endpoints.into_iter().map(|candidate| Arc::clone(candidate.endpoint));
        let prefill_endpoint = prefiller.map(|prefiller| Arc::clone(prefiller.endpoint));
        Some(SchedulingResult {
            endpoint: endpoints.next()?,
            fallbacks: endpoints.collect(),
            prefill_endpoint,
            cached_bytes,
        })
    }

    /// Selects endpoints among `candidates`. Returns `None` if no candidate is eligible.
    pub(crate) fn select<'a>(
        &self,
        request: &SchedulingRequest<'_>,
        candidates: &'a [Candidate<'a>],
        state: &SchedulerState,
        rng: &mut Rng,
    ) -> Option<Selected<'a>> {
        let serving = candidates.iter().filter(|candidate| candidate.facts.serves_requests).collect();
        let (endpoints, prefiller) = match &self.profile_handler {
            ProfileHandler::Single(profile) => (profile.pick(request, serving, state, rng), None),
            ProfileHandler::PrefillDecode { prefill, decode, decider } => {
                let endpoints = decode.pick(request, serving, state, rng);
                let decoder = *endpoints.first()?;
                let uncached_bytes = request.prompt_bytes.saturating_sub(self.cached_bytes(decoder));
                let prefillers = match decider.needs_prefill(request.prompt_bytes, uncached_bytes) {
                    true => {
                        let prefillers = candidates.iter().filter(|candidate| candidate.facts.computes_prompts);
                        prefill.pick(request, prefillers.collect(), state, rng)
                    }
                    false => Vec::new(),
                };
                // A decode endpoint can process a whole request, so a missing prefill endpoint is not an error.
                let is_usable = |prefiller: &&Candidate| {
                    !prefiller.is_unreachable && prefiller.endpoint.address != decoder.endpoint.address
                };
                (endpoints, prefillers.first().copied().filter(is_usable))
            }
        };
        endpoints.first()?;
        Some(Selected { endpoints, prefiller })
    }

    /// Returns how the endpoints that may serve `request` are rated, in no particular order.
    pub(crate) fn ratings<'a>(
        &self,
        request: &SchedulingRequest<'_>,
        candidates: &'a [Candidate<'a>],
        state: &SchedulerState,
    ) -> Vec<(&'a Candidate<'a>, Rating)> {
        let serving = candidates.iter().filter(|candidate| candidate.facts.serves_requests).collect();
        self.serving_profile().ratings(request, serving, state)
    }

    /// Returns the profile that selects the endpoint that serves a request.
    fn serving_profile(&self) -> &Profile {
        match &self.profile_handler {
            ProfileHandler::Single(profile) | ProfileHandler::PrefillDecode { decode: profile, .. } => profile,
        }
    }

    fn cached_bytes(&self, candidate: &Candidate<'_>) -> usize {
        let configs = self.prefix_configs.iter().enumerate();
        configs.map(|(position, config)| candidate.cached_blocks(position) * config.block_size).max().unwrap_or(0)
    }
}

/// Records that an endpoint caches a prompt, because it was selected or because the proxy reported that it served the request.
pub(crate) fn record_prefix(prefix_hashes: &[Vec<u64>], facts: &EndpointFacts, index: &PrefixIndex) {
    for (cache, hashes) in facts.prefix_caches.iter().zip(prefix_hashes) {
        index.insert(hashes, cache);
    }
}

// === impl ProfileHandler ===

impl ProfileHandler {
    /// Selects by `profile` an endpoint that serves the request, and for a prompt that it does not cache an endpoint that
    /// computes the prompt, if the pool has such endpoints. Endpoints without a role serve requests.
    pub(crate) fn by_role(profile: Profile) -> Self {
        let with_role = |role| {
            let filters = [vec![Filter::Role(role)], profile.filters.clone()].concat();
            Profile { filters, ..profile.clone() }
        };
        let decider = Decider::UncachedBytesAbove { bytes: 0 };
        Self::PrefillDecode { prefill: with_role(Role::Prefill), decode: with_role(Role::Decode), decider }
    }
}

// === impl Decider ===

impl Decider {
    fn needs_prefill(self, prompt_bytes: usize, uncached_bytes: usize) -> bool {
        match self {
            Decider::Always => true,
            Decider::UncachedBytesAbove { bytes } => uncached_bytes > bytes,
            Decider::MinTokens { uncached, prompt } => {
                estimate_tokens(uncached_bytes) >= uncached && estimate_tokens(prompt_bytes) >= prompt
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{endpoint::tests::endpoint, request, score::Scorer};
    use rstest::rstest;
    use tokio::time::Instant;

    /// Returns a policy that reads no metrics: the requests in flight decide.
    pub(crate) fn policy_without_metrics() -> SchedulingPolicy {
        let profile = Profile { filters: Vec::new(), scorers: Vec::new(), picker: Picker::MaxScore, max_endpoints: 1 };
        SchedulingPolicy { profile_handler: ProfileHandler::by_role(profile), ..SchedulingPolicy::default() }
    }

    const PREFIX: PrefixConfig = PrefixConfig { block_size: 4, max_blocks: 100, lru_capacity: 1_000 };

    fn profile(role: Option<&str>) -> Profile {
        let filter = role.map(|role| Filter::Label {
            label: "role".to_owned(),
            values: vec![role.to_owned()],
            allow_missing: false,
        });
        Profile {
            filters: filter.into_iter().collect(),
            scorers: vec![(Scorer::Prefix(0), 1.0)],
            picker: Picker::MaxScore,
            max_endpoints: 1,
        }
    }

    struct Fixture {
        policy: SchedulingPolicy,
        endpoints: Vec<Arc<Endpoint>>,
        facts: Vec<EndpointFacts>,
        index: PrefixIndex,
        state: SchedulerState,
        rng: Rng,
    }

    impl Fixture {
        fn new(handler: ProfileHandler, roles: &[&str]) -> Self {
            let policy = SchedulingPolicy {
                profile_handler: handler,
                prefix_configs: vec![PREFIX],
                parser: Parser::RequireModel,
                primary_port: None,
            };
            let with_role = |(number, role): (u8, &&str)| {
                Arc::new(Endpoint { labels: [("role".to_owned(), (*role).to_owned())].into(), ..endpoint(number) })
            };
            let index = PrefixIndex::default();
            let endpoints: Vec<Arc<Endpoint>> = (1..).zip(roles).map(with_role).collect();
            let facts = endpoints.iter().map(|endpoint| policy.endpoint_facts(endpoint, &index)).collect();
            Self { policy, endpoints, facts, index, state: SchedulerState::default(), rng: Rng::with_seed(2) }
        }

        fn schedule(&mut self, prompt: &str) -> Option<(String, Option<String>)> {
            let body = serde_json::json!({"model": "m", "prompt": prompt}).to_string();
            let info = request::parse_request(body.as_bytes()).unwrap();
            let prefix_hashes = self.policy.prefix_hashes("m", body.as_bytes(), &info);
            let request = SchedulingRequest {
                prompt_bytes: info.prompt_bytes(),
                prefix_hashes: &prefix_hashes,
                ..SchedulingRequest::new("m")
            };
            let endpoints = self.endpoints.iter().zip(&self.facts);
            let mut candidates: Vec<Candidate> =
                endpoints.map(|(endpoint, facts)| Candidate::new(endpoint, facts, Instant::now())).collect();
            request.find_cached_blocks(&self.index, &mut candidates);
            let (state, rng) = (&mut self.state, &mut self.rng);
            let result = self.policy.schedule(&request, &candidates, &self.index, state, rng)?;
            Some((result.endpoint.pod.clone(), result.prefill_endpoint.map(|endpoint| endpoint.pod.clone())))
        }
    }

    #[test]
    fn conversation_stays_on_its_endpoint() {
        let mut fixture = Fixture::new(ProfileHandler::Single(profile(None)), &["a", "b", "c"]);
        let first = fixture.schedule("Once upon a time there was").unwrap();
        for more in ["Once upon a time there was a horse", "Once upon a time there was a horse and an ostler"] {
            assert_eq!(fixture.schedule(more).unwrap(), first);
        }
        assert_eq!(Fixture::new(ProfileHandler::Single(profile(None)), &[]).schedule("x"), None);
    }

    #[test]
    fn cold_prompts_rotate_and_cached_prompts_stay() {
        let scorers = vec![(Scorer::Prefix(0), 3.0), (Scorer::NoHitLru, 2.0)];
        let mut fixture = Fixture::new(ProfileHandler::Single(Profile { scorers, ..profile(None) }), &["a", "b", "c"]);
        let mut selected: Vec<String> = Vec::new();
        for prompt in ["first story", "second story", "third story", "fourth story"] {
            selected.push(fixture.schedule(prompt).unwrap().0);
            assert_eq!(
                fixture.schedule(prompt).unwrap().0,
                *selected.last().unwrap(),
                "a cached prompt stays on its endpoint"
            );
        }
        let distinct: std::collections::BTreeSet<&String> = selected[..3].iter().collect();
        assert_eq!((distinct.len(), &selected[3]), (3, &selected[0]));
    }

    fn prefill_decode(decider: Decider) -> ProfileHandler {
        ProfileHandler::PrefillDecode { prefill: profile(Some("prefill")), decode: profile(Some("decode")), decider }
    }

    #[test]
    fn uncached_prompt_is_prefilled_remotely() {
        let mut fixture =
            Fixture::new(prefill_decode(Decider::UncachedBytesAbove { bytes: 8 }), &["prefill", "decode"]);
        let long = "a prompt of more than eight bytes";
        assert_eq!(fixture.schedule(long), Some(("pod-2".to_owned(), Some("pod-1".to_owned()))));
        assert_eq!(fixture.schedule(long), Some(("pod-2".to_owned(), None)), "the prompt is cached by the decoder");
        assert_eq!(fixture.schedule("short"), Some(("pod-2".to_owned(), None)), "below the threshold");
    }

    #[rstest]
    #[case::always(Decider::Always, 0, 0, true)]
    #[case::fully_cached(Decider::UncachedBytesAbove { bytes: 0 }, 400, 0, false)]
    #[case::at_threshold(Decider::UncachedBytesAbove { bytes: 100 }, 400, 100, false)]
    #[case::above_threshold(Decider::UncachedBytesAbove { bytes: 100 }, 400, 101, true)]
    #[case::enough_tokens(Decider::MinTokens { uncached: 16, prompt: 0 }, 400, 64, true)]
    #[case::fewer_tokens(Decider::MinTokens { uncached: 16, prompt: 0 }, 400, 63, false)]
    #[case::short_prompt(Decider::MinTokens { uncached: 16, prompt: 128 }, 400, 400, false)]
    fn deciders_compare_uncached_prompt(
        #[case] decider: Decider,
        #[case] prompt: usize,
        #[case] uncached: usize,
        #[case] expect: bool,
    ) {
        assert_eq!(decider.needs_prefill(prompt, uncached), expect);
    }

    #[test]
    fn missing_role_is_tolerated_only_for_prefill() {
        let handler = || prefill_decode(Decider::Always);
        assert_eq!(Fixture::new(handler(), &["decode"]).schedule("alone"), Some(("pod-1".to_owned(), None)));
        assert_eq!(Fixture::new(handler(), &["prefill"]).schedule("no decoder"), None);
        let mut fixture = Fixture::new(handler(), &["prefill", "decode"]);
        fixture.endpoints[0].state.record_unreachable(true);
        assert_eq!(fixture.schedule("unreachable prefiller"), Some(("pod-2".to_owned(), None)));
    }
}
