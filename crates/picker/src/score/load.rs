//! Least in-flight tokens; among equals the better of two drawn at random, so that several pickers do not herd.

use fastrand::Rng;

use crate::pool::Endpoint;

/// The least loaded of `endpoints`, or `None` if there is none.
pub fn least<'a>(endpoints: &[&'a Endpoint], rng: &mut Rng) -> Option<&'a Endpoint> {
    let lowest = endpoints.iter().map(|endpoint| endpoint.load.tokens()).min()?;
    let equal: Vec<&Endpoint> = endpoints.iter().copied().filter(|endpoint| endpoint.load.tokens() <= lowest).collect();
    let mut draw = || rng.choice(equal.iter().copied());
    let (one, other) = (draw(), draw());
    let drawn = [one, other].into_iter().flatten().min_by_key(|endpoint| endpoint.load.requests());
    // Counters move while we look; any endpoint is better than none.
    drawn.or(endpoints.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Pools, Prompts};

    fn endpoints(pools: &Pools, number: u16) -> Vec<Endpoint> {
        let endpoint = |port| {
            let address = ([127, 0, 0, 1], port).into();
            Endpoint { address, pod: format!("pod-{port}"), prompts: Prompts::default(), load: pools.load(address) }
        };
        (1..=number).map(endpoint).collect()
    }

    #[test]
    fn the_least_tokens_win_over_the_fewest_requests() {
        let pools = Pools::new(0);
        let all = endpoints(&pools, 2);
        let _long = all[0].load.begin(1_000);
        let (_one, _two) = (all[1].load.begin(10), all[1].load.begin(10));
        let candidates: Vec<&Endpoint> = all.iter().collect();
        assert_eq!(least(&candidates, &mut pools.rng()).unwrap().pod, "pod-2");
    }

    #[test]
    fn equals_share_the_work() {
        let pools = Pools::new(3);
        let all = endpoints(&pools, 4);
        let candidates: Vec<&Endpoint> = all.iter().collect();
        for endpoint in &all {
            let drawn = (0..400).filter(|_| least(&candidates, &mut pools.rng()).unwrap().pod == endpoint.pod).count();
            assert!((60..140).contains(&drawn), "{} {drawn}", endpoint.pod);
        }
    }

    #[test]
    fn nothing_comes_from_nothing() {
        assert!(least(&[], &mut Rng::with_seed(0)).is_none());
    }
}
