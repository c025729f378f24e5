//! Selects the endpoints of a request among those of its pool.

use std::{net::SocketAddr, sync::Arc};

use fastrand::Rng;
use tokio::time::Instant;

use super::model_route::ModelRoute;
use crate::{
    endpoint::Endpoint, endpoint_subset::EndpointSubset, policy::SchedulingResult, pool_scheduling::RequestInFlight,
    routing_error::RoutingError, snapshot::Pool,
};

/// The selected endpoints of a request.
#[derive(Debug)]
pub(crate) struct Selection {
    /// The endpoints.
    pub(crate) result: SchedulingResult,
    /// Explanation, such as `0 in flight, of 2 endpoints`.
    pub(crate) explanation: String,
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
            let is_eligible = |endpoint: &&Arc<Endpoint>| {
                !failed.contains(&endpoint.address)
                    && subset.is_none_or(|subset| subset.contains(endpoint.address))
                    && !endpoint.state.health.is_asleep(now)
                    && is_eligible(endpoint)
            };
            pool.scheduling.schedule(&request, pool.ready_endpoints.iter().filter(is_eligible), now, rng)
        };
        // If all endpoints failed or do not serve the model, the response of one of them decides.
        let result = schedule(&|endpoint| route.may_be_sent_to(endpoint, now))
            .or_else(|| schedule(&|endpoint| endpoint.state.health.may_serve(route.served_key, now)))
            .or_else(|| schedule(&|_| true));
        let (result, in_flight) = result.ok_or_else(|| RoutingError::NoEndpointAvailable(pool.key.clone()))?;
        for endpoint in std::iter::once(&result.endpoint).chain(&result.prefill_endpoint) {
            endpoint.state.health.record_request(now);
        }
        let count = pool.serving_endpoints().count();
        let plural = if count == 1 { "" } else { "s" };
        let retries = if failed.is_empty() { String::new() } else { format!(", after {} failed", failed.len()) };
        let prefill = result.prefill_endpoint.as_ref();
        let prefill_pod = prefill.map(|endpoint| format!(", prefill on {}", endpoint.pod)).unwrap_or_default();
        let requests = result.endpoint.state.requests().saturating_sub(1);
        let explanation = format!("{requests} in flight, of {count} endpoint{plural}{prefill_pod}{retries}");
        Ok(Self { result, explanation, in_flight })
    }
}
