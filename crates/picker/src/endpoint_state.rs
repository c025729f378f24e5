//! State of an endpoint: its requests in flight, and what scraping the engine found.

mod metrics_report;
mod peer_requests;
mod prefix_caches;

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
};

use api::inference::ModelServer;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    concurrency_limit::{ConcurrencyLimit, Load},
    endpoint_health::EndpointHealth,
    engine_metrics::{EngineMetrics, parse_metrics},
    peers::{EndpointLoad, FairShare, ReportedRequests, own_limit},
    prefix_index::{PrefixCache, PrefixConfig, PrefixIndex},
    served_models::ServedModels,
};
use peer_requests::PeerRequests;
use prefix_caches::PrefixCaches;

pub(crate) use metrics_report::MetricsReport;

/// Number of consecutive scrapes without a report after which an engine that has never reported has no limit.
const MAX_MISSING_REPORTS: usize = 3;

/// Learns when an engine may run more requests.
pub(crate) trait CapacityListener: std::fmt::Debug + Send + Sync {
    /// Called after a request has ended, and after each report of an endpoint.
    fn capacity_changed(&self);
}

/// State of one endpoint, which is retained when its Pod object changes.
#[derive(Debug, Default)]
pub struct EndpointState {
    requests: AtomicUsize,
    tokens: AtomicU64,
    /// Tokens that the engine has yet to compute for the requests in flight.
    remaining_tokens: AtomicU64,
    /// Highest number of requests in flight since the last report.
    peak_requests: AtomicUsize,
    /// Requests of peers.
    peers: PeerRequests,
    /// How many requests of this process the engine runs at the same time, plus 1; 0 if it does not report that.
    request_limit: AtomicUsize,
    /// The same for the requests of this process and its peers together.
    shared_request_limit: AtomicUsize,
    /// The requests in the last report of the engine, if it reports them.
    reported_requests: Mutex<Option<ReportedRequests>>,
    concurrency: Mutex<ConcurrencyLimit>,
    /// Number of consecutive scrapes without a report.
    missing_reports: AtomicUsize,
    /// The queues of pools with this endpoint in which requests wait.
    capacity_listeners: Mutex<Vec<Weak<dyn CapacityListener>>>,
    has_capacity_listeners: AtomicBool,
    /// What the engine reported at the last scrape.
    last_report: Mutex<Option<MetricsReport>>,
    is_unreachable: AtomicBool,
    /// Whether requests may be sent to the endpoint.
    pub(crate) health: EndpointHealth,
    /// Cancelled when the Pod of the endpoint was deleted: no response of its engine will continue.
    pub(crate) pod_deleted: CancellationToken,
    /// Models that the engine lists.
    pub(crate) served_models: ServedModels,
    /// Model server of the Pod, whose metrics are read.
    model_server: Mutex<ModelServer>,
    /// Whether the endpoint is being scraped.
    is_scraped: AtomicBool,
    prefix_caches: PrefixCaches,
    /// Notified to request a scrape before the next one is due.
    pub(crate) scrape_requested: Arc<Notify>,
}

/// Estimated tokens of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RequestTokens {
    /// Prompt and maximum output.
    pub(crate) total: u64,
    /// Tokens of the prompt that the engine has not cached.
    pub(crate) uncached: u64,
    /// Output that counts as work of the engine.
    pub(crate) output: u64,
}

/// Guard that counts a request as in flight until the guard is dropped.
#[derive(Debug)]
pub struct InFlight {
    state: Arc<EndpointState>,
    tokens: u64,
    output_tokens: u64,
    /// Uncached tokens of the prompt until the engine responds, then 0.
    uncached_tokens: AtomicU64,
}

// === impl EndpointState ===

impl EndpointState {
    /// Returns the number of requests in flight of this process and its peers.
    pub fn requests(&self) -> usize {
        self.requests.load(Relaxed).saturating_add(self.peer_requests())
    }

    /// Returns the estimated total number of tokens of these requests.
    pub fn tokens(&self) -> u64 {
        self.tokens.load(Relaxed).saturating_add(self.peers.load().tokens)
    }

    /// Returns the estimated number of tokens that the engine has yet to compute for these requests.
    pub(crate) fn remaining_tokens(&self) -> u64 {
        self.remaining_tokens.load(Relaxed).saturating_add(self.peers.load().remaining_tokens)
    }

