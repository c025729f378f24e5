//! Selects an endpoint for each request, for both frontends.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use cluster::NamespacedName;
use fastrand::Rng;
use supervisor::Supervisor;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh64::xxh64;

use crate::{
    control_headers::destination,
    endpoint::Endpoint,
    endpoint_health::{HealthChange, RequestOutcome},
    endpoint_registry::EndpointRegistry,
    endpoint_state::EndpointState,
    index::PoolStates,
    policy::{SchedulingPolicy, SchedulingResult},
    pool_scheduling::{PoolScheduling, RequestInFlight},
    request::RequestInfo,
    routing_error::RoutingError,
    scheduling_request::SchedulingRequest,
    snapshot::{Pool, Snapshot},
};

/// Scheduling core of a process. The watches of pools and Pods update its snapshot; the frontends ask it to
/// [admit](Scheduler::admit) requests.
pub struct Scheduler {
    snapshot: RwLock<Arc<Snapshot>>,
    endpoints: EndpointRegistry,
    /// Policy of pools that state none.
    default_policy: SchedulingPolicy,
    rng: Mutex<Rng>,
    /// Why the snapshot does not contain all pools yet.
    incomplete: Mutex<Option<String>>,
    /// The tasks that keep the snapshot up to date.
    pub(crate) supervisor: Supervisor,
}

/// A request to admit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdmissionRequest<'a> {
    /// Pool that the request addresses; `None` searches all pools.
    pub(crate) pool: Option<&'a NamespacedName>,
    /// Which model is requested.
    pub(crate) model: RequestedModel<'a>,
    /// The whole body.
    pub(crate) body: &'a [u8],
    /// Fields of the body.
    pub(crate) info: &'a RequestInfo,
    /// Path of the API, without a query.
    pub(crate) path: &'a str,
}

/// The model of a request to admit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestedModel<'a> {
    /// Name in the body: its use case states the model for the engines.
    Name(&'a str),
    /// Model for the engines, which a header states.
    Target(&'a str),
    /// The request names no model, or its body is not sent to the scheduler.
    Unknown,
}

/// An admitted request. It counts as in flight on its endpoint until the permit is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    /// Pool and target model.
    pub(crate) route: ModelRoute,
    /// Where the request is sent now.
    pub(crate) selection: Selection,
    /// Endpoints that failed before.
    failed: Vec<SocketAddr>,
}

/// Pool and target model of a request, and what selecting an endpoint needs of the request.
#[derive(Debug)]
pub(crate) struct ModelRoute {
    /// Pool that serves the model.
    pub(crate) pool: Arc<Pool>,
    /// Model name for the engines.
    pub(crate) target_model: String,
    prompt_bytes: usize,
    estimated_tokens: u64,
    output_tokens: u64,
    prefix_hashes: Vec<Vec<u64>>,
    /// Hash of target model and path: an engine may serve a model on some paths only.
    served_key: u64,
}

/// The selected endpoints of a request.
#[derive(Debug)]
pub(crate) struct Selection {
    /// The endpoints.
    pub(crate) result: SchedulingResult,
    /// Explanation, such as `0 in flight, of 2 endpoints`.
    pub(crate) explanation: String,
    /// Counts the request as in flight.
    in_flight: RequestInFlight,
}

// === impl Scheduler ===

impl Scheduler {
    /// Returns a scheduler without pools. `seed` makes random selections reproducible.
    pub fn new(default_policy: SchedulingPolicy, seed: u64) -> Self {
        Self {
            snapshot: RwLock::default(),
            endpoints: EndpointRegistry::default(),
            default_policy,
            rng: Mutex::new(Rng::with_seed(seed)),
            incomplete: Mutex::new(Some("the gateway is starting".to_owned())),
            supervisor: Supervisor::default(),
        }
    }

