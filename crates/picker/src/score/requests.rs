//! Few requests at work: as the engine says, or as we sent them.

use super::lower_is_better;
use crate::member::Member;

/// Requests the engine works on as far as the reading is believed, our own under way for the rest.
pub fn running(members: &[&Member]) -> Vec<f64> {
    lower_is_better(members.iter().map(|member| {
        let ours = member.endpoint.load.requests() as f64;
        member.believed(|gauges| gauges.running, ours)
    }))
}

/// Our own requests under way: 1 up to `idle`; above, the free share of the busiest endpoint's number, at most `busiest`.
pub fn in_flight(members: &[&Member], idle: usize, busiest: f64) -> Vec<f64> {
    let counts: Vec<usize> = members.iter().map(|member| member.endpoint.load.requests()).collect();
    let most = counts.iter().copied().max().unwrap_or(0).max(1) as f64;
    let score = |count: &usize| if *count <= idle { 1.0 } else { busiest * (most - *count as f64) / most };
    counts.iter().map(score).collect()
}

/// The share of `threshold` that our own tokens under way leave free.
pub fn tokens(member: &Member, threshold: f64) -> f64 {
    1.0 - (member.endpoint.load.tokens() as f64 / threshold).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{member::tests::member, reading::Gauges};

    #[test]
    fn what_the_engine_works_on() {
        let working =
            |number, running| member(number, Some((Gauges { running: Some(running), ..Gauges::default() }, 0)));
        let members = [working(1, 8.0), working(2, 0.0), working(3, 2.0)];
        assert_eq!(running(&members.iter().collect::<Vec<_>>()), [0.0, 1.0, 0.75]);
    }

    #[test]
    fn what_we_sent() {
        let members = [member(1, None), member(2, None), member(3, None)];
        let _one = members[1].endpoint.load.begin(10);
        let _four: Vec<_> = (0..4).map(|_| members[2].endpoint.load.begin(10)).collect();
        let members: Vec<&Member> = members.iter().collect();
        assert_eq!(in_flight(&members, 0, 1.0), [1.0, 0.75, 0.0]);
        assert_eq!(in_flight(&members, 1, 0.5), [1.0, 1.0, 0.0]);
        let free: Vec<f64> = members.iter().map(|member| tokens(member, 20.0)).collect();
        assert_eq!(free, [1.0, 0.5, 0.0]);
    }
}
