//! Selects the endpoints of a request among those of its pool.

use fastrand::Rng;
use tokio::time::Instant;

use super::{
    eligibility::{Eligibility, EligibilityCheck, Tier},
    model_route::ModelRoute,
};
use crate::{policy::SchedulingResult, pool_scheduling::RequestInFlight, snapshot::Pool};

/// The selected endpoints of a request.
#[derive(Debug)]
pub(crate) struct Selection {
    /// The endpoints.
    pub(crate) result: SchedulingResult,
    /// Number of requests that the selected endpoint had in flight.
    other_requests: usize,
    /// Number of endpoints of the pool to which requests are sent.
    endpoint_count: usize,
    /// Number of endpoints to which this request was sent before.
    failed_count: usize,
    /// Counts the request as in flight.
    pub(super) in_flight: RequestInFlight,
}

/// Why no endpoint is selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unavailable {
    /// No endpoint is eligible.
    NoEndpoint,
    /// The request would wait in all eligible engines.
    Saturated,
}

// === impl Selection ===

impl Selection {
    /// Selects an endpoint of `pool`.
    ///
    /// # Errors
    /// No endpoint is available now.
    pub(super) fn new(
        route: &ModelRoute,
        pool: &Pool,
        eligibility: Eligibility<'_>,
        rng: &mut Rng,
    ) -> Result<Self, Unavailable> {
        let Eligibility { failed, subset, allows_saturated } = eligibility;
        let (request, now) = (route.scheduling_request(), Instant::now());
        let share = pool.objectives.share(route.priority, now);
        let check = EligibilityCheck { route, share, allows_saturated, now };
        let select = |tier| {
            let candidates = || {
                let mut next = 0;
                pool.endpoints_with_facts().filter(move |(endpoint, _)| {
                    !failed.contains(&endpoint.address)
                        && subset.is_none_or(|subset| subset.contains(endpoint.address, &mut next))
                        && check.exclusion(tier, endpoint).is_none()
                })
            };
            let free = candidates().filter(|(endpoint, facts)| check.is_free(endpoint, facts));
            match pool.scheduling.schedule(&request, free, now, rng) {
                Some(scheduled) => Some(Ok(scheduled)),
                None if allows_saturated => None,
                None => candidates().any(|(_, facts)| facts.serves_requests).then_some(Err(Unavailable::Saturated)),
            }
        };
        let (result, in_flight) = Tier::ALL.into_iter().find_map(select).unwrap_or(Err(Unavailable::NoEndpoint))?;
        for endpoint in std::iter::once(&result.endpoint).chain(&result.prefill_endpoint) {
            endpoint.state.health.record_request(now);
        }
        let other_requests = result.endpoint.state.requests().saturating_sub(1);
        let endpoint_count = pool.serving_endpoints().count();
        Ok(Self { result, other_requests, endpoint_count, failed_count: failed.len(), in_flight })
    }

    /// Returns the reason for the selection, such as `0 in flight, of 2 endpoints`.
    pub(crate) fn explanation(&self) -> String {
        let Self { result, other_requests, endpoint_count, failed_count, .. } = self;
        let plural = if *endpoint_count == 1 { "" } else { "s" };
        let retries = if *failed_count == 0 { String::new() } else { format!(", after {failed_count} failed") };
        let prefill = result.prefill_endpoint.as_ref();
        let prefill_pod = prefill.map(|endpoint| format!(", prefill on {}", endpoint.pod)).unwrap_or_default();
        format!("{other_requests} in flight, of {endpoint_count} endpoint{plural}{prefill_pod}{retries}")
    }
}