    /// Replaces all pools atomically. The state of retained endpoints is preserved. From now on, the endpoints of pools whose
    /// policy reads metrics are scraped.
    pub fn replace(&self, mut pools: Vec<Pool>) {
        let old = self.snapshot();
        for pool in &mut pools {
            let Some(old) = old.pools.get(&pool.key) else { continue };
            if old.scheduling.policy() == pool.scheduling.policy() {
                pool.scheduling = Arc::clone(&old.scheduling);
                let is_retained = |address| {
                    let state = |pool: &Pool| pool.endpoint(address).map(|endpoint| Arc::as_ptr(&endpoint.state));
                    state(pool).is_some() && state(pool) == state(old)
                };
                pool.scheduling.retain(is_retained);
            }
        }
        for pool in pools.iter().filter(|pool| pool.scheduling.policy().reads_metrics()) {
            pool.ready_endpoints.iter().for_each(|endpoint| self.endpoints.scrape(endpoint, &self.supervisor));
        }
        let new = Arc::new(Snapshot::new(pools));
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&new);
        self.endpoints.remove_unused();
        log_changes(&old, &new);
    }

    /// Ends the requests to engines whose Pods do not exist any more. A node that lost its connection to the cluster does not
    /// close those of the engines.
    pub(crate) fn end_requests_of_deleted_pods(&self, uids: &HashSet<&str>) {
        self.endpoints.end_requests_of_deleted_pods(|uid| uids.contains(uid));
    }

    /// Returns the current pools.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the state of an endpoint, which all pools share.
    pub fn endpoint_state(&self, address: SocketAddr, pod_uid: &str) -> Arc<EndpointState> {
        self.endpoints.state(address, pod_uid)
    }

    /// Returns the scheduling of a new pool without a policy of its own.
    pub fn default_scheduling(&self) -> Arc<PoolScheduling> {
        self.scheduling(None)
    }

    /// Returns the policy of pools that state none.
    pub(crate) fn default_policy(&self) -> &SchedulingPolicy {
        &self.default_policy
    }

    /// Finds the use case of a request, draws its target model, and selects an endpoint among those for which `is_allowed`
    /// is true.
    ///
    /// # Errors
    /// No pool serves the model, or no endpoint is available.
    pub(crate) fn admit(
        &self,
        request: &AdmissionRequest<'_>,
        is_allowed: impl Fn(&Endpoint) -> bool,
    ) -> Result<Permit, RoutingError> {
        let mut rng = self.rng();
        let route = ModelRoute::resolve(request, &self.snapshot(), &mut rng)?;
        let selection = route.select(&route.pool, &[], is_allowed, &mut rng)?;
        Ok(Permit { route, selection, failed: Vec::new() })
    }

    /// Selects another endpoint for a request whose endpoint failed. A Pod that became ready while the request was in flight
    /// may replace the one that failed.
    ///
    /// # Errors
    /// [`RoutingError::NoEndpointAvailable`].
    pub(crate) fn retry(&self, permit: &mut Permit) -> Result<(), RoutingError> {
        permit.failed.push(permit.selection.result.endpoint.address);
        let pool = self.current_pool(permit);
        let pool = pool.as_ref().unwrap_or(&permit.route.pool);
        permit.selection = permit.route.select(pool, &permit.failed, |_| true, &mut self.rng())?;
        Ok(())
    }

    /// Returns whether an endpoint is ready that the request was not sent to and that may serve it.
    pub(crate) fn has_other_endpoint(&self, permit: &Permit) -> bool {
        let now = Instant::now();
        let is_other = |endpoint: &Arc<Endpoint>| {
            endpoint.address != permit.selection.result.endpoint.address
                && !permit.failed.contains(&endpoint.address)
                && permit.route.may_be_sent_to(endpoint, now)
        };
        self.current_pool(permit).is_some_and(|pool| pool.serving_endpoints().any(is_other))
    }

    fn current_pool(&self, permit: &Permit) -> Option<Arc<Pool>> {
        self.snapshot().pools.get(&permit.route.pool.key).cloned()
    }

    /// Returns why tasks that keep the snapshot up to date do not run, one line per task.
    pub fn outages(&self) -> Vec<String> {
        self.supervisor.outages()
    }

    /// Records which resources the snapshot lacks because their first lists are not complete.
    pub(crate) fn set_unlisted(&self, resources: &[String]) {
        let reason = || format!("waiting for the first list of {}", resources.join(", "));
        *self.incomplete.lock().unwrap_or_else(PoisonError::into_inner) = (!resources.is_empty()).then(reason);
    }

    /// Returns why the process is not ready for requests: its snapshot does not contain all pools yet. Outages do not count,
    /// since the last snapshot serves requests, and one object may cause an outage of all replicas.
    pub fn readiness_failures(&self) -> Vec<String> {
        self.incomplete.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Returns a random number generator for one request, derived from the seed.
    fn rng(&self) -> Rng {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }
}

impl PoolStates for Scheduler {
    fn endpoint(&self, address: SocketAddr, pod_uid: &str) -> Arc<EndpointState> {
        self.endpoint_state(address, pod_uid)
    }

    fn scheduling(&self, policy: Option<SchedulingPolicy>) -> Arc<PoolScheduling> {
        Arc::new(PoolScheduling::new(policy.unwrap_or_else(|| self.default_policy.clone())))
    }
}

/// Logs endpoints that became ready or unready.
fn log_changes(old: &Snapshot, new: &Snapshot) {
    let contains = |snapshot: &Snapshot, key: &NamespacedName, endpoint: &Endpoint| {
        let other = snapshot.pools.get(key).and_then(|pool| pool.endpoint(endpoint.address));
        other.is_some_and(|other| other.uid == endpoint.uid)
    };
    for (key, pool) in &old.pools {
        for Endpoint { address, pod, .. } in
            pool.ready_endpoints.iter().map(|endpoint| &**endpoint).filter(|endpoint| !contains(new, key, endpoint))
        {
            tracing::info!(pool = %key, %address, %pod, "endpoint became unready");
        }
    }
    for (key, pool) in &new.pools {
        for Endpoint { address, pod, .. } in
            pool.ready_endpoints.iter().map(|endpoint| &**endpoint).filter(|endpoint| !contains(old, key, endpoint))
        {
            tracing::info!(pool = %key, %address, %pod, "endpoint became ready");
        }
    }
}

