//! Cost of a request on an endpoint, in tokens: the tokens that are queued or running there, those of the prompt that are not cached
//! there, counted twice ([`UNCACHED_TOKEN_COST`]), and penalties. With one unit, scores of different kinds need no weights.

use fastrand::Rng;

use super::{lora::AdapterState, state::SchedulerState};
use crate::{
    candidate::Candidate, engine_metrics::EngineMetrics, prefix_index::PrefixConfig, request::estimate_tokens,
    scheduling_request::SchedulingRequest,
};

/// Prefix configuration of the cost. Blocks of 64 tokens are a few times those of engines, and keep the index small. 4,096 blocks
/// are prompts of 262,144 tokens; an engine with 80 GB caches about a million tokens.
pub(crate) const PREFIX_CONFIG: PrefixConfig =
    PrefixConfig { block_size: 256, max_blocks: 4_096, lru_capacity: 16_384 };

/// Estimated remaining tokens of a running request of another client: the engine may not have computed its prompt yet.
const OTHER_RUNNING_TOKENS: f64 = 256.0;

/// Estimated tokens of a queued request of another client: a prompt of medium size, and output.
const OTHER_WAITING_TOKENS: f64 = 768.0;

/// Fraction of the KV cache above which an engine soon preempts requests.
const KV_CACHE_LIMIT: f64 = 0.9;

/// Penalty for a full KV cache: a preempted request computes its prompt and output again.
const KV_CACHE_PENALTY: f64 = 4_096.0;

/// Penalty for an adapter that the engine has to load, which delays all its requests by as much as about a thousand tokens.
const ADAPTER_LOAD_PENALTY: f64 = 1_024.0;

/// Penalty for an adapter that has to wait until all requests of another adapter end.
const ADAPTER_WAIT_PENALTY: f64 = 4_096.0;

/// Cost of a token of the prompt that is not cached. The engine computes it, and in a full cache it replaces another one, which is
/// computed again when it is used next. Without this part, engines with a short queue would copy the prefixes of busy ones until
/// none of the caches holds its prefixes long enough.
const UNCACHED_TOKEN_COST: u64 = 2;

/// Costs that differ by less are equal: the prefix index is not more precise.
const TOLERANCE: f64 = 64.0;

/// The parts of the cost of a request on an endpoint, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Cost {
    /// Tokens that the engine has yet to compute for requests of this process.
    pub(crate) in_flight: u64,
    /// Twice the tokens of the prompt that the engine has not cached.
    pub(crate) uncached_prompt: u64,
    /// Estimated tokens of the requests of other clients that wait in the engine.
    pub(crate) other_waiting: f64,
    /// Estimated tokens of the requests of other clients that the engine runs.
    pub(crate) other_running: f64,
    /// Penalty for a KV cache that is nearly full.
    pub(crate) kv_cache_penalty: f64,
    /// Penalty for an adapter that is not loaded.
    pub(crate) adapter_penalty: f64,
}

/// Returns the candidate with the lowest cost, or `None` if there are none. Of those with nearly the lowest cost, two are drawn,
/// and the one with fewer requests in flight is returned. Several pickers with the same metrics therefore do not all select the
/// same endpoint.
pub(crate) fn least_cost<'a>(
    request: &SchedulingRequest<'_>,
    candidates: &[&'a Candidate<'a>],
    state: &SchedulerState,
    rng: &mut Rng,
) -> Option<&'a Candidate<'a>> {
    let mut costs: Vec<(f64, &Candidate)> =
        candidates.iter().map(|candidate| (Cost::new(request, candidate, state).total(), *candidate)).collect();
    let lowest = costs.iter().map(|(cost, _)| *cost).min_by(f64::total_cmp)?;
    costs.retain(|(cost, _)| *cost < lowest + TOLERANCE);
    costs.sort_by(|(left_cost, left), (right_cost, right)| {
        left_cost.total_cmp(right_cost).then(left.endpoint.address.cmp(&right.endpoint.address))
    });
    let mut draw = || rng.choice(&costs).map(|(_, candidate)| *candidate);
    let is_cold = !candidates.iter().any(|candidate| candidate.has_prefix_hit());
    // Prompts that no endpoint caches are spread evenly, so that all caches have the same share of them.
    let last_placement = |candidate: &Candidate| is_cold.then(|| state.cold_placement.last(candidate.endpoint.address));
    [draw(), draw()].into_iter().flatten().min_by_key(|candidate| (candidate.requests, last_placement(candidate)))
}

