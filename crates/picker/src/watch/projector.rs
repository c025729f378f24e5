//! Applies the InferencePools that represent BackendPools, and reports the conditions.
//!
//! An InferencePool is written only if it does not exist or if this gateway applied it for its BackendPool, which is its controller.
//! Nothing is deleted: garbage collection deletes it after the BackendPool.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cluster::{Applier, Condition, Kind, NamespacedName, Stores, is_managed_by};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::statuses::Statuses;
use crate::{
    kinds::{BACKEND_POOL, INFERENCE_POOL_V1},
    projection::{self, EndpointPickerService},
};

/// Kinds that are applied.
const PROJECTED_KINDS: &[Kind] = &[INFERENCE_POOL_V1];

/// Time after which all pools are checked again, and failed requests repeated.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);

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
        loop {
            let pools = self.stores.list(BACKEND_POOL);
            let keys: BTreeSet<NamespacedName> = pools.iter().map(|pool| NamespacedName::from_object(pool)).collect();
            for pool in &pools {
                if let Some(condition) = self.project(pool).await {
                    self.statuses.set_projection(NamespacedName::from_object(pool), condition);
                }
            }
            self.statuses.retain_projections(|pool| keys.contains(pool));
            tokio::select! {
                () = self.statuses.rebuilt.notified() => {}
                () = sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    /// Applies the InferencePool of a pool. Returns the new condition, or `None` if nothing is known.
    async fn project(&self, pool: &Arc<Value>) -> Option<Condition> {
        let key = NamespacedName::from_object(pool);
        let Some(service) = &self.service else {
            if !self.stores.has_synced(INFERENCE_POOL_V1) && !self.is_unlisted() {
                return None;
            }
            let live = self.stores.get(INFERENCE_POOL_V1, &key);
            let own = live.filter(|live| projection::is_projection(live) && is_managed_by(live, self.manager));
            return Some(projection::condition_without_service(&key, own.as_deref()));
        };
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
        projection::condition(&key, service, &convergence.results.first()?.outcome)
    }

    /// Returns whether InferencePools cannot be listed.
    fn is_unlisted(&self) -> bool {
        use cluster::ListState::{NotListed, NotServed};
        matches!(cluster::list_state(&self.stores, INFERENCE_POOL_V1), NotServed | NotListed(Some(_)))
    }
}