// === impl Permit ===

impl Permit {
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
        if let Some(endpoint) = pool.endpoint(address) {
            pool.scheduling.record_served_endpoint(prefix_hashes, address);
            self.selection.in_flight.request.move_to(&endpoint.state);
        }
    }

    /// Records that the engine sent a part of the response: it has computed the prompt.
    pub(crate) fn record_first_byte(&self) {
        self.selection.in_flight.request.record_first_byte();
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

// === impl ModelRoute ===

impl ModelRoute {
    /// Finds the use case of a request and draws its target model.
    ///
    /// # Errors
    /// [`RoutingError::ModelNotFound`] or [`RoutingError::PoolNotFound`].
    fn resolve(request: &AdmissionRequest<'_>, snapshot: &Snapshot, rng: &mut Rng) -> Result<Self, RoutingError> {
        if let Some(key) = request.pool.filter(|key| !snapshot.pools.contains_key(key)) {
            return Err(RoutingError::PoolNotFound(key.clone()));
        }
        let (pool, target_model) = find_target(request, snapshot, rng)
            .ok_or_else(|| RoutingError::ModelNotFound(request.model.name().to_owned()))?;
        Ok(Self {
            pool: Arc::clone(pool),
            prompt_bytes: request.info.prompt_bytes(),
            estimated_tokens: request.info.estimated_tokens(),
            output_tokens: request.info.counted_output_tokens(),
            prefix_hashes: pool.scheduling.policy().prefix_hashes(&target_model, request.body, request.info),
            served_key: served_key(&target_model, request.path),
            target_model,
        })
    }

    /// Returns whether the endpoint is healthy and may serve the model.
    fn may_be_sent_to(&self, endpoint: &Endpoint, now: Instant) -> bool {
        let health = &endpoint.state.health;
        !health.is_asleep(now) && health.is_available(now) && health.may_serve(self.served_key, now)
    }

    /// Selects an endpoint of `pool` that is not in `failed`.
    ///
    /// # Errors
    /// [`RoutingError::NoEndpointAvailable`].
    fn select(
        &self,
        pool: &Pool,
        failed: &[SocketAddr],
        is_allowed: impl Fn(&Endpoint) -> bool,
        rng: &mut Rng,
    ) -> Result<Selection, RoutingError> {
        let request = SchedulingRequest {
            model: &self.target_model,
            prompt_bytes: self.prompt_bytes,
            max_tokens: self.estimated_tokens,
            output_tokens: self.output_tokens,
            prefix_hashes: &self.prefix_hashes,
        };
        let now = Instant::now();
        let mut schedule = |is_eligible: &dyn Fn(&Endpoint) -> bool| {
            let is_eligible = |endpoint: &&Arc<Endpoint>| {
                !failed.contains(&endpoint.address)
                    && is_allowed(endpoint)
                    && !endpoint.state.health.is_asleep(now)
                    && is_eligible(endpoint)
            };
            pool.scheduling.schedule(&request, pool.ready_endpoints.iter().filter(is_eligible), now, rng)
        };
        // If all endpoints failed or do not serve the model, the response of one of them decides.
        let result = schedule(&|endpoint| self.may_be_sent_to(endpoint, now))
            .or_else(|| schedule(&|endpoint| endpoint.state.health.may_serve(self.served_key, now)))
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
        Ok(Selection { result, explanation, in_flight })
    }
}

/// Returns the hash of a target model and a path.
fn served_key(target_model: &str, path: &str) -> u64 {
    xxh64(target_model.as_bytes(), xxh64(path.as_bytes(), 0))
}

/// Returns the pool and the target model of a request. Only a request that names a model may search all pools.
fn find_target<'a>(
    request: &AdmissionRequest<'_>,
    snapshot: &'a Snapshot,
    rng: &mut Rng,
) -> Option<(&'a Arc<Pool>, String)> {
    match request.model {
        RequestedModel::Name(model) => {
            let (pool, use_case) = snapshot.find(request.pool, model)?;
            Some((pool, use_case.draw_target(rng).to_owned()))
        }
        RequestedModel::Target(model) => Some((snapshot.find_target(request.pool?, model)?, model.to_owned())),
        RequestedModel::Unknown => Some((snapshot.pools.get(request.pool?)?, String::new())),
    }
}

// === impl RequestedModel ===

impl<'a> RequestedModel<'a> {
    fn name(self) -> &'a str {
        match self {
            Self::Name(model) | Self::Target(model) => model,
            Self::Unknown => "",
        }
    }
}

#[cfg(test)]
mod tests;
