//! Pools that have lost their last endpoint a moment ago.
//!
//! The watches of pools and Pods are independent, and engines stop as soon as their Pods are deleted. While other Pods replace those of
//! a pool, the snapshot may know that the former ones are gone before it knows those that are ready in their place.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cluster::NamespacedName;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::{
    routing_error::RoutingError,
    snapshot::{Pool, Snapshot},
};

/// How long requests wait for an endpoint after their pool has lost its last one.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// A failure after this time is a new interruption: the endpoints recovered without a change of the snapshot.
const RECOVERY: Duration = Duration::from_secs(30);

/// The interrupted pools, and until when requests wait for their next endpoint.
#[derive(Debug, Default)]
pub(super) struct Interruptions {
    pools: Mutex<BTreeMap<NamespacedName, Instant>>,
    /// Notified after each change of the snapshot.
    published: Notify,
}

// === impl Interruptions ===

impl Interruptions {
    /// Compares all pools of two snapshots. Call it before `new` is published.
    pub(super) fn update_all(&self, old: &Snapshot, new: &Snapshot) {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner).retain(|key, _| new.pools.contains_key(key));
        self.update(new.pools.values(), old);
    }

    /// Compares `pools` with those of the `old` snapshot. Call it before they are published.
    pub(super) fn update<'a>(&self, pools: impl IntoIterator<Item = &'a Arc<Pool>>, old: &Snapshot) {
        let mut interrupted = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        for pool in pools {
            let was_serving = || old.pools.get(&pool.key).is_some_and(|old| old.is_serving());
            if pool.is_serving() {
                interrupted.remove(&pool.key);
            } else if was_serving() {
                interrupted.insert(pool.key.clone(), Instant::now() + MAX_DELAY);
            }
        }
    }

    /// Records that the endpoints of a pool reject connections although they are ready in the snapshot. Later failures extend no
    /// delay, so that requests to an engine that remains unreachable fail at once.
    pub(super) fn record_failure(&self, pool: &NamespacedName) {
        let mut interrupted = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let until = interrupted.entry(pool.clone()).or_insert(now + MAX_DELAY);
        if now.duration_since(*until) > RECOVERY {
            *until = now + MAX_DELAY;
        }
    }

    /// Wakes the requests that wait.
    pub(super) fn notify_published(&self) {
        self.published.notify_waiters();
    }

    /// Returns the result of `attempt`, which selects an endpoint. If its pool is interrupted, repeats it after each change of the
    /// snapshot.
    ///
    /// # Errors
    /// Those of `attempt`.
    pub(super) async fn wait<T>(&self, attempt: impl Fn() -> Result<T, RoutingError>) -> Result<T, RoutingError> {
        loop {
            let published = self.published.notified();
            let result = attempt();
            let Err(RoutingError::NoEndpointAvailable(pool)) = &result else { return result };
            let until = self.pools.lock().unwrap_or_else(PoisonError::into_inner).get(pool).copied();
            let Some(until) = until else { return result };
            if timeout_at(until, published).await.is_err() {
                return result;
            }
        }
    }
}
