//! The queues of the pools whose engines are busy. A request waits here instead of in an engine, where it would be bound to this engine
//! and to the order of arrival.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use cluster::NamespacedName;
use fastrand::Rng;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::{
    model_route::ModelRoute,
    permit::Permit,
    selection::{Eligibility, Selection},
};
use crate::{
    endpoint_state::CapacityListener,
    endpoint_subset::EndpointSubset,
    request_queue::{QueueFull, QueuedRequest, RequestId, RequestQueue},
    routing_error::RoutingError,
    snapshot::{Pool, Snapshot},
};

/// The queues of all pools with requests that had to wait.
#[derive(Debug, Default)]
pub(super) struct PoolQueues {
    queues: Mutex<BTreeMap<NamespacedName, Arc<PoolQueue>>>,
    /// Number of requests in all queues, so that requests look for a queue only if there is one.
    waiting: Arc<AtomicUsize>,
}

/// The queue of one pool.
#[derive(Debug)]
struct PoolQueue {
    /// The pool of the current snapshot.
    pool: Mutex<Arc<Pool>>,
    requests: Mutex<RequestQueue<WaitingRequest>>,
    waiting_in_all: Arc<AtomicUsize>,
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
    /// Returns whether requests wait in the queue of `pool`. A new request must not overtake them.
    pub(super) fn has_waiting(&self, pool: &NamespacedName) -> bool {
        self.waiting.load(Relaxed) > 0 && self.lock().get(pool).is_some_and(|queue| queue.lock_requests().len() > 0)
    }

    /// Waits until an engine of the pool of `route` can run a request with a body of `bytes`. `current_pool` returns this pool in the
    /// current snapshot.
    ///
    /// # Errors
    /// The limits of the queue, or the pool does not exist any more.
    pub(super) async fn wait(
        &self,
        route: ModelRoute,
        bytes: usize,
        subset: Option<EndpointSubset>,
        rng: Rng,
        current_pool: impl Fn() -> Option<Arc<Pool>>,
    ) -> Result<Permit, RoutingError> {
        let pool = Arc::clone(&route.pool);
        let queue = self.queue(&pool);
        // The snapshot may have changed before the queue existed.
        if let Some(current) = current_pool().filter(|current| !Arc::ptr_eq(current, &queue.pool())) {
            queue.update(current);
        }
        let (sender, receiver) = oneshot::channel();
        let _place = queue.push(WaitingRequest { route, subset, rng, sender }, bytes)?;
        // An engine may have become free before the request was in the queue.
        queue.dispatch();
        match timeout(pool.queue_limits.timeout, receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(RoutingError::PoolNotFound(pool.key.clone())),
            Err(_) if !queue.pool().is_serving() => Err(RoutingError::NoEndpointAvailable(pool.key.clone())),
            Err(_) => Err(RoutingError::QueueTimeout(pool.key.clone())),
        }
    }

    /// Uses the pools of a new snapshot. Requests to pools that do not exist any more fail.
    pub(super) fn update_all(&self, snapshot: &Snapshot) {
        let (existing, removed): (Vec<_>, Vec<_>) = {
            let mut queues = self.lock();
            let removed = queues.extract_if(.., |key, _| !snapshot.pools.contains_key(key));
            let removed = removed.map(|(_, queue)| queue).collect();
            (queues.values().cloned().collect(), removed)
        };
        for queue in existing {
            let pool = snapshot.pools.get(&queue.pool().key).cloned();
            pool.into_iter().for_each(|pool| queue.update(pool));
        }
        removed.iter().for_each(|queue| queue.close());
    }

    /// Uses new versions of some pools.
    pub(super) fn update(&self, pools: &[Arc<Pool>]) {
        for pool in pools {
            let queue = self.lock().get(&pool.key).cloned();
            queue.into_iter().for_each(|queue| queue.update(Arc::clone(pool)));
        }
    }

    /// Returns the queue of a pool, which is created if it does not exist.
    fn queue(&self, pool: &Arc<Pool>) -> Arc<PoolQueue> {
        let mut queues = self.lock();
        let queue = queues.entry(pool.key.clone()).or_insert_with(|| {
            let queue = Arc::new(PoolQueue {
                pool: Mutex::new(Arc::clone(pool)),
                requests: Mutex::default(),
                waiting_in_all: Arc::clone(&self.waiting),
            });
            queue.listen();
            queue
        });
        Arc::clone(queue)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, Arc<PoolQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl PoolQueue ===

impl PoolQueue {
    /// Adds a request. Those that it replaces fail.
    fn push(self: &Arc<Self>, request: WaitingRequest, bytes: usize) -> Result<QueuePlace, RoutingError> {
        let ModelRoute { pool, flow, priority, .. } = &request.route;
        let (pool, flow, priority) = (Arc::clone(pool), flow.clone(), *priority);
        let tokens = request.route.computed_tokens();
        let queued = QueuedRequest { priority, flow: &flow, tokens, bytes: bytes as u64 };
        let pushed = {
            let mut requests = self.lock_requests();
            self.change(&mut requests, |requests| requests.push(queued, request, pool.queue_limits.size))
        };
        let (id, replaced) = pushed.map_err(|QueueFull| RoutingError::QueueFull(pool.key.clone()))?;
        for WaitingRequest { route, sender, .. } in replaced {
            let reason = match route.priority < priority {
                true => RoutingError::ReplacedByPriority,
                false => RoutingError::ReplacedByFairness,
            };
            // The client may not wait any more.
            sender.send(Err(reason(pool.key.clone()))).ok();
        }
        Ok(QueuePlace { queue: Arc::clone(self), id })
    }

    /// Sends waiting requests to engines that can run them.
    fn dispatch(&self) {
        loop {
            let pool = self.pool();
            let has_capacity = || pool.serving_endpoints().any(|endpoint| !endpoint.state.is_saturated());
            let mut requests = self.lock_requests();
            if requests.len() == 0 || !has_capacity() {
                return;
            }
            let start = Instant::now();
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

    /// Changes the queue, and counts the requests of all queues.
    fn change<R>(
        &self,
        requests: &mut RequestQueue<WaitingRequest>,
        change: impl FnOnce(&mut RequestQueue<WaitingRequest>) -> R,
    ) -> R {
        let before = requests.len();
        let result = change(requests);
        match requests.len().checked_sub(before) {
            Some(added) => self.waiting_in_all.fetch_add(added, Relaxed),
            None => self.waiting_in_all.fetch_sub(before.saturating_sub(requests.len()), Relaxed),
        };
        result
    }

    fn update(self: &Arc<Self>, pool: Arc<Pool>) {
        *self.pool.lock().unwrap_or_else(PoisonError::into_inner) = pool;
        self.listen();
        self.dispatch();
    }

    /// Waits for capacity of all endpoints of the pool.
    fn listen(self: &Arc<Self>) {
        let queue: Arc<dyn CapacityListener> = Arc::clone(self) as _;
        let listener = Arc::downgrade(&queue);
        self.pool().ready_endpoints.iter().for_each(|endpoint| endpoint.state.add_capacity_listener(&listener));
    }

    /// Ends the waiting requests.
    fn close(&self) {
        let mut requests = self.lock_requests();
        let closed = self.change(&mut requests, RequestQueue::clear);
        drop(requests);
        drop(closed);
    }

    fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.pool.lock().unwrap_or_else(PoisonError::into_inner))
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

// === impl QueuePlace ===

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut requests = self.queue.lock_requests();
        let removed = self.queue.change(&mut requests, |requests| requests.remove(self.id));
        drop(requests);
        drop(removed);
    }
}