// === impl Cost ===

impl Cost {
    /// Returns the cost of `request` on `candidate`.
    pub(crate) fn new(request: &SchedulingRequest<'_>, candidate: &Candidate, state: &SchedulerState) -> Self {
        let uncached = request.prompt_tokens().saturating_sub(cached_tokens(candidate));
        Self {
            in_flight: candidate.remaining_tokens,
            uncached_prompt: UNCACHED_TOKEN_COST.saturating_mul(uncached),
            ..Self::reported(request, candidate, state)
        }
    }

    /// Returns the parts that follow from the metrics of the engine; they decrease with the age of the metrics.
    fn reported(request: &SchedulingRequest<'_>, candidate: &Candidate, state: &SchedulerState) -> Self {
        let Some(sample) = &candidate.metrics else { return Self::default() };
        let (metrics, confidence) = (&*sample.metrics, candidate.confidence());
        let waiting = sample.other_requests.min(metrics.waiting.unwrap_or(0.0));
        let running = sample.other_requests - waiting;
        let used = metrics.kv_cache_usage.unwrap_or(0.0);
        let kv_cache_excess = ((used - KV_CACHE_LIMIT) / (1.0 - KV_CACHE_LIMIT)).clamp(0.0, 1.0);
        Self {
            other_waiting: confidence * waiting * OTHER_WAITING_TOKENS,
            other_running: confidence * running * OTHER_RUNNING_TOKENS,
            kv_cache_penalty: confidence * KV_CACHE_PENALTY * kv_cache_excess,
            adapter_penalty: confidence * adapter_penalty(request.model, metrics, candidate, state),
            ..Self::default()
        }
    }

    /// Returns the estimated number of tokens that the engine computes before the response starts.
    pub(crate) fn total(self) -> f64 {
        let Self { in_flight, uncached_prompt, other_waiting, other_running, kv_cache_penalty, adapter_penalty } = self;
        let reported = other_waiting + other_running + kv_cache_penalty + adapter_penalty;
        in_flight as f64 + uncached_prompt as f64 + reported
    }
}

fn cached_tokens(candidate: &Candidate<'_>) -> u64 {
    estimate_tokens(candidate.cached_blocks(0) * PREFIX_CONFIG.block_size) as u64
}