    /// Returns the requests in flight of this process.
    pub(crate) fn own_load(&self) -> EndpointLoad {
        EndpointLoad {
            requests: self.requests.load(Relaxed),
            tokens: self.tokens.load(Relaxed),
            remaining_tokens: self.remaining_tokens.load(Relaxed),
        }
    }

    /// Returns the number of requests in flight of peers.
    pub(crate) fn peer_requests(&self) -> usize {
        self.peers.load().requests
    }

    /// Records the requests in flight of all peers, and the share of this process. `has_lost_peer` is whether the state of a peer
    /// has expired: what it has in flight counts as requests of other clients then.
    pub(crate) fn record_peers(&self, load: EndpointLoad, share: FairShare, has_lost_peer: bool) {
        self.peers.record(load, share);
        if has_lost_peer {
            self.peers.take_peak();
            let mut last_report = self.last_report.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(report) = &mut *last_report {
                report.peer_requests = report.peer_requests.min(load.requests);
                report.peak_peer_requests = report.peak_peer_requests.min(load.requests);
                if report.metrics.capacity().is_some() {
                    let concurrency = self.concurrency.lock().unwrap_or_else(PoisonError::into_inner);
                    self.set_shared_limit(Some(concurrency.share(report.known_requests(), report.others())));
                }
            }
        }
        let Some(before) = self.request_limit() else { return };
        self.set_shared_limit(self.shared_request_limit.load(Relaxed).checked_sub(1));
        let after = self.request_limit().unwrap_or(before);
        if after > before && share.is_contended {
            // Replicas that wait for the same engine use more of it only after its reports, which show what all of them sent.
            self.request_limit.store(before.saturating_add(1), Relaxed);
        } else if after > before {
            self.notify_capacity_listeners();
        }
    }

    /// Sets how many requests of this process and its peers the engine runs at the same time, if it is known.
    fn set_shared_limit(&self, limit: Option<usize>) {
        let stored = |limit: Option<usize>| limit.map_or(0, |limit| limit.saturating_add(1));
        let own_limit = |limit| {
            let reported = *self.reported_requests.lock().unwrap_or_else(PoisonError::into_inner);
            own_limit(limit, self.requests.load(Relaxed), self.peer_requests(), self.peers.fair_share(), reported)
        };
        self.shared_request_limit.store(stored(limit), Relaxed);
        self.request_limit.store(stored(limit.map(own_limit)), Relaxed);
    }

    /// Counts a request with an uncached prompt of `tokens` as in flight until the returned guard is dropped.
    pub fn begin(self: &Arc<Self>, tokens: u64) -> InFlight {
        self.begin_request(RequestTokens { total: tokens, uncached: tokens, output: 0 })
    }

