//! Selects an endpoint for each request, for both frontends.

mod admission_request;
#[cfg(test)]
mod change_simulation;
mod current_snapshot;
mod details;
mod eligibility;
mod interruptions;
mod measurement;
mod model_route;
#[cfg(test)]
mod objective_simulation;
#[cfg(test)]
mod overload_simulation;
mod peer_exchange;
mod permit;
mod pool_queues;
#[cfg(test)]
mod replica_simulation;
#[cfg(test)]
mod route_simulation;
mod selection;
#[cfg(test)]
mod simulated_engine;
#[cfg(test)]
mod test_request;
#[cfg(test)]
mod tests;
mod trace;

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use supervisor::{Supervisor, TaskStatuses};
use tokio::{sync::watch, time::Instant};

use crate::{
    access_log::AccessLog,
    activation::Activity,
    concurrency_limit::ConcurrencyLimit,
    demand::Demand,
    endpoint::Endpoint,
    endpoint_registry::EndpointRegistry,
    endpoint_state::EndpointState,
    http_routes::RouteTable,
    index::PoolStates,
    metrics::{Metrics, RunningRequest},
    model_names::DEFAULT_NAMESPACE,
    objective::DEFAULT_OBJECTIVE_WINDOW,
    peers::{PeerMessageError, ReplicaId},
    policy::SchedulingPolicy,
    pool_scheduling::PoolScheduling,
    prefix_index::PrefixIndex,
    request::DEFAULT_REQUEST_MEMORY,
    routing_error::RoutingError,
    snapshot::{Pool, Snapshot},
};
use current_snapshot::CurrentSnapshot;
use eligibility::Eligibility;
use interruptions::Interruptions;
use measurement::Measurement;
use model_route::ModelRoute;
use peer_exchange::{ExchangedState, PeerExchange};
use pool_queues::PoolQueues;
use selection::Unavailable;

pub(crate) use admission_request::{AdmissionRequest, RequestedModel};
pub(crate) use permit::Permit;
use permit::Records;
pub(crate) use selection::Selection;

/// Age of a report that does not show any more whether an engine is in use.
const MAX_REPORT_AGE: Duration = Duration::from_secs(15);

/// The result of an attempt to admit a request.
enum Admission {
    Admitted(Permit),
    /// All engines are busy, or other requests wait for them, or the first one starts.
    Saturated(ModelRoute),
}

/// Scheduling core of a process. The watches of pools and Pods update its snapshot; the frontends ask it to
/// [admit](Scheduler::admit) requests.
pub struct Scheduler {
    snapshot: CurrentSnapshot,
    endpoints: EndpointRegistry,
    /// Prompts that the endpoints of all pools have presumably cached.
    prefix_index: Arc<PrefixIndex>,
    /// Policy of pools that state none.
    default_policy: SchedulingPolicy,
    /// Namespace whose models requests may name without it.
    default_namespace: String,
    /// Time over which latencies are compared with the objectives of use cases.
    pub(crate) objective_window: Duration,
    rng: Mutex<Rng>,
    interruptions: Interruptions,
    queues: PoolQueues,
    /// Requests to pools whose workloads are scaled to zero.
    pub(crate) demand: Demand,
    /// What other replicas report; empty until states are exchanged.
    peers: OnceLock<PeerExchange>,
    pub(crate) metrics: Metrics,
    /// Why the snapshot does not contain all pools yet.
    incomplete: Mutex<Option<String>>,
    /// The tasks that keep the snapshot up to date.
    pub(crate) supervisor: Supervisor,
    /// Records each request.
    pub(crate) access_log: Option<AccessLog>,
}

// === impl Scheduler ===

impl Scheduler {
    /// Returns a scheduler without pools. `seed` makes random selections reproducible.
    pub fn new(default_policy: SchedulingPolicy, seed: u64) -> Self {
        let snapshot = CurrentSnapshot::default();
        Self {
            queues: PoolQueues::new(snapshot.clone(), DEFAULT_REQUEST_MEMORY),
            snapshot,
            endpoints: EndpointRegistry::default(),
            prefix_index: Arc::default(),
            default_policy,
            default_namespace: DEFAULT_NAMESPACE.to_owned(),
            objective_window: DEFAULT_OBJECTIVE_WINDOW,
            rng: Mutex::new(Rng::with_seed(seed)),
            interruptions: Interruptions::default(),
            demand: Demand::default(),
            peers: OnceLock::new(),
            metrics: Metrics::new(DEFAULT_NAMESPACE),
            incomplete: Mutex::new(Some("the gateway is starting".to_owned())),
            supervisor: Supervisor::default(),
            access_log: None,
        }
    }

