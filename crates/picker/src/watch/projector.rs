//! Applies the InferencePools that represent BackendPools, and reports the conditions.
//!
//! An InferencePool is written only if it does not exist or if this gateway applied it for its BackendPool, which is its controller.
//! Nothing is deleted: garbage collection deletes it after the BackendPool.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cluster::{Applier, ApplyOutcome, Condition, Kind, NamespacedName, Stores, is_managed_by};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::statuses::Statuses;
use crate::{
    code,
    kinds::{BACKEND_POOL, INFERENCE_POOL_V1},
    projection::{self, EndpointPickerService},
};

/// Kinds that are applied.
const PROJECTED_KINDS: &[Kind] = &[INFERENCE_POOL_V1];

/// Time after which all pools are checked again, and failed requests repeated.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// How often an InferencePool is changed within [`CHECK_INTERVAL`]: gateways with different Services, for example during an update, would
/// replace each other's InferencePools without end.
const MAX_CHANGES: u32 = 3;

/// Timeout for one pool.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Projects all BackendPools.
pub(super) struct Projector {
    stores: Stores,
    applier: Applier,
    /// Field manager of the InferencePools.
    manager: &'static str,
    service: Option<EndpointPickerService>,
    statuses: Arc<Statuses>,
}

/// Changes of the InferencePools, by pool.
#[derive(Debug, Default)]
struct RecentChanges(BTreeMap<NamespacedName, Changes>);

/// Changes of one InferencePool.
#[derive(Debug, Clone)]
struct Changes {
    /// Generation of its BackendPool.
    generation: Value,
    /// Their number since `start`.
    count: u32,
    start: Instant,
}

// === impl Projector ===

impl Projector {
    /// Returns a projector that applies objects as the field manager `manager`, and changes nothing without a `service`.
    pub(super) fn new(
        client: kube::Client,
        stores: Stores,
        manager: &'static str,
        service: Option<EndpointPickerService>,
        statuses: Arc<Statuses>,
    ) -> Self {
        let applier = Applier::new(client, stores.clone(), PROJECTED_KINDS, manager);
        Self { stores, applier, manager, service, statuses }
    }

    /// Projects the pools after each change, forever.
    pub(super) async fn run(&self) {
        let mut changes = RecentChanges::default();
        loop {
            let pools = self.stores.list(BACKEND_POOL);
            let keys: BTreeSet<NamespacedName> = pools.iter().map(|pool| NamespacedName::from_object(pool)).collect();
            for pool in &pools {
                if let Some(condition) = self.project(pool, &mut changes).await {
                    self.statuses.set_projection(NamespacedName::from_object(pool), condition);
                }
            }
            self.statuses.retain_projections(|pool| keys.contains(pool));
            changes.0.retain(|pool, _| keys.contains(pool));
            tokio::select! {
                () = self.statuses.rebuilt.notified() => {}
                () = sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    /// Applies the InferencePool of a pool. Returns the new condition, or `None` if nothing is known.
    async fn project(&self, pool: &Arc<Value>, changes: &mut RecentChanges) -> Option<Condition> {
        let key = NamespacedName::from_object(pool);
        let Some(service) = &self.service else {
            if !self.stores.has_synced(INFERENCE_POOL_V1) && !self.is_unlisted() {
                return None;
            }
            let live = self.stores.get(INFERENCE_POOL_V1, &key);
            let own = live.filter(|live| projection::is_projection_of(pool, live) && is_managed_by(live, self.manager));
            // Another gateway projects the pool, or cannot.
            let is_reported = || {
                projection::live_condition(pool)
                    .is_some_and(|condition| condition.reason != code::NO_ENDPOINT_PICKER.to_string())
            };
            return (own.is_some() || !is_reported())
                .then(|| projection::condition_without_service(&key, own.as_deref()));
        };
        let generation = &pool["metadata"]["generation"];
        if changes.is_exhausted(&key, generation) {
            return None;
        }
        let desired = vec![projection::inference_pool(pool, service)];
        let convergence = match timeout(WRITE_TIMEOUT, self.applier.converge(BACKEND_POOL, pool, desired)).await {
            Ok(Ok(convergence)) => convergence,
            Ok(Err(error)) => {
                tracing::warn!(pool = %key, %error, retry = ?CHECK_INTERVAL, "failed to apply an InferencePool, retrying");
                return None;
            }
            Err(_) => {
                tracing::warn!(pool = %key, timeout = ?WRITE_TIMEOUT, "timed out applying an InferencePool, retrying");
                return None;
            }
        };
        let outcome = &convergence.results.first()?.outcome;
        if matches!(outcome, ApplyOutcome::Created | ApplyOutcome::Updated) {
            changes.record(&key, generation);
        }
        projection::condition(&key, service, outcome)
    }

    /// Returns whether InferencePools cannot be listed.
    fn is_unlisted(&self) -> bool {
        use cluster::ListState::{NotListed, NotServed};
        matches!(cluster::list_state(&self.stores, INFERENCE_POOL_V1), NotServed | NotListed(Some(_)))
    }
}

// === impl RecentChanges ===

impl RecentChanges {
    /// Returns whether the InferencePool of this generation of a pool may not be changed now.
    fn is_exhausted(&self, pool: &NamespacedName, generation: &Value) -> bool {
        self.0.get(pool).is_some_and(|changes| changes.concern(generation) && changes.count >= MAX_CHANGES)
    }

    /// Records a change of the InferencePool of this generation of a pool.
    fn record(&mut self, pool: &NamespacedName, generation: &Value) {
        let new = || Changes { generation: generation.clone(), count: 0, start: Instant::now() };
        let changes = self.0.entry(pool.clone()).or_insert_with(new);
        if !changes.concern(generation) {
            *changes = new();
        }
        changes.count += 1;
    }
}

// === impl Changes ===

impl Changes {
    /// Returns whether the changes are those of this generation within [`CHECK_INTERVAL`].
    fn concern(&self, generation: &Value) -> bool {
        self.generation == *generation && self.start.elapsed() < CHECK_INTERVAL
    }
}
