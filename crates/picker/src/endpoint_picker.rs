//! Endpoint picker: selects endpoints of one InferencePool for a proxy that sends requests over Envoy's `ext_proc`.
//!
//! Input: the pool and its Pods ([`watch_inference_pool`]), scraped engine metrics (`scrape`), and requests
//! ([`serve_grpc`]). Output: the endpoints that a [`SchedulingPolicy`] selects. `ext_proc_stream` implements the protocol
//! without its transport, as a pure state machine.

mod discovery;
mod endpoint_state;
mod ext_proc_service;
mod ext_proc_stream;
mod message_reader;
mod metrics;
mod metrics_server;
mod scrape;
mod server;
mod serving_certificate;
mod watch;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use cluster::NamespacedName;
use fastrand::Rng;
use http_server::BodyMemory;
use serde_json::Value;
use supervisor::Supervisor;
use tokio::time::Instant;

use crate::{
    candidate::Candidate,
    policy::{SchedulingPolicy, SchedulingResult},
    request::BODY_MEMORY,
    scheduling_request::SchedulingRequest,
    score::state::SchedulerState,
};
use endpoint_state::EndpointState;
use ext_proc_stream::CompleteRequest;
use metrics::Metrics;
use scrape::Scraper;

pub use metrics_server::serve_metrics;
pub use server::{ListenerRole, serve_grpc};
pub use serving_certificate::{CertificateError, ServingCertificate};
pub use watch::{PoolGroup, watch_inference_pool};

/// Scheduler of one InferencePool: the scheduling policy and the state of the pool's endpoints.
pub struct EndpointPicker {
    /// Namespace and name of the InferencePool.
    pub pool: NamespacedName,
    policy: SchedulingPolicy,
    endpoint_states: RwLock<Arc<Vec<EndpointState>>>,
    scheduler_state: Mutex<SchedulerState>,
    rng: Mutex<Rng>,
    scraper: Scraper,
    metrics: Metrics,
    /// Whether the pool exists and the Pods are listed.
    synced: AtomicBool,
    draining: AtomicBool,
    /// Memory for the bodies of requests.
    body_memory: BodyMemory,
    /// The tasks that keep the endpoints up to date.
    supervisor: Supervisor,
}

impl EndpointPicker {
    /// Returns a picker without endpoints. `seed` makes random selections reproducible.
    pub fn new(pool: NamespacedName, policy: SchedulingPolicy, seed: u64) -> Self {
        Self {
            scheduler_state: Mutex::new(policy.new_state()),
            pool,
            policy,
            endpoint_states: RwLock::default(),
            rng: Mutex::new(Rng::with_seed(seed)),
            scraper: Scraper::new(),
            metrics: Metrics::new(),
            synced: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            body_memory: BodyMemory::new(BODY_MEMORY),
            supervisor: Supervisor::default(),
        }
    }

    /// Returns whether the pool exists, the Pods are listed, and the picker is not draining. A watch that does not run does not
    /// count: the last endpoints serve requests, and one object may stop the watches of all replicas.
    pub fn is_ready(&self) -> bool {
        self.synced.load(Relaxed) && !self.draining.load(Relaxed)
    }

    /// Starts draining: the picker reports that it is not ready, but continues to answer requests.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    /// Returns the metrics in the OpenMetrics text format.
    pub fn render_metrics(&self) -> String {
        let now = Instant::now();
        let candidates: Vec<Candidate> = self.endpoint_states().iter().map(|state| state.candidate(now)).collect();
        self.metrics.render(&self.pool.name, &candidates)
    }

    /// Returns the addresses of the endpoints in ascending order.
    pub fn endpoints(&self) -> Vec<SocketAddr> {
        self.endpoint_states().iter().map(|state| state.endpoint.address).collect()
    }

