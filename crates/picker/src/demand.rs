//! The requests to pools whose workloads the gateway scales to zero.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use cluster::NamespacedName;
use tokio::{sync::Notify, time::Instant};

use crate::snapshot::Pool;

/// The requests to all such pools.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    pools: Mutex<BTreeMap<NamespacedName, Arc<PoolDemand>>>,
    /// Notified when a pool without endpoints receives a request.
    pub(crate) unserved: Notify,
}

/// The requests to one pool.
#[derive(Debug)]
struct PoolDemand {
    in_progress: AtomicUsize,
    last_request: Mutex<Instant>,
}

/// Counts a request as in progress until it is dropped.
#[derive(Debug)]
pub(crate) struct RequestInProgress(Arc<PoolDemand>);

// === impl Demand ===

impl Demand {
    /// Records a request to `pool`.
    pub(crate) fn record(&self, pool: &Pool) {
        if pool.scale_to_zero.is_some() {
            self.pool(&pool.key).record();
            if !pool.is_serving() {
                self.unserved.notify_one();
            }
        }
    }

    /// Records that requests to `pool` are still in progress.
    pub(crate) fn refresh(&self, pool: &NamespacedName) {
        self.pool(pool).record();
    }

    /// Counts a request to `pool` as in progress until the returned guard is dropped.
    pub(crate) fn begin(&self, pool: &Pool) -> Option<RequestInProgress> {
        pool.scale_to_zero.as_ref()?;
        let demand = self.pool(&pool.key);
        demand.in_progress.fetch_add(1, Relaxed);
        Some(RequestInProgress(demand))
    }

    /// Returns the number of requests to `pool` that an endpoint serves.
    pub(crate) fn in_progress(&self, pool: &NamespacedName) -> usize {
        self.lock().get(pool).map_or(0, |demand| demand.in_progress.load(Relaxed))
    }

    /// Returns when a request to the pool was received or ended last, if there was one.
    pub(crate) fn last_request(&self, pool: &NamespacedName) -> Option<Instant> {
        let demand = self.lock().get(pool).cloned()?;
        Some(*demand.last_request.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets the pools for which `exists` is false.
    pub(crate) fn retain(&self, exists: impl Fn(&NamespacedName) -> bool) {
        self.lock().retain(|pool, _| exists(pool));
    }

    fn pool(&self, pool: &NamespacedName) -> Arc<PoolDemand> {
        let mut pools = self.lock();
        if let Some(demand) = pools.get(pool) {
            return Arc::clone(demand);
        }
        let demand = PoolDemand { in_progress: AtomicUsize::new(0), last_request: Mutex::new(Instant::now()) };
        Arc::clone(pools.entry(pool.clone()).or_insert(Arc::new(demand)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, Arc<PoolDemand>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl PoolDemand ===

impl PoolDemand {
    fn record(&self) {
        *self.last_request.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

// === impl RequestInProgress ===

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.record();
        self.0.in_progress.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::inference::{ScaleTargetKind, ScaleTargetRef, ScaleToZero};

    use super::*;
    use crate::snapshot;

    /// The pool is idle from the end of the request, not from its arrival.
    #[tokio::test(start_paused = true)]
    async fn request_counts_until_its_end() {
        let (key, demand) = (NamespacedName::new("ns", "p"), Demand::default());
        let fixed = snapshot::tests::pool(key.clone(), Vec::new());
        demand.record(&fixed);
        assert!(demand.begin(&fixed).is_none() && demand.last_request(&key).is_none());
        let target_ref = ScaleTargetRef { kind: ScaleTargetKind::Deployment, name: "llama".to_owned() };
        let scale_to_zero = Some(ScaleToZero { target_ref, idle_timeout: None, start_timeout: None });
        let pool = Pool { scale_to_zero, ..fixed };
        demand.record(&pool);
        let request = demand.begin(&pool);
        let arrival = demand.last_request(&key).unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!((demand.in_progress(&key), demand.last_request(&key)), (1, Some(arrival)));
        drop(request);
        let end = arrival + Duration::from_secs(60);
        assert_eq!((demand.in_progress(&key), demand.last_request(&key)), (0, Some(end)));
        demand.retain(|_| false);
        assert_eq!(demand.last_request(&key), None);
    }
}