    /// Counts a request as in flight until the returned guard is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>, tokens: RequestTokens) -> InFlight {
        let RequestTokens { total, uncached, output } = tokens;
        let requests = self.requests.fetch_add(1, Relaxed).saturating_add(1);
        self.peak_requests.fetch_max(requests, Relaxed);
        self.tokens.fetch_add(total, Relaxed);
        self.remaining_tokens.fetch_add(uncached + output, Relaxed);
        let uncached_tokens = AtomicU64::new(uncached);
        InFlight { state: Arc::clone(self), tokens: total, output_tokens: output, uncached_tokens }
    }

    /// Returns whether another request would wait in the engine.
    pub(crate) fn is_saturated(&self) -> bool {
        // Ordered after the addition of a listener, which otherwise might miss the end of a request.
        self.request_limit().is_some_and(|limit| self.requests.load(SeqCst) >= limit)
    }

    /// Returns whether another request would exceed `share` of the requests that the engine runs at the same time. An idle engine
    /// runs one in any case.
    pub(crate) fn exceeds_share(&self, share: f64) -> bool {
        let limit = |limit: usize| ((limit as f64 * share) as usize).max(1).min(limit);
        self.request_limit().is_some_and(|all| self.requests.load(SeqCst) >= limit(all))
    }

    /// Returns how many requests of this process the engine runs at the same time, if it is known.
    pub(crate) fn request_limit(&self) -> Option<usize> {
        self.request_limit.load(Relaxed).checked_sub(1)
    }

    /// Returns how many requests of this process and its peers the engine runs at the same time, if it is known: those of the peers, and
    /// how many this process may have in flight beside them. The limit of [`Self::requests`].
    pub(crate) fn total_request_limit(&self) -> Option<usize> {
        self.request_limit().map(|limit| limit.saturating_add(self.peer_requests()))
    }

    /// Returns how many requests the engine runs at the same time, if its reports have shown it.
    pub(crate) fn learned_limit(&self) -> Option<usize> {
        self.concurrency.lock().unwrap_or_else(PoisonError::into_inner).learned()
    }

    /// Uses a limit until the first report of the engine, so that it does not get all waiting requests at once.
    pub(crate) fn assume_limit(&self, limit: ConcurrencyLimit) {
        let last_report = self.last_report.lock().unwrap_or_else(PoisonError::into_inner);
        if last_report.is_none() {
            self.set_shared_limit(Some(limit.get()));
            *self.concurrency.lock().unwrap_or_else(PoisonError::into_inner) = limit;
        }
    }

    /// Calls `listener` when the engine may run more requests, until it is dropped.
    pub(crate) fn add_capacity_listener(&self, listener: &Weak<dyn CapacityListener>) {
        let mut listeners = self.capacity_listeners.lock().unwrap_or_else(PoisonError::into_inner);
        if !listeners.iter().any(|existing| std::ptr::addr_eq(existing.as_ptr(), listener.as_ptr())) {
            listeners.retain(|existing| existing.strong_count() > 0);
            listeners.push(Weak::clone(listener));
            self.has_capacity_listeners.store(true, SeqCst);
        }
    }

    fn notify_capacity_listeners(&self) {
        if self.has_capacity_listeners.load(SeqCst) {
            let listeners = {
                let mut listeners = self.capacity_listeners.lock().unwrap_or_else(PoisonError::into_inner);
                // The first one takes the capacity, so another one is first the next time.
                let is_shared = listeners.len() > 1;
                listeners.rotate_left(usize::from(is_shared));
                listeners.clone()
            };
            listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.capacity_changed());
        }
    }

    /// Records that the caller scrapes the endpoint from now on. Returns whether nothing scraped it before.
    pub fn begin_scraping(&self) -> bool {
        !self.is_scraped.swap(true, Relaxed)
    }

    /// Returns the cache of the endpoint in `index`, the index of the process, for a configuration.
    pub(crate) fn prefix_cache(&self, config: &PrefixConfig, index: &PrefixIndex) -> Arc<PrefixCache> {
        let tokens = self.last_report().and_then(|report| report.metrics.prefix_cache_tokens);
        self.prefix_caches.get_or_add(config, index, tokens)
    }

    /// Returns the caches of the endpoint, and the block size of each.
    pub(crate) fn prefix_caches(&self) -> Vec<(usize, Arc<PrefixCache>)> {
        self.prefix_caches.all()
    }

    /// Returns what the engine reported at the last scrape.
    pub(crate) fn last_report(&self) -> Option<MetricsReport> {
        self.last_report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the metrics of a scrape, in the Prometheus text format.
    pub fn record_metrics_page(&self, page: &str, now: Instant) {
        self.record_metrics(parse_metrics(page, self.model_server()), now);
    }

    /// Returns the model server of the Pod.
    pub(crate) fn model_server(&self) -> ModelServer {
        *self.model_server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the model server of the Pod.
    pub(crate) fn set_model_server(&self, model_server: ModelServer) {
        *self.model_server.lock().unwrap_or_else(PoisonError::into_inner) = model_server;
    }

    /// Records the metrics of a scrape.
    pub(crate) fn record_metrics(&self, metrics: EngineMetrics, now: Instant) {
        self.missing_reports.store(0, Relaxed);
        self.health.record_sleep(metrics.is_asleep, now);
        let prefix_cache_tokens = metrics.prefix_cache_tokens;
        let peak_requests = self.peak_requests.swap(self.requests.load(Relaxed), Relaxed);
        let mut last_report = self.last_report.lock().unwrap_or_else(PoisonError::into_inner);
        let peak_peer_requests = self.peers.take_peak();
        let (previous_peak, previous_peer_peak) =
            last_report.as_ref().map_or((0, 0), |report| (report.peak_requests, report.peak_peer_requests));
        let own_requests = peak_requests.max(previous_peak);
        let peer_requests = peak_peer_requests.max(previous_peer_peak);
        let metrics = Arc::new(metrics);
        let report =
            MetricsReport { metrics, own_requests, peer_requests, peak_requests, peak_peer_requests, time: now };
        self.learn_limit(&report);
        *last_report = Some(report);
        drop(last_report);
        self.prefix_caches.limit(prefix_cache_tokens);
        self.notify_capacity_listeners();
    }

    /// Records that the engine did not report: the requests of others are unknown, and after some time also its limit, if it never
    /// reported it. An engine that has just started may be too busy to respond.
    pub(crate) fn record_missing_report(&self) {
        let last_report = self.last_report.lock().unwrap_or_else(PoisonError::into_inner);
        let is_limited = last_report.as_ref().is_some_and(|report| report.metrics.capacity().is_some());
        let limit = || self.concurrency.lock().unwrap_or_else(PoisonError::into_inner).get();
        let missing_reports = self.missing_reports.fetch_add(1, Relaxed).saturating_add(1);
        if is_limited {
            self.set_shared_limit(Some(limit()));
        } else if missing_reports >= MAX_MISSING_REPORTS {
            self.set_shared_limit(None);
        }
        drop(last_report);
        self.notify_capacity_listeners();
    }

    fn learn_limit(&self, report: &MetricsReport) {
        let capacity = report.metrics.capacity();
        *self.reported_requests.lock().unwrap_or_else(PoisonError::into_inner) =
            capacity.map(|(running, waiting)| ReportedRequests { running, waiting });
        let Some((running, waiting)) = capacity else {
            self.set_shared_limit(None);
            return;
        };
        let others = report.others();
        // A peer may claim requests that the engine does not run: they must not raise its limit.
        let peers = report.peak_peer_requests.min(running.saturating_add(waiting));
        let peak = report.peak_requests.saturating_add(peers).saturating_add(others);
        let mut concurrency = self.concurrency.lock().unwrap_or_else(PoisonError::into_inner);
        concurrency.record(Load { running, waiting, peak }, report.time);
        self.set_shared_limit(Some(concurrency.share(report.known_requests(), others)));
    }

    /// Returns whether the last scrape could not connect to the endpoint, although the Pod is still reported as ready.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.is_unreachable.load(Relaxed)
    }

    /// Records whether connections to the endpoint fail. Returns whether that changed.
    pub(crate) fn record_unreachable(&self, is_unreachable: bool) -> bool {
        self.is_unreachable.swap(is_unreachable, Relaxed) != is_unreachable
    }
}

