//! When pools received requests whose workloads the gateway scales to zero.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use cluster::NamespacedName;
use tokio::{sync::Notify, time::Instant};

use crate::snapshot::Pool;

/// The requests to pools whose workloads the gateway scales.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    last_requests: Mutex<BTreeMap<NamespacedName, Instant>>,
    /// Notified when a pool without endpoints receives a request.
    pub(crate) unserved: Notify,
}

// === impl Demand ===

impl Demand {
    /// Records a request to `pool`.
    pub(crate) fn record(&self, pool: &Pool, now: Instant) {
        if pool.scale_to_zero.is_some() {
            self.lock().insert(pool.key.clone(), now);
            if !pool.is_serving() {
                self.unserved.notify_one();
            }
        }
    }

    /// Returns when the pool received its last request, if it received one.
    pub(crate) fn last_request(&self, pool: &NamespacedName) -> Option<Instant> {
        self.lock().get(pool).copied()
    }

    /// Forgets the pools for which `exists` is false.
    pub(crate) fn retain(&self, exists: impl Fn(&NamespacedName) -> bool) {
        self.lock().retain(|pool, _| exists(pool));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, Instant>> {
        self.last_requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
