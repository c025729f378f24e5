//! Selects the endpoints of a request among those of its pool.

use std::{net::SocketAddr, sync::Arc};

use fastrand::Rng;
use tokio::time::Instant;

use super::model_route::ModelRoute;
use crate::{
    endpoint::Endpoint, endpoint_facts::EndpointFacts, endpoint_subset::EndpointSubset, policy::SchedulingResult,
    pool_scheduling::RequestInFlight, routing_error::RoutingError, snapshot::Pool,
};

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

// === impl Selection ===

impl Selection {
    /// Selects an endpoint of `pool` in `subset` that is not in `failed`.
    ///
    /// # Errors
    /// [`RoutingError::NoEndpointAvailable`].
    pub(super) fn new(
        route: &ModelRoute,
        pool: &Pool,
        failed: &[SocketAddr],
        subset: Option<&EndpointSubset>,
        rng: &mut Rng,
    ) -> Result<Self, RoutingError> {
        let (request, now) = (route.scheduling_request(), Instant::now());
        let mut schedule = |is_eligible: &dyn Fn(&Endpoint) -> bool| {
            let mut next = 0;
            let is_eligible = |(endpoint, _): &(&Arc<Endpoint>, &EndpointFacts)| {
                !failed.contains(&endpoint.address)
                    && subset.is_none_or(|subset| subset.contains(endpoint.address, &mut next))
                    && !endpoint.state.health.is_asleep(now)
                    && is_eligible(endpoint)
            };
            pool.scheduling.schedule(&request, pool.endpoints_with_facts().filter(is_eligible), now, rng)
        };
        // If all endpoints failed or do not serve the model, the response of one of them decides.
        let result = schedule(&|endpoint| route.may_be_sent_to(endpoint, now))
            .or_else(|| schedule(&|endpoint| endpoint.state.health.may_serve(route.served_key, now)))
            .or_else(|| schedule(&|_| true));
        let (result, in_flight) = result.ok_or_else(|| RoutingError::NoEndpointAvailable(pool.key.clone()))?;
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
