//! The queues of the pools whose engines are busy. A request waits here instead of in an engine, where it would be bound to this engine
//! and to the order of arrival.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
};

use cluster::NamespacedName;
use fastrand::Rng;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::{
    current_snapshot::CurrentSnapshot, eligibility::Eligibility, model_route::ModelRoute, permit::Permit,
    selection::Selection,
};
use crate::{
    endpoint_state::CapacityListener,
    endpoint_subset::EndpointSubset,
    metrics::{Metrics, QueueOutcome},
    peers::{FlowKey, ServedTokens},
    request_queue::{QueueFull, QueueSize, QueuedFlow, QueuedRequest, RequestId, RequestQueue},
    routing_error::RoutingError,
    snapshot::Pool,
};

/// The queues of all pools with requests that had to wait.
#[derive(Debug)]
pub(super) struct PoolQueues {
    queues: Mutex<BTreeMap<NamespacedName, Arc<PoolQueue>>>,
    snapshot: CurrentSnapshot,
    waiting: Arc<Waiting>,
}

/// The requests in all queues.
#[derive(Debug)]
struct Waiting {
    /// Their number, so that requests look for a queue only if there is one.
    requests: AtomicUsize,
    /// Size of their bodies.
    bytes: AtomicU64,
    /// Memory for the bodies of all requests.
    memory: u64,
}

/// The queue of one pool.
#[derive(Debug)]
struct PoolQueue {
    pool: NamespacedName,
    snapshot: CurrentSnapshot,
    requests: Mutex<RequestQueue<WaitingRequest>>,
    /// Number of `requests`.
    length: AtomicUsize,
    /// The requests in all queues.
    waiting: Arc<Waiting>,
}

/// A request that waits for an engine.
#[derive(Debug)]
struct WaitingRequest {
    route: ModelRoute,
    subset: Option<EndpointSubset>,
    rng: Rng,
    sender: oneshot::Sender<Result<Permit, RoutingError>>,
}

/// Removes a request from its queue when the client does not wait any more.
struct QueuePlace {
    queue: Arc<PoolQueue>,
    id: RequestId,
}

// === impl PoolQueues ===

impl PoolQueues {
    /// Returns no queues, for frontends with `memory` bytes for the bodies of requests.
    pub(super) fn new(snapshot: CurrentSnapshot, memory: usize) -> Self {
        let waiting = Waiting { requests: AtomicUsize::new(0), bytes: AtomicU64::new(0), memory: memory as u64 };
        Self { queues: Mutex::default(), snapshot, waiting: Arc::new(waiting) }
    }

    /// Returns the flows of all queues.
    pub(super) fn flows(&self) -> Vec<QueuedFlow> {
        let queues: Vec<_> = self.lock().values().cloned().collect();
        let flows = |queue: &Arc<PoolQueue>| queue.lock_requests().flows(&queue.pool).collect::<Vec<_>>();
        queues.iter().flat_map(flows).collect()
    }

    /// Records tokens of flows that another replica has served; those of one pool and priority follow each other.
    pub(super) fn record_served_elsewhere(&self, served: &[ServedTokens]) {
        for served in served.chunk_by(|left, right| left.flow.is_same_band(&right.flow)) {
            let Some(FlowKey { pool, priority, .. }) = served.first().map(|served| &served.flow) else { continue };
            let queue = self.lock().get(pool).filter(|queue| queue.len() > 0).cloned();
            if let Some(queue) = queue {
                let flows = served.iter().map(|served| (served.flow.name.as_str(), served.tokens));
                queue.lock_requests().record_served_elsewhere(*priority, flows);
            }
        }
    }

    /// Returns how many requests wait in the queue of `pool`. A new request must not overtake them.
    pub(super) fn waiting_requests(&self, pool: &NamespacedName) -> usize {
        match self.waiting.requests.load(SeqCst) {
            0 => 0,
            _ => self.lock().get(pool).map_or(0, |queue| queue.len()),
        }
    }