    /// Returns the scheduler with another default namespace than [`DEFAULT_NAMESPACE`]. Requests that address no pool name the models
    /// of other namespaces `NAMESPACE/MODEL`.
    #[must_use]
    pub fn with_default_namespace(self, default_namespace: String) -> Self {
        Self { metrics: Metrics::new(&default_namespace), default_namespace, ..self }
    }

    /// Returns the scheduler for frontends with this memory for the bodies of requests in bytes. Those that wait occupy a part of it.
    #[must_use]
    pub fn with_request_memory(self, bytes: usize) -> Self {
        Self { queues: PoolQueues::new(self.snapshot.clone(), bytes), ..self }
    }

    /// Returns the scheduler that compares latencies with the objectives of use cases over this time.
    #[must_use]
    pub fn with_objective_window(self, objective_window: Duration) -> Self {
        Self { objective_window, ..self }
    }

    /// Returns the scheduler whose frontends record each request in `access_log`.
    #[must_use]
    pub fn with_access_log(self, access_log: Option<AccessLog>) -> Self {
        Self { access_log, ..self }
    }

    /// Replaces all pools atomically. The state of retained endpoints is preserved. From now on, the endpoints of pools whose
    /// policy reads metrics are scraped.
    pub fn replace(&self, pools: Vec<Pool>) {
        self.replace_all(pools.into_iter().map(Arc::new).collect(), Arc::default());
    }

    /// Replaces all pools like [`Self::replace`], and the routes to them.
    pub(crate) fn replace_all(&self, pools: Vec<Arc<Pool>>, routes: Arc<RouteTable>) {
        let old = self.snapshot();
        let pools: Vec<_> = pools.into_iter().map(|pool| self.adopt(pool, &old)).collect();
        let new = Snapshot::new(pools, &self.default_namespace).with_routes(routes);
        let removed = old.pools.iter().filter(|(key, _)| !new.pools.contains_key(*key));
        removed.for_each(|(_, pool)| log_changes(Some(pool), None));
        self.interruptions.update_all(&old, &new);
        self.publish(new);
        self.queues.update_all();
    }

    /// Replaces the endpoints of some pools atomically, like [`Self::replace`].
    pub(crate) fn replace_endpoints(&self, pools: Vec<Arc<Pool>>) {
        let old = self.snapshot();
        let pools: Vec<_> = pools.into_iter().map(|pool| self.adopt(pool, &old)).collect();
        self.interruptions.update(&pools, &old);
        self.publish(old.with_endpoints_of(&pools));
        self.queues.update(pools.iter().map(|pool| &pool.key));
    }

    /// Prepares a pool for the next snapshot: returns it with the scheduling state of the pool of the same name in `old`, and
    /// scrapes its endpoints.
    fn adopt(&self, pool: Arc<Pool>, old: &Snapshot) -> Arc<Pool> {
        let old = old.pools.get(&pool.key);
        log_changes(old, Some(&pool));
        let unchanged = old.filter(|old| old.scheduling.policy() == pool.scheduling.policy());
        let pool = match unchanged {
            Some(old) if !Arc::ptr_eq(&old.scheduling, &pool.scheduling) => {
                Arc::new(Pool { scheduling: Arc::clone(&old.scheduling), ..(*pool).clone() })
            }
            _ => pool,
        };
        let objectives = old.map(|old| old.objectives.clone()).unwrap_or_default();
        let objectives = objectives.next_version(&pool.use_cases, self.objective_window);
        let pool = match objectives.is_empty() && pool.objectives.is_empty() {
            true => pool,
            false => Arc::new(Pool { objectives, ..(*pool).clone() }),
        };
        let pool = match old {
            Some(old) if !Arc::ptr_eq(&old.usage, &pool.usage) => {
                Arc::new(Pool { usage: Arc::clone(&old.usage), ..(*pool).clone() })
            }
            _ => pool,
        };
        if let Some(old) = old.filter(|old| old.scale_to_zero.is_some() && old.is_serving()) {
            pool.scheduling.record_listed_models(old.listed_models(), Instant::now());
        }
        if let Some(old) = unchanged {
            let state = |pool: &Pool, address| pool.endpoint(address).map(|endpoint| Arc::as_ptr(&endpoint.state));
            pool.scheduling.retain(|address| state(&pool, address).is_some_and(|new| state(old, address) == Some(new)));
        }
        if pool.scheduling.policy().reads_metrics() {
            let learned = pool.ready_endpoints.iter().filter_map(|endpoint| endpoint.state.learned_limit()).min();
            let similar = learned.map_or_else(ConcurrencyLimit::default, ConcurrencyLimit::new);
            pool.ready_endpoints
                .iter()
                .for_each(|endpoint| self.endpoints.scrape(endpoint, &similar, &self.supervisor));
        }
        pool
    }