// === impl InFlight ===

impl InFlight {
    /// Counts the request as in flight on another endpoint from now on.
    pub(crate) fn move_to(&mut self, state: &Arc<EndpointState>) {
        let uncached = self.uncached_tokens.load(Relaxed);
        *self = state.begin_request(RequestTokens { total: self.tokens, uncached, output: self.output_tokens });
    }

    /// Records that the engine has computed the prompt, because it sent a part of the response.
    pub(crate) fn record_first_byte(&self) {
        let uncached = self.uncached_tokens.swap(0, Relaxed);
        self.state.remaining_tokens.fetch_sub(uncached, Relaxed);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.record_first_byte();
        self.state.remaining_tokens.fetch_sub(self.output_tokens, Relaxed);
        self.state.tokens.fetch_sub(self.tokens, Relaxed);
        self.state.requests.fetch_sub(1, SeqCst);
        self.state.notify_capacity_listeners();
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn metrics(running: f64, waiting: f64) -> EngineMetrics {
        EngineMetrics { running: Some(running), waiting: Some(waiting), ..EngineMetrics::default() }
    }

    fn other_requests(state: &EndpointState, metrics: EngineMetrics) -> f64 {
        state.record_metrics(metrics, Instant::now());
        state.last_report().unwrap().other_requests(state.peer_requests())
    }

    #[test]
    fn requests_of_other_clients_are_those_that_exceed_our_own() {
        let state = Arc::new(EndpointState::default());
        let own: Vec<InFlight> = (0..3).map(|_| state.begin(10)).collect();
        assert_eq!(other_requests(&state, metrics(0.0, 0.0)), 0.0, "the engine has not counted them yet");
        assert_eq!(other_requests(&state, metrics(2.0, 5.0)), 4.0);
        drop(own);
        for others in [0.0, 0.0, 3.0] {
            assert_eq!(other_requests(&state, metrics(3.0, 0.0)), others, "the engine may count them for a while");
        }
        assert_eq!(other_requests(&state, EngineMetrics::default()), 0.0, "an engine without metrics");
    }

    /// The engine runs three requests, and two of another client wait. The share of this process is two requests.
    #[test]
    fn endpoint_is_saturated_at_the_limit_that_it_reported() {
        let state = Arc::new(EndpointState::default());
        let mut own: Vec<InFlight> = (0..3).map(|_| state.begin(10)).collect();
        assert!(!state.is_saturated(), "the limit is unknown");
        for _ in 0..2 {
            state.record_metrics(metrics(3.0, 2.0), Instant::now());
        }
        assert!(state.is_saturated());
        let mut saturated = || {
            own.pop();
            state.is_saturated()
        };
        assert_eq!([(); 2].map(|()| saturated()), [true, false]);
        assert_eq!(state.requests(), 1);
        own.extend((0..9).map(|_| state.begin(10)));
        state.record_metrics(EngineMetrics::default(), Instant::now());
        assert!(!state.is_saturated(), "the engine reports nothing any more");
    }

    /// Columns: number of requests in flight, and whether the endpoint is saturated before and after its first report.
    #[rstest]
    #[case::below_the_limit(7, [false, false])]
    #[case::at_the_limit(8, [true, false])]
    #[case::beyond_the_limit(9, [true, false])]
    fn limit_is_assumed_until_the_first_report(#[case] requests: usize, #[case] expect: [bool; 2]) {
        let state = Arc::new(EndpointState::default());
        state.assume_limit(ConcurrencyLimit::new(8));
        let _own: Vec<InFlight> = (0..requests).map(|_| state.begin(10)).collect();
        let before = state.is_saturated();
        state.record_missing_report();
        assert_eq!(state.is_saturated(), before, "it may be busy");
        (1..MAX_MISSING_REPORTS).for_each(|_| state.record_missing_report());
        assert!(!state.is_saturated(), "an engine without metrics has no limit");
        for _ in 0..2 {
            state.record_metrics(metrics(requests as f64, 0.0), Instant::now());
        }
        assert_eq!([before, state.is_saturated()], expect);
        assert_eq!(state.learned_limit(), None);
        state.assume_limit(ConcurrencyLimit::new(1));
        assert!(!state.is_saturated(), "its reports are known");
    }

    /// The engine runs ten requests at the same time. The peers' updates arrive after the report, before it, and not at all.
    #[test]
    fn requests_of_peers_are_counted_once() {
        let state = Arc::new(EndpointState::default());
        let peers = |requests| EndpointLoad { requests, tokens: 100, remaining_tokens: 40 };
        let _own = state.begin_request(RequestTokens { total: 10, uncached: 3, output: 4 });
        assert_eq!(other_requests(&state, metrics(3.0, 0.0)), 2.0, "the engine reports them before the peers do");
        state.record_peers(peers(2), FairShare::default(), false);
        assert_eq!(state.last_report().unwrap().other_requests(state.peer_requests()), 0.0);
        assert_eq!((state.requests(), state.tokens(), state.remaining_tokens()), (3, 110, 47));
        assert_eq!(other_requests(&state, metrics(3.0, 1.0)), 1.0);
        state.record_peers(EndpointLoad::default(), FairShare::default(), false);
        for others in [0.0, 0.0, 2.0] {
            assert_eq!(other_requests(&state, metrics(3.0, 0.0)), others, "the engine may count them for a while");
        }
        assert_eq!(state.own_load(), EndpointLoad { requests: 1, tokens: 10, remaining_tokens: 7 });
    }

    /// An engine with two slots whose limit is known. Peers occupy some, and their requests end.
    #[test]
    fn peers_use_a_part_of_the_limit() {
        let state = Arc::new(EndpointState::default());
        let peers = |requests, fraction, is_contended| {
            let load = EndpointLoad { requests, ..EndpointLoad::default() };
            state.record_peers(load, FairShare { fraction, is_contended }, false);
            state.request_limit()
        };
        assert_eq!(peers(2, 0.0, false), None, "the limit is unknown");
        state.assume_limit(ConcurrencyLimit::new(2));
        let limits = [0, 1, 2, 5].map(|requests| peers(requests, 0.0, false));
        assert_eq!(limits, [2, 1, 0, 0].map(Some));
        let totals = [0, 1, 2, 5].map(|requests| {
            peers(requests, 0.0, false);
            state.total_request_limit()
        });
        assert_eq!(totals, [2, 2, 2, 5].map(Some));
        assert!(state.is_saturated() && state.exceeds_share(0.9));
        assert_eq!(peers(1, 0.5, true), Some(0), "the limit grows only with a report while peers wait");
        state.assume_limit(ConcurrencyLimit::new(2));
        assert_eq!(state.request_limit(), Some(1));
        let _own = state.begin(10);
        assert_eq!([peers(1, 0.5, true), peers(2, 0.5, true), peers(1, 1.0, false)], [1, 0, 1].map(Some));
    }

    /// The limit grows with the requests of peers if the engine runs them. Columns: requests that a peer claims, those that the
    /// engine runs meanwhile, and its limit afterwards.
    #[rstest]
    #[case::engine_runs_them(256, 256, 257)]
    #[case::claimed(100_000, 10, 256)]
    #[case::claimed_at_an_idle_engine(100_000, 0, 256)]
    fn peers_raise_the_limit_by_requests_that_the_engine_runs(
        #[case] claimed: usize,
        #[case] running: usize,
        #[case] expect: usize,
    ) {
        let state = Arc::new(EndpointState::default());
        for (claimed, running) in [(claimed, running), (0, 0)] {
            state.record_peers(
                EndpointLoad { requests: claimed, ..EndpointLoad::default() },
                FairShare::default(),
                false,
            );
            (0..50).for_each(|_| state.record_metrics(metrics(running as f64, 0.0), Instant::now()));
        }
        assert_eq!(state.request_limit(), Some(expect));
    }

    #[test]
    fn claims_of_peers_leave_one_request_to_an_idle_engine() {
        let state = Arc::new(EndpointState::default());
        state.record_metrics(metrics(0.0, 0.0), Instant::now());
        let claimed = EndpointLoad { requests: 100_000, ..EndpointLoad::default() };
        let priority_of_peers = FairShare { fraction: 0.0, is_contended: true };
        for share in [FairShare::default(), priority_of_peers] {
            state.record_peers(claimed, share, false);
            assert!(!state.is_saturated() && !state.exceeds_share(0.5));
            let own = state.begin(10);
            assert!(state.is_saturated());
            drop(own);
            assert!(!state.is_saturated());
        }
        state.record_metrics(metrics(250.0, 6.0), Instant::now());
        assert!(state.is_saturated(), "the engine reports the requests");
    }

    /// The engine runs two requests of this process and two of a peer whose messages stop.
    #[test]
    fn requests_of_a_lost_peer_are_those_of_other_clients() {
        let state = Arc::new(EndpointState::default());
        state.assume_limit(ConcurrencyLimit::new(8));
        let _own = [state.begin(10), state.begin(10)];
        state.record_peers(EndpointLoad { requests: 2, ..EndpointLoad::default() }, FairShare::default(), false);
        for _ in 0..2 {
            assert_eq!(other_requests(&state, metrics(4.0, 0.0)), 0.0);
        }
        assert_eq!(state.request_limit(), Some(6));
        state.record_peers(EndpointLoad::default(), FairShare::default(), true);
        assert_eq!(state.last_report().unwrap().other_requests(0), 2.0);
        assert_eq!((state.requests(), state.request_limit()), (2, Some(6)), "they still occupy the engine");
    }

    #[test]
    fn prompt_remains_until_the_first_byte_and_output_until_the_end() {
        let state = Arc::new(EndpointState::default());
        let request = state.begin_request(RequestTokens { total: 1_000, uncached: 300, output: 50 });
        let remaining = || (state.remaining_tokens(), state.tokens(), state.requests());
        assert_eq!(remaining(), (350, 1_000, 1));
        for _ in 0..2 {
            request.record_first_byte();
            assert_eq!(remaining(), (50, 1_000, 1));
        }
        drop(request);
        assert_eq!(remaining(), (0, 0, 0));
        drop(state.begin(10));
        assert_eq!(remaining(), (0, 0, 0), "without a first byte");
    }
}
