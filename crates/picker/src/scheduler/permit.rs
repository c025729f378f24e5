//! An admitted request, and what happens to it.

use std::{net::SocketAddr, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{measurement::Measurement, model_route::ModelRoute, selection::Selection};
use crate::{
    access_log::{AccessRecord, LoggedAdmission},
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
    /// How long the selection took in seconds, without the time in a queue. A Duration takes twice the space in the future of each
    /// request.
    pub(super) decision_seconds: f64,
    /// What is recorded until the request ends, once it is admitted. Boxed for the size of the future of each request.
    pub(super) records: Option<Box<Records>>,
}

/// What is recorded until an admitted request ends.
#[derive(Debug)]
pub(super) struct Records {
    /// Counts the request as running, and records its duration.
    running: RunningRequest,
    /// Counts the request to a pool whose workload is scaled to zero.
    _in_progress: Option<RequestInProgress>,
    /// Measures the latency if the use case has an objective.
    measurement: Option<Measurement>,
    /// Line of the access log.
    access_record: Option<Box<AccessRecord>>,
}

// === impl Records ===

impl Records {
    /// Returns the records of an admitted request, without a line of the access log.
    pub(super) fn new(
        running: RunningRequest,
        in_progress: Option<RequestInProgress>,
        measurement: Option<Measurement>,
    ) -> Self {
        Self { running, _in_progress: in_progress, measurement, access_record: None }
    }
}

// === impl Permit ===

impl Permit {
    /// Returns the permit of a request that was sent to no endpoint before.
    pub(super) fn new(route: ModelRoute, selection: Selection, decision_time: Duration) -> Self {
        Self { route, selection, failed: Vec::new(), decision_seconds: decision_time.as_secs_f64(), records: None }
    }

    /// Records the admission in the access log.
    pub(crate) fn record_admission(&self, record: &mut AccessRecord) {
        let route = &self.route;
        record.record_admission(LoggedAdmission {
            pool: &route.pool.key,
            use_case: route.use_case().map(|use_case| use_case.declared_by.as_str()),
            target_model: &route.target_model,
            priority: route.priority,
            prompt_tokens: route.scheduling_request().prompt_tokens(),
            queue_time: self.records.as_ref().map_or(Duration::ZERO, |records| records.running.queue_time),
        });
    }

    /// Records in the access log to which endpoint the request is sent.
    pub(crate) fn record_endpoint(&self, record: &mut AccessRecord) {
        let endpoint = &self.selection.result.endpoint;
        record.record_endpoint(endpoint.address, &endpoint.pod, self.failed.len());
    }

    /// Adds the response to the record of the access log, which is written when the permit is dropped.
    pub(crate) fn set_access_record(&mut self, record: Option<Box<AccessRecord>>) {
        if let Some(records) = &mut self.records {
            records.access_record = record;
        }
    }

    /// Returns the record of the access log.
    pub(crate) fn access_record(&mut self) -> Option<&mut AccessRecord> {
        self.records.as_mut()?.access_record.as_deref_mut()
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
        self.records.as_ref().is_some_and(|records| records.measurement.is_some())
    }

    /// Records that the response is an error, whose latency is not measured.
    pub(crate) fn record_error_response(&mut self) {
        if let Some(records) = &mut self.records {
            records.measurement = None;
        }
    }

    /// Records a part of the body of the response.
    pub(crate) fn record_response_body(&mut self, chunk: &[u8]) {
        let Some(records) = &mut self.records else { return };
        if let Some(measurement) = &mut records.measurement {
            measurement.record_body(chunk);
        }
        if let Some(record) = &mut records.access_record {
            record.record_body(chunk);
        }
    }

    /// Records that the response is complete.
    pub(crate) fn record_response_end(&mut self) {
        let Some(records) = &mut self.records else { return };
        if let Some(measurement) = records.measurement.take() {
            measurement.finish(Instant::now());
        }
        if let Some(record) = &mut records.access_record {
            record.record_end();
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