    fn publish(&self, snapshot: Snapshot) {
        self.snapshot.set(snapshot);
        self.interruptions.notify_published();
    }

    /// Ends the requests to engines whose Pods do not exist any more. A node that lost its connection to the cluster does not
    /// close those of the engines.
    pub(crate) fn end_requests_of_deleted_pods(&self, uids: &HashSet<&str>) {
        self.endpoints.end_requests_of_deleted_pods(|uid| uids.contains(uid));
    }

    /// Ends the requests to the engines of one deleted Pod.
    pub(crate) fn end_requests_of_deleted_pod(&self, uid: &str) {
        self.endpoints.end_requests_of_deleted_pod(uid);
    }

    /// Returns the current pools.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.get()
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

    /// Finds the use case of a request, draws its target model, and selects an endpoint. While all engines are busy, the request waits
    /// in the queue of its pool; while the endpoints of the pool are replaced, it waits for a moment.
    ///
    /// # Errors
    /// No pool serves the model, no endpoint is available, or the limits of the queue.
    pub(crate) async fn admit(&self, request: &AdmissionRequest<'_>) -> Result<Permit, RoutingError> {
        let start = Instant::now();
        let mut permit = match self.attempt(request) {
            Ok(Admission::Admitted(permit)) => permit,
            // Few requests wait; the future of the others stays small.
            result => Box::pin(self.admit_later(request, result)).await?,
        };
        let running = self.record_admission(request, &permit, start);
        let in_progress = self.demand.begin(&permit.route.pool);
        let ModelRoute { pool, flow, priority, .. } = &permit.route;
        pool.usage.record_admission(flow, *priority, permit.route.computed_tokens(), start);
        if let Some(peers) = self.peers.get() {
            peers.record_served(&permit.route);
        }
        let window = match request.model {
            RequestedModel::Name(_) => permit.route.objective_window().cloned(),
            RequestedModel::Target(_) | RequestedModel::Unknown => None,
        };
        let measurement = window.map(|window| Measurement::new(window, start));
        permit.records = Some(Box::new(Records::new(running, in_progress, measurement)));
        Ok(permit)
    }

    fn record_admission(&self, request: &AdmissionRequest<'_>, permit: &Permit, start: Instant) -> RunningRequest {
        let (route, info) = (&permit.route, request.info);
        let cached_bytes = permit.selection.result.cached_bytes;
        self.metrics.record_decision(permit.decision_seconds, cached_bytes, info.prompt_bytes());
        let model = match request.model {
            RequestedModel::Name(model) => model,
            RequestedModel::Target(_) | RequestedModel::Unknown => info.model.as_ref().map_or("", |model| &model.name),
        };
        self.metrics.record_request(model, &route.target_model, request.body.len(), start)
    }

    /// Records from now on what other replicas need to know of this one, `own`.
    pub fn enable_peers(&self, own: ReplicaId) {
        self.prefix_index.insert_log.enable();
        self.peers.get_or_init(|| PeerExchange::new(own));
    }

    /// Returns the message with the state of this replica for all peers, `None` if none is due. Uses the messages of peers, and
    /// forgets those that are too old at `now`. It is called every [`crate::PEER_UPDATE_INTERVAL`].
    pub fn peer_message(&self, now: Instant) -> Option<Vec<u8>> {
        self.peers.get()?.message(self.exchanged_state(&self.snapshot()), now)
    }

