//! KV cache scorer: prefers endpoints with more free KV cache, which can run another sequence without preemption.

use crate::candidate::Candidate;

/// Assumed usage without metrics.
const UNKNOWN_USAGE: f64 = 0.5;

/// Returns the free fraction of the KV cache.
pub(crate) fn score(candidate: &Candidate) -> f64 {
    1.0 - candidate.blend_with_default(|metrics| metrics.kv_cache_usage, UNKNOWN_USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{candidate::tests::candidate, engine_metrics::EngineMetrics};
    use rstest::rstest;

    #[rstest]
    #[case::empty(Some((0.0, 0)), 1.0)]
    #[case::full(Some((1.0, 0)), 0.0)]
    #[case::partly(Some((0.75, 3)), 0.25)]
    #[case::half_confidence(Some((1.0, 9)), 0.25)]
    #[case::no_confidence(Some((1.0, 99)), 0.5)]
    #[case::never_scraped(None, 0.5)]
    // spec: GW-27
    fn scores_free_cache(#[case] scraped: Option<(f64, u64)>, #[case] expect: f64) {
        let metrics = scraped
            .map(|(usage, age)| (EngineMetrics { kv_cache_usage: Some(usage), ..EngineMetrics::default() }, age));
        assert!((score(&candidate(1, metrics)) - expect).abs() < 1e-9);
    }
}