    /// Updates the endpoints from the pool and the Pods of its namespace. Retained endpoints keep their state.
    fn update(&self, pool: Option<&Value>, pods: &[Arc<Value>]) {
        let old = self.endpoint_states();
        let discovered = pool.map(|pool| discovery::discover_endpoints(pool, pods)).unwrap_or_default();
        let new: Vec<EndpointState> =
            discovered.into_iter().map(|endpoint| EndpointState::new(endpoint, &old, &self.scraper)).collect();
        self.log_changes(&old, &new);
        let mut scheduler_state = self.scheduler_state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_retained = |address| {
            let has_address = |state: &&EndpointState| state.endpoint.address == address;
            let uid = |states: &[EndpointState]| states.iter().find(has_address).map(|state| state.uid.clone());
            uid(&new).is_some_and(|new_uid| uid(&old) == Some(new_uid))
        };
        scheduler_state.retain(is_retained);
        drop(scheduler_state);
        *self.endpoint_states.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        self.synced.store(pool.is_some(), Relaxed);
    }

    /// Logs endpoints that became ready or unready.
    fn log_changes(&self, old: &[EndpointState], new: &[EndpointState]) {
        let contains = |states: &[EndpointState], state: &EndpointState| {
            states.iter().any(|other| other.endpoint.address == state.endpoint.address && other.uid == state.uid)
        };
        for state in old.iter().filter(|state| !contains(new, state)) {
            let (address, pod) = (state.endpoint.address, &state.endpoint.pod);
            tracing::info!(pool = %self.pool, %address, %pod, "endpoint became unready");
        }
        for state in new.iter().filter(|state| !contains(old, state)) {
            let (address, pod) = (state.endpoint.address, &state.endpoint.pod);
            tracing::info!(pool = %self.pool, %address, %pod, "endpoint became ready");
        }
    }

    fn endpoint_states(&self) -> Arc<Vec<EndpointState>> {
        Arc::clone(&self.endpoint_states.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the selected endpoints, and the block hashes of the prompt for [`EndpointPicker::record_served_endpoint`].
    fn schedule(&self, request: &CompleteRequest) -> Option<(SchedulingResult, Vec<Vec<u64>>)> {
        let now = Instant::now();
        let states = self.endpoint_states();
        let allowed = states.iter().filter(|state| request.allows(state.endpoint.address));
        let candidates: Vec<Candidate> = allowed.map(|state| state.candidate(now)).collect();
        let candidates: Vec<&Candidate> = candidates.iter().collect();
        let prefix_hashes = self.policy.prefix_hashes(&request.target_model, &request.body, &request.info);
        let request = SchedulingRequest {
            model: &request.target_model,
            prompt_bytes: request.info.prompt_bytes(),
            prefix_hashes: &prefix_hashes,
        };
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner).fork();
        let mut scheduler_state = self.scheduler_state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.policy.schedule(&request, &candidates, &mut scheduler_state, &mut rng)?;
        drop(scheduler_state);
        self.metrics.record_decision(now.elapsed(), result.cached_bytes, request.prompt_bytes);
        Some((result, prefix_hashes))
    }

    /// Returns whether `served` differs from the selected endpoint. If one port forwards to all engines of a Pod, only
    /// the IP addresses are compared.
    fn is_other_endpoint(&self, selected: SocketAddr, served: SocketAddr) -> bool {
        match self.policy.primary_port {
            Some(_) => selected.ip() != served.ip(),
            None => selected != served,
        }
    }

    /// Scrapes `endpoint` immediately after a failed request. A dead engine fails fast and has an empty queue, so it would
    /// attract requests until the next scrape.
    fn report_failure(&self, endpoint: SocketAddr) {
        if let Some(state) = self.endpoint_states().iter().find(|state| state.endpoint.address == endpoint) {
            state.scrape_now();
        }
    }

    /// Records that an endpoint other than the selected one served the request and caches its prompt.
    fn record_served_endpoint(&self, prefix_hashes: &[Vec<u64>], endpoint: SocketAddr) {
        if self.endpoint_states().iter().any(|state| state.endpoint.address == endpoint) {
            let mut scheduler_state = self.scheduler_state.lock().unwrap_or_else(PoisonError::into_inner);
            self.policy.record_prefix(prefix_hashes, &mut scheduler_state, endpoint);
        }
    }
}