    /// Records messages of a peer that were received at `now`, the oldest first. The requests in the last one count from the next
    /// call of [`Self::peer_message`]. Invalid messages are counted.
    ///
    /// # Errors
    /// A message is invalid, so none is used, or there are too many peers.
    pub fn record_peer_messages(&self, messages: &[impl AsRef<[u8]>], now: Instant) -> Result<(), PeerMessageError> {
        let Some(peers) = self.peers.get() else { return Ok(()) };
        peers.record(messages, self.exchanged_state(&self.snapshot()), now).inspect_err(|_| {
            self.metrics.rejected_peer_messages.inc();
        })
    }

    fn exchanged_state<'a>(&'a self, snapshot: &'a Snapshot) -> ExchangedState<'a> {
        let Self { endpoints, queues, prefix_index, .. } = self;
        ExchangedState { endpoints, queues, prefix_index, snapshot }
    }

    /// Returns the metrics of all pools in the OpenMetrics text format.
    pub fn render_metrics(&self) -> String {
        let peers = self.peers.get().map(|peers| peers.summary(Instant::now())).unwrap_or_default();
        let dropped_lines = self.access_log.as_ref().map_or(0, AccessLog::dropped_lines);
        self.metrics.set_dropped_access_log_lines(dropped_lines);
        self.metrics.render(self.snapshot().pools.values(), &self.queues.flows(), &peers)
    }

    /// Admits a request whose first attempt had this result.
    async fn admit_later(
        &self,
        request: &AdmissionRequest<'_>,
        first: Result<Admission, RoutingError>,
    ) -> Result<Permit, RoutingError> {
        let admission = match first {
            Err(RoutingError::NoEndpointAvailable(_)) => self.interruptions.wait(|| self.attempt(request)).await?,
            result => result?,
        };
        match admission {
            Admission::Admitted(permit) => Ok(permit),
            Admission::Saturated(route) => {
                let (bytes, subset) = (request.body.len(), request.subset.cloned());
                self.queues.wait(route, bytes, subset, self.rng(), &self.metrics).await
            }
        }
    }

    /// Selects an endpoint like [`Self::admit`] for a request that waits in the engine if this is busy.
    ///
    /// # Errors
    /// No pool serves the model, or no endpoint is available.
    pub(crate) fn admit_now(&self, request: &AdmissionRequest<'_>) -> Result<Permit, RoutingError> {
        let (start, mut rng) = (Instant::now(), self.rng());
        let route = ModelRoute::resolve(request, &self.snapshot(), &mut rng)?;
        let eligibility = Eligibility { subset: request.subset, allows_saturated: true, ..Eligibility::default() };
        let selection = Selection::new(&route, &route.pool, eligibility, &mut rng);
        let selection = selection.map_err(|_| RoutingError::NoEndpointAvailable(route.pool.key.clone()))?;
        if let Some(peers) = self.peers.get() {
            peers.record_served(&route);
        }
        Ok(Permit::new(route, selection, start.elapsed()))
    }

    /// Admits a request unless it has to wait.
    fn attempt(&self, request: &AdmissionRequest<'_>) -> Result<Admission, RoutingError> {
        let (start, mut rng) = (Instant::now(), self.rng());
        let route = ModelRoute::resolve(request, &self.snapshot(), &mut rng)?;
        self.demand.record(&route.pool);
        // While no engine could run it, a request does not wait as long as those that wait for busy engines.
        if self.queues.waiting_requests(&route.pool.key) > 0 && route.pool.has_awake_endpoint(start) {
            return Ok(Admission::Saturated(route));
        }
        let eligibility = Eligibility { subset: request.subset, ..Eligibility::default() };
        match Selection::new(&route, &route.pool, eligibility, &mut rng) {
            Ok(selection) => Ok(Admission::Admitted(Permit::new(route, selection, start.elapsed()))),
            Err(Unavailable::Saturated) => Ok(Admission::Saturated(route)),
            // Its workload is scaled from zero.
            Err(Unavailable::NoEndpoint) if route.pool.scale_to_zero.is_some() && !route.pool.is_serving() => {
                Ok(Admission::Saturated(route))
            }
            Err(Unavailable::NoEndpoint) => Err(RoutingError::NoEndpointAvailable(route.pool.key.clone())),
        }
    }

