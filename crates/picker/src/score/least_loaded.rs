//! Least loaded endpoint by tokens in flight. Among equally loaded endpoints, the one with fewer requests of two random
//! choices is selected, so that several pickers do not all select the same endpoint.

use fastrand::Rng;

use crate::endpoint::Endpoint;

/// Returns the least loaded of `endpoints`, or `None` if there are none.
pub(crate) fn least_loaded<'a>(endpoints: &[&'a Endpoint], rng: &mut Rng) -> Option<&'a Endpoint> {
    let lowest = endpoints.iter().map(|endpoint| endpoint.state.tokens()).min()?;
    let equal: Vec<&Endpoint> =
        endpoints.iter().copied().filter(|endpoint| endpoint.state.tokens() <= lowest).collect();
    let mut draw = || rng.choice(equal.iter().copied());
    let selected = [draw(), draw()].into_iter().flatten().min_by_key(|endpoint| endpoint.state.requests());
    // Loads change concurrently: if no endpoint has the lowest load anymore, return any endpoint.
    selected.or(endpoints.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::endpoint;

    #[test]
    fn tokens_in_flight_outweigh_number_of_requests() {
        let endpoints: Vec<Endpoint> = (1..=2).map(endpoint).collect();
        let _long = endpoints[0].state.begin(1_000);
        let _short_requests = (endpoints[1].state.begin(10), endpoints[1].state.begin(10));
        let candidates: Vec<&Endpoint> = endpoints.iter().collect();
        assert_eq!(least_loaded(&candidates, &mut Rng::with_seed(0)).unwrap().pod, "pod-2");
    }

    #[test]
    fn equally_loaded_endpoints_share_requests() {
        let mut rng = Rng::with_seed(3);
        let endpoints: Vec<Endpoint> = (1..=4).map(endpoint).collect();
        let candidates: Vec<&Endpoint> = endpoints.iter().collect();
        for endpoint in &endpoints {
            let selections =
                (0..400).filter(|_| least_loaded(&candidates, &mut rng).unwrap().pod == endpoint.pod).count();
            assert!((60..140).contains(&selections), "{} {selections}", endpoint.pod);
        }
    }

    #[test]
    fn returns_none_without_endpoints() {
        assert!(least_loaded(&[], &mut Rng::with_seed(0)).is_none());
    }
}
