//! An admitted request, and what happens to it.

use std::{net::SocketAddr, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{measurement::Measurement, model_route::ModelRoute, selection::Selection};
use crate::{
    control_headers::destination,
    demand::RequestInProgress,
    endpoint::Endpoint,
    endpoint_health::{HealthChange, RequestOutcome},
    metrics::RunningRequest,
    policy::SchedulingResult,
};

/// An admitted request. It counts as in flight on its endpoint until the permit is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    /// Pool and target model.
    pub(crate) route: ModelRoute,
    /// Where the request is sent now.
    pub(crate) selection: Selection,
    /// Endpoints that failed before.
    pub(super) failed: Vec<SocketAddr>,
    /// How long the selection took, without the time in a queue.
    pub(super) decision_time: Duration,
    /// Counts the request as running, and records its duration.
    pub(super) running: Option<Box<RunningRequest>>,
    /// Counts the request to a pool whose workload is scaled to zero.
    pub(super) in_progress: Option<RequestInProgress>,
    /// Measures the latency if the use case has an objective.
    pub(super) measurement: Option<Box<Measurement>>,
}

// === impl Permit ===

impl Permit {
    /// Returns the permit of a request that was sent to no endpoint before.
    pub(super) fn new(route: ModelRoute, selection: Selection, decision_time: Duration) -> Self {
        Self {
            route,
            selection,
            failed: Vec::new(),
            decision_time,
            running: None,
            in_progress: None,
            measurement: None,
        }
    }

    /// Returns the number of endpoints to which the request was sent.
    pub(crate) fn attempts(&self) -> usize {
        self.failed.len().saturating_add(1)
    }

    /// Returns the address to which the request is sent.
    pub(crate) fn destination(&self) -> SocketAddr {
        destination(self.selection.result.endpoint.address, self.route.pool.scheduling.policy().primary_port)
    }

    /// Returns a token that is cancelled when the Pod of the selected endpoint is deleted.
    pub(crate) fn pod_deleted(&self) -> CancellationToken {
        self.selection.result.endpoint.state.pod_deleted.clone()
    }

    /// Records that the response starts: the prompt has been computed.
    pub(crate) fn record_response_start(&mut self) {
        self.selection.in_flight.prefill = None;
    }

    /// Records that an endpoint other than the selected one serves the request and caches its prompt.
    pub(crate) fn record_served_endpoint(&mut self, address: SocketAddr) {
        let ModelRoute { pool, prefix_hashes, .. } = &self.route;
        if let Some((endpoint, facts)) = pool.find_endpoint(address) {
            pool.scheduling.record_served_endpoint(prefix_hashes, facts);
            self.selection.in_flight.request.move_to(&endpoint.state);
        }
    }

    /// Records that the engine sent a part of the response: it has computed the prompt.
    pub(crate) fn record_first_byte(&self) {
        self.selection.in_flight.request.record_first_byte();
    }

    /// Returns whether the latency per output token is measured: the body of the response states the tokens.
    pub(crate) fn is_measured(&self) -> bool {
        self.measurement.is_some()
    }

    /// Records that the response is an error, whose latency is not measured.
    pub(crate) fn record_error_response(&mut self) {
        self.measurement = None;
    }

    /// Records a part of the body of the response.
    pub(crate) fn record_response_body(&mut self, chunk: &[u8]) {
        if let Some(measurement) = &mut self.measurement {
            measurement.record_body(chunk);
        }
    }

    /// Records that the response is complete.
    pub(crate) fn record_response_end(&mut self) {
        if let Some(measurement) = self.measurement.take() {
            measurement.finish(Instant::now());
        }
    }

    /// Records what happened to the request on the selected endpoint. A decoder responds after the prefiller has computed the
    /// prompt, and its response does not state which of the two failed, so the outcome counts for both until then.
    pub(crate) fn record_outcome(&self, outcome: RequestOutcome) {
        let SchedulingResult { endpoint, prefill_endpoint, .. } = &self.selection.result;
        self.record_endpoint_outcome(endpoint, outcome);
        let prefiller = prefill_endpoint.as_ref().filter(|_| self.selection.in_flight.prefill.is_some());
        if let Some(prefiller) = prefiller.filter(|_| outcome.concerns_prefiller()) {
            self.record_endpoint_outcome(prefiller, outcome);
        }
    }

    /// After a failure, the endpoint is scraped immediately: a dead engine fails fast and has an empty queue, so it would
    /// attract requests until the next scrape.
    fn record_endpoint_outcome(&self, endpoint: &Endpoint, outcome: RequestOutcome) {
        let Endpoint { address, pod, state, .. } = endpoint;
        if !matches!(outcome, RequestOutcome::Responded(status) if !status.is_server_error()) {
            state.scrape_requested.notify_one();
        }
        match state.health.record_outcome(outcome, self.route.served_key, Instant::now()) {
            Some(HealthChange::Ejected(duration)) => {
                tracing::info!(%address, %pod, ?outcome, ?duration, "endpoint failed, selecting other endpoints");
            }
            Some(HealthChange::Recovered) => tracing::info!(%address, %pod, "endpoint responds again"),
            None => {}
        }
    }
}
