//! Queue scorers: prefer endpoints with few queued requests.

use super::relative::lower_is_better;
use crate::candidate::Candidate;

/// Scores the queue lengths relative to each other. Without metrics, the requests in flight count as queued.
pub(crate) fn scores(candidates: &[&Candidate]) -> Vec<f64> {
    lower_is_better(candidates.iter().map(|candidate| {
        let in_flight = candidate.endpoint.state.requests() as f64;
        candidate.blend_with_default(|metrics| metrics.waiting, in_flight)
    }))
}

/// Scores the queue length relative to `threshold`. The score of an empty queue is 0.5, so that it does not outweigh a
/// cached prefix.
pub(crate) fn load_aware_score(candidate: &Candidate, threshold: f64) -> f64 {
    let in_flight = candidate.endpoint.state.requests() as f64;
    let waiting = candidate.blend_with_default(|metrics| metrics.waiting, in_flight);
    0.5 * (1.0 - (waiting / threshold).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{candidate::tests::candidate, engine_metrics::EngineMetrics};
    use rstest::rstest;

    fn metrics_with_queue_length(number: f64) -> EngineMetrics {
        EngineMetrics { waiting: Some(number), ..EngineMetrics::default() }
    }

    #[rstest]
    #[case::single_candidate(&[Some((7.0, 0))], &[1.0])]
    #[case::equal(&[Some((7.0, 0)), Some((7.0, 0))], &[1.0, 1.0])]
    #[case::linear(&[Some((0.0, 0)), Some((5.0, 0)), Some((20.0, 0))], &[1.0, 0.75, 0.0])]
    #[case::outdated_metrics_count_less(&[Some((10.0, 9)), Some((10.0, 0)), Some((0.0, 0))], &[0.5, 0.0, 1.0])]
    #[case::never_scraped(&[None, Some((4.0, 0))], &[1.0, 0.0])]
    // spec: GW-27
    fn shortest_queue_scores_best(#[case] scraped: &[Option<(f64, u64)>], #[case] expect: &[f64]) {
        let candidates: Vec<Candidate> = (1..)
            .zip(scraped)
            .map(|(number, scraped)| {
                candidate(number, scraped.map(|(queue, age)| (metrics_with_queue_length(queue), age)))
            })
            .collect();
        assert_eq!(scores(&candidates.iter().collect::<Vec<_>>()), expect);
    }

    #[rstest]
    #[case::none(0.0, 0.5)]
    #[case::some(32.0, 0.375)]
    #[case::many(500.0, 0.0)]
    fn scores_queue_relative_to_threshold(#[case] queue: f64, #[case] expect: f64) {
        assert!(
            (load_aware_score(&candidate(1, Some((metrics_with_queue_length(queue), 0))), 128.0) - expect).abs() < 1e-9
        );
    }

    #[test]
    fn without_metrics_requests_in_flight_count() {
        let candidates = [candidate(1, None), candidate(2, None)];
        let _busy = candidates[0].endpoint.state.begin(1);
        assert_eq!(scores(&candidates.iter().collect::<Vec<_>>()), [0.0, 1.0]);
    }
}
