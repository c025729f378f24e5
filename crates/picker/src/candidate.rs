//! A candidate for scheduling: an endpoint with the signals that filters and scorers read.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::{endpoint::Endpoint, endpoint_facts::EndpointFacts, engine_metrics::EngineMetrics};

/// Metrics up to this age have full confidence.
const FULL_CONFIDENCE_AGE: Duration = Duration::from_secs(3);

/// Metrics of this age or older have no confidence.
const ZERO_CONFIDENCE_AGE: Duration = Duration::from_secs(15);

/// An endpoint at the time of a scheduling decision.
#[derive(Debug, Clone)]
pub(crate) struct Candidate<'a> {
    /// The endpoint.
    pub(crate) endpoint: &'a Arc<Endpoint>,
    /// What the policy of the pool knows about it.
    pub(crate) facts: &'a EndpointFacts,
    /// Number of leading blocks of the prompt that it has presumably cached, by prefix configuration of the policy.
    pub(crate) cached_blocks: SmallVec<[u32; 1]>,
    /// Number of requests in flight from this process and its peers.
    pub(crate) requests: usize,
    /// Estimated number of tokens that the engine has yet to compute for these requests.
    pub(crate) remaining_tokens: u64,
    /// Last scraped engine metrics, if any.
    pub(crate) metrics: Option<MetricsSample>,
    /// Whether the last scrape could not connect to the endpoint, although the Pod is still reported as ready.
    pub(crate) is_unreachable: bool,
}

/// Engine metrics and their age.
#[derive(Debug, Clone)]
pub(crate) struct MetricsSample {
    /// Metrics of the engine.
    pub(crate) metrics: Arc<EngineMetrics>,
    /// Number of requests of other clients of the engine, without peers.
    pub(crate) other_requests: f64,
    /// Time since the scrape.
    pub(crate) age: Duration,
}

// === impl Candidate ===

impl<'a> Candidate<'a> {
    /// Returns the candidate for a scheduling decision at `now`, without cached blocks.
    pub(crate) fn new(endpoint: &'a Arc<Endpoint>, facts: &'a EndpointFacts, now: Instant) -> Self {
        let state = &endpoint.state;
        let metrics = state.last_report().map(|report| MetricsSample {
            other_requests: report.other_requests(state.peer_requests()),
            age: now.saturating_duration_since(report.time),
            metrics: report.metrics,
        });
        Self {
            requests: state.requests(),
            remaining_tokens: state.remaining_tokens(),
            metrics,
            is_unreachable: state.is_unreachable(),
            cached_blocks: SmallVec::new(),
            endpoint,
            facts,
        }
    }

    /// Returns the number of leading blocks of the prompt that the endpoint has presumably cached.
    pub(crate) fn cached_blocks(&self, prefix_config: usize) -> usize {
        self.cached_blocks.get(prefix_config).map_or(0, |blocks| *blocks as usize)
    }

    /// Returns whether the endpoint has presumably cached a prefix of the prompt.
    pub(crate) fn has_prefix_hit(&self) -> bool {
        self.cached_blocks.iter().any(|blocks| *blocks > 0)
    }

    /// Returns the confidence in the metrics, 0 to 1. It decreases with age instead of dropping at a limit: engines that
    /// are too busy to be scraped must not make their whole pool unavailable.
    pub(crate) fn confidence(&self) -> f64 {
        let Some(sample) = &self.metrics else { return 0.0 };
        let excess_age = sample.age.saturating_sub(FULL_CONFIDENCE_AGE).as_secs_f64();
        (1.0 - excess_age / (ZERO_CONFIDENCE_AGE - FULL_CONFIDENCE_AGE).as_secs_f64()).max(0.0)
    }

    /// Returns the number of LoRA adapters that the engine can load, 0 if it reports none.
    pub(crate) fn adapter_slots(&self) -> usize {
        let adapters = self.metrics.as_ref().and_then(|sample| sample.metrics.lora_adapters.as_ref());
        adapters.map_or(0, |adapters| adapters.slots)
    }

    /// Returns the average of `value`, read from the metrics, and `default`, weighted by the confidence in the metrics.
    pub(crate) fn blend_with_default(&self, value: impl Fn(&EngineMetrics) -> Option<f64>, default: f64) -> f64 {
        let Some(value) = self.metrics.as_ref().and_then(|sample| value(&sample.metrics)) else { return default };
        let confidence = self.confidence();
        confidence * value + (1.0 - confidence) * default
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::endpoint::tests::endpoint;
    use rstest::rstest;

    /// Returns the candidate of an endpoint that lives as long as the test.
    pub(crate) fn candidate_of(endpoint: Endpoint) -> Candidate<'static> {
        let endpoint = Box::leak(Box::new(Arc::new(endpoint)));
        Candidate::new(endpoint, Box::leak(Box::default()), Instant::now())
    }

    /// Returns a candidate at `10.0.0.N:8000`; `scraped` contains its metrics and their age in seconds.
    pub(crate) fn candidate(number: u8, scraped: Option<(EngineMetrics, u64)>) -> Candidate<'static> {
        let candidate = candidate_of(endpoint(number));
        let Some((metrics, age)) = scraped else { return candidate };
        let now = Instant::now();
        candidate.endpoint.state.record_metrics(metrics, now);
        Candidate::new(candidate.endpoint, candidate.facts, now + Duration::from_secs(age))
    }

    #[rstest]
    #[case::never_scraped(None, 0.0)]
    #[case::just_scraped(Some(0), 1.0)]
    #[case::fresh(Some(3), 1.0)]
    #[case::half(Some(9), 0.5)]
    #[case::old(Some(15), 0.0)]
    #[case::very_old(Some(3_600), 0.0)]
    // spec: GW-27
    fn confidence_decreases_with_age(#[case] age: Option<u64>, #[case] expect: f64) {
        let candidate = candidate(1, age.map(|age| (EngineMetrics::default(), age)));
        assert!((candidate.confidence() - expect).abs() < 1e-9, "{}", candidate.confidence());
    }
}
