//! Least loaded endpoint by tokens in flight. Among equally loaded endpoints, the one with fewer requests of two random
//! choices is selected, so that several pickers do not all select the same endpoint.

use fastrand::Rng;

use crate::endpoint::Endpoint;

/// Returns the least loaded of `endpoints`, or `None` if there are none.
pub(crate) fn least_loaded<'a>(endpoints: &[&'a Endpoint], rng: &mut Rng) -> Option<&'a Endpoint> {
    let lowest = endpoints.iter().map(|endpoint| endpoint.load.tokens()).min()?;
    let equal: Vec<&Endpoint> = endpoints.iter().copied().filter(|endpoint| endpoint.load.tokens() <= lowest).collect();
    let mut draw = || rng.choice(equal.iter().copied());
    let selected = [draw(), draw()].into_iter().flatten().min_by_key(|endpoint| endpoint.load.requests());
    // Loads change concurrently: if no endpoint has the lowest load anymore, return any endpoint.
    selected.or(endpoints.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{datastore::Datastore, endpoint::PromptTokenRange};

    fn endpoints(datastore: &Datastore, number: u16) -> Vec<Endpoint> {
        let endpoint = |port| {
            let address = ([127, 0, 0, 1], port).into();
            Endpoint {
                address,
                pod: format!("pod-{port}"),
                prompt_tokens: PromptTokenRange::default(),
                load: datastore.load(address),
            }
        };
        (1..=number).map(endpoint).collect()
    }

    #[test]
    fn tokens_in_flight_outweigh_number_of_requests() {
        let datastore = Datastore::new(0);
        let pool_endpoints = endpoints(&datastore, 2);
        let _long = pool_endpoints[0].load.begin(1_000);
        let _short_requests = (pool_endpoints[1].load.begin(10), pool_endpoints[1].load.begin(10));
        let candidates: Vec<&Endpoint> = pool_endpoints.iter().collect();
        assert_eq!(least_loaded(&candidates, &mut datastore.rng()).unwrap().pod, "pod-2");
    }

    #[test]
    fn equally_loaded_endpoints_share_requests() {
        let datastore = Datastore::new(3);
        let pool_endpoints = endpoints(&datastore, 4);
        let candidates: Vec<&Endpoint> = pool_endpoints.iter().collect();
        for endpoint in &pool_endpoints {
            let selections = (0..400)
                .filter(|_| least_loaded(&candidates, &mut datastore.rng()).unwrap().pod == endpoint.pod)
                .count();
            assert!((60..140).contains(&selections), "{} {selections}", endpoint.pod);
        }
    }

    #[test]
    fn returns_none_without_endpoints() {
        assert!(least_loaded(&[], &mut Rng::with_seed(0)).is_none());
    }
}
