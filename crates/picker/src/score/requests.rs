//! Request scorers: prefer endpoints with few running requests, or with few requests or tokens in flight.

use super::relative::lower_is_better;
use crate::candidate::Candidate;

/// Scores the running requests relative to each other. Without metrics, the requests in flight count as running.
pub(crate) fn running_scores(candidates: &[&Candidate]) -> Vec<f64> {
    lower_is_better(candidates.iter().map(|candidate| {
        let in_flight = candidate.endpoint.state.requests() as f64;
        candidate.blend_with_default(|metrics| metrics.running, in_flight)
    }))
}

/// Scores the requests in flight: 1 up to `idle_threshold`; above it, at most `max_busy_score`, decreasing to 0 for the
/// busiest endpoint.
pub(crate) fn active_request_scores(candidates: &[&Candidate], idle_threshold: usize, max_busy_score: f64) -> Vec<f64> {
    let counts: Vec<usize> = candidates.iter().map(|candidate| candidate.endpoint.state.requests()).collect();
    let highest = counts.iter().copied().max().unwrap_or(0).max(1) as f64;
    let score = |count: &usize| {
        if *count <= idle_threshold { 1.0 } else { max_busy_score * (highest - *count as f64) / highest }
    };
    counts.iter().map(score).collect()
}

/// Returns the fraction of `threshold` that the tokens in flight do not use.
pub(crate) fn token_load_score(candidate: &Candidate, threshold: f64) -> f64 {
    1.0 - (candidate.endpoint.state.tokens() as f64 / threshold).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{candidate::tests::candidate, engine_metrics::EngineMetrics};

    #[test]
    fn scores_running_requests() {
        let candidate_with_running = |number, running| {
            candidate(number, Some((EngineMetrics { running: Some(running), ..EngineMetrics::default() }, 0)))
        };
        let candidates =
            [candidate_with_running(1, 8.0), candidate_with_running(2, 0.0), candidate_with_running(3, 2.0)];
        assert_eq!(running_scores(&candidates.iter().collect::<Vec<_>>()), [0.0, 1.0, 0.75]);
    }

    #[test]
    fn scores_requests_and_tokens_in_flight() {
        let candidates = [candidate(1, None), candidate(2, None), candidate(3, None)];
        let _short_load = candidates[1].endpoint.state.begin(10);
        let _long_load: Vec<_> = (0..4).map(|_| candidates[2].endpoint.state.begin(10)).collect();
        let candidates: Vec<&Candidate> = candidates.iter().collect();
        assert_eq!(active_request_scores(&candidates, 0, 1.0), [1.0, 0.75, 0.0]);
        assert_eq!(active_request_scores(&candidates, 1, 0.5), [1.0, 1.0, 0.0]);
        let token_scores: Vec<f64> = candidates.iter().map(|candidate| token_load_score(candidate, 20.0)).collect();
        assert_eq!(token_scores, [1.0, 0.5, 0.0]);
    }
}
