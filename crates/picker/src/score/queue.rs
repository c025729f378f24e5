//! Fewest waiting requests: the axiom is that none waits at an engine.

use super::lower_is_better;
use crate::member::Member;

/// Waiting requests as far as the reading is believed, our own requests under way for the rest.
pub fn scores(members: &[&Member]) -> Vec<f64> {
    lower_is_better(members.iter().map(|member| {
        let ours = member.endpoint.load.requests() as f64;
        member.believed(|gauges| gauges.waiting, ours)
    }))
}

/// Half of the share of `threshold` that is free; an endpoint where none waits has half too, and so never outweighs a
/// prompt that is known elsewhere.
pub fn below(member: &Member, threshold: f64) -> f64 {
    let ours = member.endpoint.load.requests() as f64;
    let waiting = member.believed(|gauges| gauges.waiting, ours);
    0.5 * (1.0 - (waiting / threshold).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{member::tests::member, reading::Gauges};
    use rstest::rstest;

    fn waiting(number: f64) -> Gauges {
        Gauges { waiting: Some(number), ..Gauges::default() }
    }

    #[rstest]
    #[case::alone(&[Some((7.0, 0))], &[1.0])]
    #[case::equal(&[Some((7.0, 0)), Some((7.0, 0))], &[1.0, 1.0])]
    #[case::in_proportion(&[Some((0.0, 0)), Some((5.0, 0)), Some((20.0, 0))], &[1.0, 0.75, 0.0])]
    #[case::old_news_count_less(&[Some((10.0, 9)), Some((10.0, 0)), Some((0.0, 0))], &[0.5, 0.0, 1.0])]
    #[case::never_read(&[None, Some((4.0, 0))], &[1.0, 0.0])]
    // spec: GW-27
    fn the_shortest_queue_wins(#[case] read: &[Option<(f64, u64)>], #[case] expect: &[f64]) {
        let members: Vec<Member> = (1..)
            .zip(read)
            .map(|(number, read)| member(number, read.map(|(queue, age)| (waiting(queue), age))))
            .collect();
        assert_eq!(scores(&members.iter().collect::<Vec<_>>()), expect);
    }

    #[rstest]
    #[case::none(0.0, 0.5)]
    #[case::some(32.0, 0.375)]
    #[case::many(500.0, 0.0)]
    fn against_a_number_that_is_many(#[case] queue: f64, #[case] expect: f64) {
        assert!((below(&member(1, Some((waiting(queue), 0))), 128.0) - expect).abs() < 1e-9);
    }

    #[test]
    fn an_engine_that_cannot_be_read_is_judged_by_what_we_sent() {
        let members = [member(1, None), member(2, None)];
        let _busy = members[0].endpoint.load.begin(1);
        assert_eq!(scores(&members.iter().collect::<Vec<_>>()), [0.0, 1.0]);
    }
}
