//! Selects an endpoint for each request, for both frontends.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use cluster::NamespacedName;
use fastrand::Rng;
use supervisor::Supervisor;
use tokio::time::Instant;
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

    /// Records what happened to the request on the selected endpoint. After a failure, the endpoint is scraped immediately: a
    /// dead engine fails fast and has an empty queue, so it would attract requests until the next scrape.
    pub(crate) fn record_outcome(&self, outcome: RequestOutcome) {
        let Endpoint { address, pod, state, .. } = &*self.selection.result.endpoint;
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
        result.endpoint.state.health.record_request(now);
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
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use http::StatusCode;
    use rstest::rstest;

    use super::*;
    use crate::{
        endpoint::{PromptTokenRange, tests::endpoint},
        engine_metrics::EngineMetrics,
        request, snapshot,
    };

    /// Returns a scheduler with a pool of `endpoints` and the default policy. Tests record the metrics of the endpoints.
    fn scheduler_of(endpoints: Vec<Arc<Endpoint>>) -> Scheduler {
        let scheduler = Scheduler::new(SchedulingPolicy::default(), 1);
        endpoints.iter().for_each(|endpoint| assert!(endpoint.state.begin_scraping()));
        let key = NamespacedName { namespace: "ns".to_owned(), name: "p".to_owned() };
        let scheduling = scheduler.default_scheduling();
        let pool = snapshot::tests::pool(key, endpoints);
        scheduler.replace(vec![Pool { allows_implicit_use_cases: true, scheduling, ..pool }]);
        scheduler
    }

    /// Returns a scheduler with a pool of one endpoint for prompts up to 2047 tokens, and one for prompts from 4097 tokens.
    fn scheduler() -> Scheduler {
        let endpoint =
            |number, min, max| Arc::new(Endpoint { prompt_tokens: PromptTokenRange { min, max }, ..endpoint(number) });
        scheduler_of(vec![endpoint(1, None, Some(2047)), endpoint(2, Some(4097), None)])
    }

    /// Admits a request with a prompt of `tokens`.
    fn admit(scheduler: &Scheduler, tokens: usize) -> Result<Permit, RoutingError> {
        let prompt = "x".repeat(tokens * request::BYTES_PER_TOKEN - 2);
        let body = format!(r#"{{"model":"m","prompt":"{prompt}"}}"#);
        let info = request::parse_request(body.as_bytes()).unwrap();
        let model = RequestedModel::Name("m");
        let request =
            AdmissionRequest { pool: None, model, body: body.as_bytes(), info: &info, path: "/v1/completions" };
        scheduler.admit(&request, |_| true)
    }

    fn pod(permit: &Permit) -> &str {
        &permit.selection.result.endpoint.pod
    }

    #[rstest]
    #[case::short(10, "pod-1", "pod-1")]
    #[case::upper_bound(2047, "pod-1", "pod-1")]
    #[case::no_match_uses_load(2048, "pod-1", "pod-2")]
    #[case::no_match_uses_load_of_other_endpoint(4096, "pod-2", "pod-1")]
    #[case::lower_bound(4097, "pod-2", "pod-2")]
    #[case::long(100_000, "pod-2", "pod-2")]
    fn prompts_are_routed_by_size_then_load(#[case] tokens: usize, #[case] busy: &str, #[case] expect: &str) {
        let scheduler = scheduler();
        let (_, pool) = scheduler.snapshot().pools.clone().pop_first().unwrap();
        let busy = pool.ready_endpoints.iter().find(|endpoint| endpoint.pod == busy).unwrap();
        let _busy = busy.state.begin(1_000_000);
        assert_eq!(pod(&admit(&scheduler, tokens).unwrap()), expect);
    }

    #[test]
    fn failed_request_moves_to_an_untried_endpoint() {
        let scheduler = scheduler();
        let mut permit = admit(&scheduler, 10).unwrap();
        let (_, pool) = scheduler.snapshot().pools.clone().pop_first().unwrap();
        let requests = || pool.ready_endpoints.iter().map(|endpoint| endpoint.state.requests()).collect::<Vec<_>>();
        assert_eq!((pod(&permit), requests(), scheduler.has_other_endpoint(&permit)), ("pod-1", vec![1, 0], true));
        scheduler.retry(&mut permit).unwrap();
        assert_eq!((pod(&permit), requests(), scheduler.has_other_endpoint(&permit)), ("pod-2", vec![0, 1], false));
        assert_eq!(permit.selection.explanation, "0 in flight, of 2 endpoints, after 1 failed");
        assert!(matches!(scheduler.retry(&mut permit), Err(RoutingError::NoEndpointAvailable(_))));
        drop(permit);
        assert_eq!(requests(), [0, 0]);
    }

    /// Returns a scheduler with a pool of one endpoint for each component type.
    fn scheduler_of_types(component_types: &[&str]) -> Scheduler {
        let scheduler = Scheduler::new(SchedulingPolicy::default(), 1);
        let endpoint = |(number, component_type): (u8, &&str)| {
            let labels = [("fusioninfer.io/component-type".to_owned(), (*component_type).to_owned())].into();
            Arc::new(Endpoint { labels, ..endpoint(number) })
        };
        let endpoints = (1..).zip(component_types).map(endpoint).collect();
        let pool = snapshot::tests::pool(NamespacedName::new("ns", "p"), endpoints);
        scheduler.replace(vec![Pool { allows_implicit_use_cases: true, ..pool }]);
        scheduler
    }

    fn prefill_pod(permit: &Permit) -> Option<&str> {
        permit.selection.result.prefill_endpoint.as_ref().map(|endpoint| endpoint.pod.as_str())
    }

    #[test]
    fn prompt_is_computed_by_the_prefiller_with_the_fewest_tokens_in_flight() {
        let scheduler = scheduler_of_types(&["prefiller", "decoder", "prefiller"]);
        let mut first = admit(&scheduler, 100).unwrap();
        let second = admit(&scheduler, 10).unwrap();
        let mut prefill_pods = [prefill_pod(&first).unwrap().to_owned(), prefill_pod(&second).unwrap().to_owned()];
        prefill_pods.sort();
        assert_eq!(([pod(&first), pod(&second)], prefill_pods), (["pod-2"; 2], ["pod-1", "pod-3"].map(str::to_owned)));
        first.record_response_start();
        assert_eq!(prefill_pod(&admit(&scheduler, 10).unwrap()), prefill_pod(&first), "its prompt is computed");
        let expect = format!("1 in flight, of 1 endpoint, prefill on {}", prefill_pod(&second).unwrap());
        assert_eq!(second.selection.explanation, expect);
    }

    #[rstest]
    #[case::no_prefiller(&["decoder", "worker"], true, true)]
    #[case::prefillers_only(&["prefiller", "prefiller"], false, false)]
    #[case::one_decoder(&["decoder", "prefiller"], true, false)]
    fn requests_are_never_sent_to_prefillers(
        #[case] component_types: &[&str],
        #[case] is_admitted: bool,
        #[case] is_retried: bool,
    ) {
        let scheduler = scheduler_of_types(component_types);
        assert_eq!(scheduler.snapshot().pools.first_key_value().unwrap().1.is_serving(), is_admitted);
        let permit = admit(&scheduler, 10);
        assert_eq!(permit.is_ok(), is_admitted);
        let Ok(mut permit) = permit else { return };
        assert_ne!(component_types[usize::from(pod(&permit).as_bytes()[4] - b'1')], "prefiller");
        assert_eq!(
            (scheduler.has_other_endpoint(&permit), scheduler.retry(&mut permit).is_ok()),
            (is_retried, is_retried)
        );
    }

    /// Returns a scheduler with a pool of three endpoints, and their states.
    fn scheduler_of_three() -> (Scheduler, Vec<Arc<EndpointState>>) {
        let scheduler = Scheduler::new(SchedulingPolicy::default(), 1);
        let endpoints: Vec<_> = (1..=3).map(|number| Arc::new(endpoint(number))).collect();
        let states = endpoints.iter().map(|endpoint| Arc::clone(&endpoint.state)).collect();
        let pool = snapshot::tests::pool(NamespacedName::new("ns", "p"), endpoints);
        scheduler.replace(vec![Pool { allows_implicit_use_cases: true, ..pool }]);
        (scheduler, states)
    }

    /// Returns the Pods that 30 requests are sent to.
    fn selected_pods(scheduler: &Scheduler) -> BTreeSet<String> {
        (0..30).filter_map(|_| Some(pod(&admit(scheduler, 10).ok()?).to_owned())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn sleeping_engine_takes_no_request() {
        let (scheduler, states) = scheduler_of_three();
        let sleep = |index: usize, is_asleep| states[index].health.record_sleep(is_asleep, Instant::now());
        sleep(0, true);
        assert_eq!(selected_pods(&scheduler), ["pod-2", "pod-3"].map(str::to_owned).into());
        [1, 2].into_iter().for_each(|index| sleep(index, true));
        assert!(matches!(admit(&scheduler, 10), Err(RoutingError::NoEndpointAvailable(_))), "it would hang");
        sleep(2, false);
        let mut permit = admit(&scheduler, 10).unwrap();
        assert_eq!((pod(&permit), scheduler.has_other_endpoint(&permit)), ("pod-3", false));
        assert!(scheduler.retry(&mut permit).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn failed_endpoint_is_ejected_and_probed_by_one_request() {
        let (scheduler, states) = scheduler_of_three();
        let mut permits: Vec<Permit> = (0..3).map(|_| admit(&scheduler, 10).unwrap()).collect();
        permits.sort_by(|left, right| pod(left).cmp(pod(right)));
        permits.iter().for_each(|permit| permit.record_outcome(RequestOutcome::NotConnected));
        assert_eq!(selected_pods(&scheduler).len(), 3, "if all failed, requests are sent to any of them");
        let ok = RequestOutcome::Responded(StatusCode::OK);
        permits[1..].iter().for_each(|permit| permit.record_outcome(ok));
        assert_eq!(selected_pods(&scheduler), ["pod-2", "pod-3"].map(str::to_owned).into());
        tokio::time::advance(Duration::from_secs(1)).await;
        let _busy: Vec<_> = states[1..].iter().map(|state| state.begin(1_000_000)).collect();
        drop(permits);
        let probe = admit(&scheduler, 10).unwrap();
        assert_eq!(pod(&probe), "pod-1");
        assert_eq!(selected_pods(&scheduler), ["pod-2", "pod-3"].map(str::to_owned).into());
        probe.record_outcome(ok);
        drop(probe);
        assert_eq!(selected_pods(&scheduler), ["pod-1".to_owned()].into());
    }

    #[tokio::test(start_paused = true)]
    async fn endpoint_that_does_not_serve_a_model_is_remembered() {
        let (scheduler, _) = scheduler_of_three();
        let not_found = RequestOutcome::Responded(StatusCode::NOT_FOUND);
        let mut permit = admit(&scheduler, 10).unwrap();
        let first = pod(&permit).to_owned();
        permit.record_outcome(not_found);
        assert!(scheduler.has_other_endpoint(&permit) && !selected_pods(&scheduler).contains(&first));
        for _ in 0..2 {
            scheduler.retry(&mut permit).unwrap();
            permit.record_outcome(not_found);
        }
        assert!(!scheduler.has_other_endpoint(&permit));
        drop(permit);
        assert_eq!(selected_pods(&scheduler).len(), 3, "the engines answer requests for a model that none serves");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(selected_pods(&scheduler).len(), 3);
    }

    /// Sends `count` requests with a prompt of `tokens`, which remain in flight. After each, the two engines report
    /// `waiting` requests, without ours. Returns the number of requests per engine.
    fn spread(count: usize, tokens: usize, cached_by: Option<u8>, waiting: [f64; 2]) -> [usize; 2] {
        let endpoints = vec![Arc::new(endpoint(1)), Arc::new(endpoint(2))];
        let scheduler = scheduler_of(endpoints.clone());
        let report = || {
            for (endpoint, waiting) in endpoints.iter().zip(waiting) {
                let metrics = EngineMetrics { waiting: Some(waiting), running: Some(0.0), ..EngineMetrics::default() };
                endpoint.state.record_metrics(metrics, Instant::now());
            }
        };
        if let Some(number) = cached_by {
            admit(&scheduler, tokens).unwrap().record_served_endpoint(([10, 0, 0, number], 8000).into());
        }
        report();
        let permits: Vec<Permit> = (0..count)
            .map(|_| {
                let permit = admit(&scheduler, tokens).unwrap();
                report();
                permit
            })
            .collect();
        let count = |name| permits.iter().filter(|permit| pod(permit) == name).count();
        [count("pod-1"), count("pod-2")]
    }

    /// A prefix of 18 KB does not outweigh 50 waiting requests.
    #[tokio::test]
    async fn requests_leave_a_busy_endpoint_that_caches_their_prefix() {
        for cached_by in [None, Some(1), Some(2)] {
            assert_eq!(spread(20, 18_000 / request::BYTES_PER_TOKEN, cached_by, [50.0, 0.0]), [0, 20]);
        }
    }

    /// Gauges do not contain the requests in flight yet.
    #[rstest]
    #[case::short(10, None)]
    #[case::long(2_000, None)]
    #[case::cached(100, Some(1))]
    #[tokio::test]
    async fn concurrent_requests_are_spread_before_gauges_count_them(
        #[case] tokens: usize,
        #[case] cached_by: Option<u8>,
    ) {
        let spread = spread(60, tokens, cached_by, [0.0, 0.0]);
        assert!(spread.iter().all(|count| (25..=35).contains(count)), "{spread:?}");
    }

    /// Endpoints without metrics, and with outdated ones, are selected by the requests in flight.
    // spec: GW-27
    #[tokio::test(start_paused = true)]
    async fn outdated_and_missing_metrics_never_block_a_pool() {
        let endpoints = vec![Arc::new(endpoint(1)), Arc::new(endpoint(2))];
        let scheduler = scheduler_of(endpoints.clone());
        let metrics = EngineMetrics {
            waiting: Some(1e9),
            running: Some(1e9),
            kv_cache_usage: Some(1.0),
            ..EngineMetrics::default()
        };
        endpoints[0].state.record_metrics(metrics, Instant::now());
        for (age, expect) in [(0, 0), (10, 0), (60, 20)] {
            tokio::time::advance(Duration::from_secs(age)).await;
            let permits: Vec<Permit> = (0..40).map(|_| admit(&scheduler, 10).unwrap()).collect();
            assert_eq!(permits.iter().filter(|permit| pod(permit) == "pod-1").count().div_ceil(2) * 2, expect);
        }
        scheduler.snapshot().pools.values().for_each(|pool| assert_eq!(pool.ready_endpoints.len(), 2));
    }

    #[rstest]
    #[case::fallback(2, [0, 1])]
    #[case::not_in_the_pool(9, [1, 0])]
    fn request_counts_on_the_endpoint_that_serves_it(#[case] number: u8, #[case] expect: [usize; 2]) {
        let scheduler = scheduler();
        let mut permit = admit(&scheduler, 10).unwrap();
        let (_, pool) = scheduler.snapshot().pools.clone().pop_first().unwrap();
        let count = |endpoint: &Arc<Endpoint>| (endpoint.state.requests(), endpoint.state.tokens() > 0);
        permit.record_served_endpoint(endpoint(number).address);
        let counts: Vec<_> = pool.ready_endpoints.iter().map(count).collect();
        assert_eq!(counts, expect.map(|requests| (requests, requests > 0)));
        drop(permit);
        assert!(pool.ready_endpoints.iter().all(|endpoint| count(endpoint) == (0, false)));
    }

    #[tokio::test]
    async fn state_of_an_endpoint_survives_replacement() {
        let scheduler = Scheduler::new(SchedulingPolicy::default(), 0);
        let address = "127.0.0.1:1".parse().unwrap();
        let running = scheduler.endpoint_state(address, "uid").begin(10);
        scheduler.replace(Vec::new());
        let state = |uid| scheduler.endpoint_state(address, uid);
        assert_eq!((state("uid").requests(), state("uid").tokens(), state("other").requests()), (1, 10, 0));
        drop(running);
        assert_eq!((state("uid").requests(), state("uid").tokens()), (0, 0));
    }
}