    /// Waits until an engine of the pool of `route` can run a request with a body of `bytes`.
    ///
    /// # Errors
    /// The limits of the queue, or the pool does not exist any more.
    pub(super) async fn wait(
        &self,
        route: ModelRoute,
        bytes: usize,
        subset: Option<EndpointSubset>,
        rng: Rng,
        metrics: &Metrics,
    ) -> Result<Permit, RoutingError> {
        let (key, limit) = (route.pool.key.clone(), route.pool.queue_timeout());
        let queue = self.queue(&key);
        let (usage, flow, priority) = (Arc::clone(&route.pool.usage), route.flow.clone(), route.priority);
        let record_rejection = |error: &RoutingError| usage.record_rejection(&flow, priority, error, Instant::now());
        let mut timer = metrics.time_queued_request(&key, &route.flow, route.priority);
        let (sender, receiver) = oneshot::channel();
        let pushed = queue.push(WaitingRequest { route, subset, rng, sender }, bytes);
        let _place = pushed.inspect_err(|error| {
            timer.outcome = QueueOutcome::RejectedCapacity;
            record_rejection(error);
        })?;
        // An engine may have become free before the request was in the queue.
        queue.dispatch();
        let result = timeout(limit, receiver).await;
        timer.outcome = match &result {
            Ok(Ok(Ok(_))) => QueueOutcome::Dispatched,
            Ok(_) => QueueOutcome::EvictedOther,
            Err(_) => QueueOutcome::EvictedTimeout,
        };
        let result = match result {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(RoutingError::PoolNotFound(key.clone())),
            Err(_) => match queue.current_pool() {
                Some(pool) if pool.has_awake_endpoint(Instant::now()) => Err(RoutingError::QueueTimeout(key.clone())),
                _ => Err(RoutingError::NoEndpointAvailable(key.clone())),
            },
        };
        result.inspect_err(record_rejection)
    }

    /// Uses the pools of a new snapshot. Requests to pools that do not exist any more fail.
    pub(super) fn update_all(&self) {
        let snapshot = self.snapshot.get();
        let queues: Vec<_> = {
            let mut queues = self.lock();
            let all = queues.values().cloned().collect();
            queues.retain(|key, _| snapshot.pools.contains_key(key));
            all
        };
        queues.iter().for_each(PoolQueue::update);
    }