fn adapter_penalty(model: &str, metrics: &EngineMetrics, candidate: &Candidate, state: &SchedulerState) -> f64 {
    let Some(adapters) = &metrics.lora_adapters else { return 0.0 };
    if adapters.slots == 0 || metrics.base_model.as_deref() == Some(model) {
        return 0.0;
    }
    match AdapterState::new(model, adapters) {
        AdapterState::Loaded => 0.0,
        AdapterState::FreeSlot if state.recent_models.contains(candidate.endpoint.address, model) => 0.0,
        AdapterState::FreeSlot | AdapterState::Queued => ADAPTER_LOAD_PENALTY,
        AdapterState::NoFreeSlot => ADAPTER_WAIT_PENALTY,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{
        candidate::tests::candidate,
        endpoint_state::{InFlight, RequestTokens},
        engine_metrics::LoraAdapters,
    };

    fn begin(candidate: &mut Candidate<'_>, uncached: u64, output: u64) -> InFlight {
        let in_flight = candidate.endpoint.state.begin_request(RequestTokens { total: 0, uncached, output });
        *candidate = Candidate::new(candidate.endpoint, candidate.facts, tokio::time::Instant::now());
        in_flight
    }

    /// Returns the cost of a prompt of 4,096 bytes: 1,024 tokens in 16 blocks.
    fn cost_of(candidate: &Candidate<'_>, cached_blocks: u32) -> f64 {
        let request = SchedulingRequest { prompt_bytes: 4_096, ..SchedulingRequest::new("m") };
        let candidate = Candidate { cached_blocks: [cached_blocks].into(), ..candidate.clone() };
        Cost::new(&request, &candidate, &SchedulerState::default()).total()
    }

    fn metrics(waiting: f64, running: f64, kv_cache_usage: f64) -> EngineMetrics {
        let (waiting, running) = (Some(waiting), Some(running));
        EngineMetrics { waiting, running, kv_cache_usage: Some(kv_cache_usage), ..EngineMetrics::default() }
    }

    #[rstest]
    #[case::nothing_cached(0, 2_048.0)]
    #[case::half(8, 1_024.0)]
    #[case::all(16, 0.0)]
    fn uncached_prompt_and_own_requests_are_summed(#[case] cached_blocks: u32, #[case] expect: f64) {
        let mut candidate = candidate(1, None);
        assert_eq!(cost_of(&candidate, cached_blocks), expect);
        let _in_flight = begin(&mut candidate, 100, 20);
        assert_eq!(cost_of(&candidate, cached_blocks), expect + 120.0);
    }

    #[rstest]
    #[case::idle(metrics(0.0, 0.0, 0.0), 0, 0.0)]
    #[case::running(metrics(0.0, 2.0, 0.9), 0, 512.0)]
    #[case::waiting(metrics(3.0, 2.0, 0.5), 0, 3.0 * 768.0 + 512.0)]
    #[case::half_confidence(metrics(3.0, 2.0, 0.5), 9, 0.5 * (3.0 * 768.0 + 512.0))]
    #[case::outdated(metrics(1e6, 1e6, 1.0), 15, 0.0)]
    #[case::cache_almost_full(metrics(0.0, 0.0, 0.95), 0, 2_048.0)]
    #[case::cache_full(metrics(0.0, 0.0, 1.0), 3, 4_096.0)]
    #[case::no_metrics(EngineMetrics::default(), 0, 0.0)]
    // spec: GW-27
    fn reports_count_less_with_age(#[case] metrics: EngineMetrics, #[case] age: u64, #[case] expect: f64) {
        assert!((cost_of(&candidate(1, Some((metrics, age))), 16) - expect).abs() < 1e-6);
    }

    #[rstest]
    #[case::loaded("a", &["a"], &[], 0.0)]
    #[case::loaded_for_finished_requests("m", &["a"], &[], 0.0)]
    #[case::must_be_loaded("b", &["a"], &[], 1_024.0)]
    #[case::next("b", &["a", "c"], &["b"], 1_024.0)]
    #[case::no_slot("b", &["a", "c"], &[], 4_096.0)]
    #[case::base_model("base", &["a", "c"], &[], 0.0)]
    // spec: GW-54
    fn adapters_that_are_not_loaded_cost_tokens(
        #[case] model: &str,
        #[case] running: &[&str],
        #[case] waiting: &[&str],
        #[case] expect: f64,
    ) {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let adapters = LoraAdapters { slots: 2, running: names(running), waiting: names(waiting) };
        let metrics = EngineMetrics {
            lora_adapters: Some(adapters),
            base_model: Some("base".to_owned()),
            ..EngineMetrics::default()
        };
        let candidate = candidate(1, Some((metrics, 0)));
        let mut state = SchedulerState::default();
        state.recent_models.record(candidate.endpoint.address, "m", 2);
        assert_eq!(Cost::new(&SchedulingRequest::new(model), &candidate, &state).adapter_penalty, expect);
    }

    #[test]
    fn equal_costs_are_decided_by_two_draws() {
        let mut candidates = [candidate(1, None), candidate(2, None), candidate(3, None)];
        let _in_flight = [begin(&mut candidates[0], 0, 10), begin(&mut candidates[2], 0, 200)];
        let mut rng = Rng::with_seed(1);
        let mut counts = [0; 3];
        for _ in 0..400 {
            let candidates: Vec<&Candidate> = candidates.iter().collect();
            let request = SchedulingRequest::new("m");
            let selected = least_cost(&request, &candidates, &SchedulerState::default(), &mut rng).unwrap();
            let number = selected.endpoint.pod.strip_prefix("pod-").unwrap().parse::<usize>().unwrap();
            counts[number - 1] += 1;
        }
        // The busier of two equal endpoints is selected if both draws select it.
        assert!((60..140).contains(&counts[0]) && counts[2] == 0, "{counts:?}");
    }
}