    /// Returns what is known about the requests to a pool.
    pub(crate) fn activity(&self, pool: &Pool, idle: Duration) -> Activity {
        let now = Instant::now();
        let is_used = |endpoint: &Arc<Endpoint>| {
            let report = endpoint.state.last_report().filter(|report| now.duration_since(report.time) < MAX_REPORT_AGE);
            endpoint.state.requests() > 0
                || report.is_some_and(|report| report.other_requests(endpoint.state.peer_requests()) > 0.0)
        };
        Activity {
            waiting: self.queues.waiting_requests(&pool.key),
            is_serving: pool.is_serving(),
            has_unready_endpoint: pool.unready_endpoints() > 0,
            is_busy: self.demand.in_progress(&pool.key) > 0 || pool.ready_endpoints.iter().any(is_used),
            idle,
        }
    }

    /// Selects another endpoint for a request whose endpoint failed, and waits for one for a moment. A Pod that became ready while
    /// the request was in flight may replace the one that failed.
    ///
    /// # Errors
    /// [`RoutingError::NoEndpointAvailable`].
    pub(crate) async fn retry(&self, permit: &mut Permit) -> Result<(), RoutingError> {
        permit.failed.push(permit.selection.result.endpoint.address);
        let select = || {
            let pool = self.current_pool(permit);
            let pool = pool.as_ref().unwrap_or(&permit.route.pool);
            // The request has waited already, and its engine failed.
            let eligibility = Eligibility { failed: &permit.failed, subset: None, allows_saturated: true };
            let selection = Selection::new(&permit.route, pool, eligibility, &mut self.rng());
            selection.map_err(|_| RoutingError::NoEndpointAvailable(pool.key.clone()))
        };
        let selection = match select() {
            Err(RoutingError::NoEndpointAvailable(pool)) => {
                self.interruptions.record_failure(&pool);
                self.interruptions.wait(select).await?
            }
            result => result?,
        };
        permit.selection = selection;
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

    /// Returns a receiver of the states of the tasks that keep the snapshot up to date. It is notified when a task fails or is
    /// restarted.
    pub fn task_statuses(&self) -> watch::Receiver<TaskStatuses> {
        self.supervisor.statuses()
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

    /// Returns a copy of the generator from which the next requests derive theirs.
    pub(crate) fn next_rngs(&self) -> Rng {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a random number generator for one request, derived from the seed.
    pub(crate) fn rng(&self) -> Rng {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }
}

impl PoolStates for Scheduler {
    fn endpoint(&self, address: SocketAddr, pod_uid: &str) -> Arc<EndpointState> {
        self.endpoint_state(address, pod_uid)
    }

    fn scheduling(&self, policy: Option<SchedulingPolicy>) -> Arc<PoolScheduling> {
        let policy = policy.unwrap_or_else(|| self.default_policy.clone());
        Arc::new(PoolScheduling::new(policy, Arc::clone(&self.prefix_index)))
    }

    fn default_namespace(&self) -> &str {
        &self.default_namespace
    }
}

/// Logs endpoints of a pool that became ready or unready.
fn log_changes(old: Option<&Arc<Pool>>, new: Option<&Arc<Pool>>) {
    let Some(key) = old.or(new).map(|pool| &pool.key) else { return };
    let contains = |pool: Option<&Arc<Pool>>, endpoint: &Endpoint| {
        pool.and_then(|pool| pool.endpoint(endpoint.address)).is_some_and(|other| other.uid == endpoint.uid)
    };
    for endpoint in old.into_iter().flat_map(|pool| &pool.ready_endpoints).filter(|endpoint| !contains(new, endpoint)) {
        let Endpoint { address, pod, .. } = &**endpoint;
        tracing::info!(pool = %key, %address, %pod, "endpoint became unready");
    }
    for endpoint in new.into_iter().flat_map(|pool| &pool.ready_endpoints).filter(|endpoint| !contains(old, endpoint)) {
        let Endpoint { address, pod, .. } = &**endpoint;
        tracing::info!(pool = %key, %address, %pod, "endpoint became ready");
    }
}