    /// Uses new versions of some pools.
    pub(super) fn update<'a>(&self, pools: impl IntoIterator<Item = &'a NamespacedName>) {
        for pool in pools {
            let queue = self.lock().get(pool).cloned();
            queue.iter().for_each(PoolQueue::update);
        }
    }

    /// Returns the queue of a pool, which is created if it does not exist.
    fn queue(&self, pool: &NamespacedName) -> Arc<PoolQueue> {
        let mut queues = self.lock();
        if let Some(queue) = queues.get(pool) {
            return Arc::clone(queue);
        }
        let queue = Arc::new(PoolQueue {
            pool: pool.clone(),
            snapshot: self.snapshot.clone(),
            requests: Mutex::default(),
            length: AtomicUsize::new(0),
            waiting: Arc::clone(&self.waiting),
        });
        queues.insert(pool.clone(), Arc::clone(&queue));
        drop(queues);
        // From now on it is updated with the snapshot, which may have changed since the request read it.
        queue.listen();
        queue
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, Arc<PoolQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl PoolQueue ===

impl PoolQueue {
    fn len(&self) -> usize {
        self.length.load(SeqCst)
    }

    /// Returns the pool of the current snapshot, if it exists.
    fn current_pool(&self) -> Option<Arc<Pool>> {
        self.snapshot.get().pools.get(&self.pool).cloned()
    }

    /// Adds a request. Those that it replaces fail.
    fn push(self: &Arc<Self>, request: WaitingRequest, bytes: usize) -> Result<QueuePlace, RoutingError> {
        let ModelRoute { pool, flow, priority, .. } = &request.route;
        let (limit, flow, priority) = (pool.queue_limits.size, flow.clone(), *priority);
        let tokens = request.route.computed_tokens();
        let queued = QueuedRequest { priority, flow: &flow, tokens, bytes: bytes as u64 };
        let pushed = {
            let mut requests = self.lock_requests();
            let size = self.waiting.size_of_one_queue(limit, requests.bytes());
            self.change(&mut requests, |requests| requests.push(queued, request, size))
        };
        let (id, replaced) = pushed.map_err(|QueueFull| RoutingError::QueueFull(self.pool.clone()))?;
        for WaitingRequest { route, sender, .. } in replaced {
            let reason = match route.priority < priority {
                true => RoutingError::ReplacedByPriority,
                false => RoutingError::ReplacedByFairness,
            };
            // The client may not wait any more.
            sender.send(Err(reason(self.pool.clone()))).ok();
        }
        Ok(QueuePlace { queue: Arc::clone(self), id })
    }

    /// Sends waiting requests to engines that can run them. Ends them if the pool does not exist any more.
    fn dispatch(&self) {
        while self.len() > 0 {
            let Some(pool) = self.current_pool() else { return self.close() };
            let start = Instant::now();
            let mut requests = self.lock_requests();
            if !pool.has_capacity(start) {
                return;
            }
            let select = |request: &mut WaitingRequest| {
                let eligibility = Eligibility { subset: request.subset.as_ref(), ..Eligibility::default() };
                Selection::new(&request.route, &pool, eligibility, &mut request.rng).ok()
            };
            let dispatched = self.change(&mut requests, |requests| requests.dispatch(select));
            drop(requests);
            let Some((WaitingRequest { mut route, sender, .. }, selection)) = dispatched else { return };
            route.pool = pool;
            // If the client does not wait any more, this ends the request, and another one may use the engine.
            drop(sender.send(Ok(Permit::new(route, selection, start.elapsed()))));
        }
    }

    /// Changes the queue, and records its new length.
    fn change<R>(
        &self,
        requests: &mut RequestQueue<WaitingRequest>,
        change: impl FnOnce(&mut RequestQueue<WaitingRequest>) -> R,
    ) -> R {
        let before = (requests.len(), requests.bytes());
        let result = change(requests);
        let after = (requests.len(), requests.bytes());
        self.length.store(after.0, SeqCst);
        // Differences may be negative: both operations wrap around.
        self.waiting.requests.fetch_add(after.0.wrapping_sub(before.0), SeqCst);
        self.waiting.bytes.fetch_add(after.1.wrapping_sub(before.1), SeqCst);
        result
    }

    /// Uses the pool of a new snapshot.
    fn update(self: &Arc<Self>) {
        self.listen();
        self.dispatch();
    }

    /// Waits for capacity of all endpoints of the pool.
    fn listen(self: &Arc<Self>) {
        let queue: Arc<dyn CapacityListener> = Arc::clone(self) as _;
        let (listener, pool) = (Arc::downgrade(&queue), self.current_pool());
        let endpoints = pool.iter().flat_map(|pool| &pool.ready_endpoints);
        endpoints.for_each(|endpoint| endpoint.state.add_capacity_listener(&listener));
    }

    /// Ends the waiting requests.
    fn close(&self) {
        let mut requests = self.lock_requests();
        let closed = self.change(&mut requests, RequestQueue::clear);
        drop(requests);
        drop(closed);
    }

    fn lock_requests(&self) -> MutexGuard<'_, RequestQueue<WaitingRequest>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CapacityListener for PoolQueue {
    fn capacity_changed(&self) {
        self.dispatch();
    }
}

// === impl Waiting ===

impl Waiting {
    /// Returns the size of a queue with `bytes` and this limit. Its bodies occupy no more memory than they leave for those of other
    /// requests, beside the bodies in other queues.
    fn size_of_one_queue(&self, limit: QueueSize, bytes: u64) -> QueueSize {
        let others = self.bytes.load(SeqCst).saturating_sub(bytes);
        QueueSize { max_bytes: limit.max_bytes.min(self.memory.saturating_sub(others) / 2), ..limit }
    }
}

// === impl QueuePlace ===

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut requests = self.queue.lock_requests();
        let removed = self.queue.change(&mut requests, |requests| requests.remove(self.id));
        drop(requests);
        drop(removed);
    }
}
