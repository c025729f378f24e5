//! Scales the workloads of pools from and to zero, as their requests require.
//!
//! Each gateway scales from zero for its own requests. It records the time of the last request in the status of the pool, so that no
//! gateway scales to zero what another one uses.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::inference::{ScaleTargetKind, ScaleToZero};
use cluster::{Clock, Kind, NamespacedName, StatusWriter, Stores, rfc3339_seconds, scale};
use futures::stream::{FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    activation::ScaleChange,
    kinds::{BACKEND_POOL, DEPLOYMENT, LEADER_WORKER_SET},
    scheduler::Scheduler,
    snapshot::Pool,
};

/// Field manager of the time of the last request. All replicas of the gateway are this one manager.
const ACTIVITY_MANAGER: &str = "ostler-pool-activity";

/// How often pools are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Delay before a workload is read or scaled again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Timeout for scaling a workload, or for recording the last request.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which a later request is recorded, unless half of the idle timeout is shorter.
const MAX_RECORD_INTERVAL: Duration = Duration::from_secs(60);

/// Idle timeout of pools that state none.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Scales the workloads of all pools.
pub(super) struct Activator {
    pub(super) client: kube::Client,
    pub(super) stores: Stores,
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) clock: Arc<dyn Clock>,
    /// Field manager of the numbers of replicas.
    pub(super) manager: &'static str,
}

/// What this process remembers about a pool.
#[derive(Debug, Clone, Copy)]
struct PoolState {
    /// Since when an endpoint serves requests.
    serving_since: Option<Instant>,
    /// When the workload may be scaled next, and the last request recorded.
    next_scale: Instant,
    next_record: Instant,
}

// === impl Activator ===

impl Activator {
    /// Checks the pools forever: at once when a pool without endpoints receives a request.
    pub(super) async fn run(&self) {
        let writer = StatusWriter::new(self.client.clone(), self.stores.clone(), ACTIVITY_MANAGER);
        let mut states: BTreeMap<NamespacedName, PoolState> = BTreeMap::new();
        loop {
            let snapshot = self.scheduler.snapshot();
            let pools = snapshot.pools.values();
            let scaled: Vec<_> = pools.filter_map(|pool| Some((pool, pool.scale_to_zero.as_ref()?))).collect();
            states.retain(|key, _| snapshot.pools.contains_key(key));
            self.scheduler.demand.retain(|key| snapshot.pools.contains_key(key));
            let now = Instant::now();
            let mut writes = FuturesUnordered::new();
            for (pool, settings) in scaled {
                let new = PoolState { serving_since: None, next_scale: now, next_record: now };
                let state = states.entry(pool.key.clone()).or_insert(new);
                state.serving_since = state.serving_since.filter(|_| pool.is_serving());
                if pool.is_serving() {
                    state.serving_since.get_or_insert(now);
                }
                let change = self.required_change(pool, settings, state, now);
                let last_request = self.unrecorded_request(pool, settings, state, now);
                if change.is_some() {
                    state.next_scale = now + RETRY_DELAY;
                }
                if last_request.is_some() {
                    state.next_record = now + RETRY_DELAY;
                }
                writes.push(self.write(&writer, pool, settings, change, last_request));
            }
            while writes.next().await.is_some() {}
            drop(writes);
            tokio::select! {
                () = self.scheduler.demand.unserved.notified() => {}
                () = sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    /// Returns how the workload of a pool is to be scaled now.
    fn required_change(
        &self,
        pool: &Pool,
        settings: &ScaleToZero,
        state: &PoolState,
        now: Instant,
    ) -> Option<ScaleChange> {
        if now < state.next_scale {
            return None;
        }
        let own = self.scheduler.demand.last_request(&pool.key);
        let since = own.into_iter().chain(state.serving_since).max();
        let idle = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let idle = idle.min(self.recorded_request(pool).map_or(Duration::MAX, |time| self.age(time)));
        self.scheduler.activity(pool, idle).required_change(idle_timeout(settings))
    }

    /// Returns the time of the last request to this gateway, if it is to be recorded.
    fn unrecorded_request(
        &self,
        pool: &Pool,
        settings: &ScaleToZero,
        state: &PoolState,
        now: Instant,
    ) -> Option<Timestamp> {
        let age = now.saturating_duration_since(self.scheduler.demand.last_request(&pool.key)?);
        let time = self.clock.now().checked_sub(age).ok()?;
        let interval = (idle_timeout(settings) / 2).min(MAX_RECORD_INTERVAL);
        let is_recent = |recorded: Timestamp| time.duration_since(recorded) < interval.try_into().unwrap_or_default();
        (now >= state.next_record && !self.recorded_request(pool).is_some_and(is_recent)).then_some(time)
    }

    /// Returns the time of the last request that a gateway has recorded.
    fn recorded_request(&self, pool: &Pool) -> Option<Timestamp> {
        let object = self.stores.get(BACKEND_POOL, &pool.key)?;
        object["status"]["lastRequestTime"].as_str()?.parse().ok()
    }

    fn age(&self, time: Timestamp) -> Duration {
        self.clock.now().duration_since(time).try_into().unwrap_or_default()
    }

    async fn write(
        &self,
        writer: &StatusWriter,
        pool: &Pool,
        settings: &ScaleToZero,
        change: Option<ScaleChange>,
        last_request: Option<Timestamp>,
    ) {
        if let Some(change) = change {
            self.scale(pool, settings, change).await;
        }
        let live: Option<Arc<Value>> = last_request.and_then(|_| self.stores.get(BACKEND_POOL, &pool.key));
        if let (Some(time), Some(live)) = (last_request, live) {
            let status = json!({"lastRequestTime": rfc3339_seconds(time)});
            let write = timeout(WRITE_TIMEOUT, writer.publish(BACKEND_POOL, &live, &status));
            match write.await {
                // After a conflict, the watch delivers the current version.
                Ok(Err(error)) if !error.is_conflict() => {
                    tracing::warn!(pool = %pool.key, %error, "failed to record the last request");
                }
                Err(_) => tracing::warn!(pool = %pool.key, "recording the last request timed out"),
                Ok(_) => {}
            }
        }
    }

    async fn scale(&self, pool: &Pool, settings: &ScaleToZero, change: ScaleChange) {
        let kind = target_kind(settings.target_ref.kind);
        let target = NamespacedName::new(&pool.key.namespace, &settings.target_ref.name);
        let result = scale(&self.client, kind, &target, self.manager, |replicas| change.apply(replicas));
        let (pool, kind) = (&pool.key, kind.kind);
        match timeout(WRITE_TIMEOUT, result).await {
            Ok(Ok(Some(replicas))) => tracing::info!(%pool, kind, %target, replicas, "scaled the workload of a pool"),
            Ok(Ok(None)) => {}
            Ok(Err(error)) if error.is_conflict() => {}
            Ok(Err(error)) => {
                tracing::warn!(%pool, %error, delay = ?RETRY_DELAY, "failed to scale the workload of a pool, retrying");
            }
            Err(_) => tracing::warn!(%pool, kind, %target, "scaling the workload of a pool timed out, retrying"),
        }
    }
}

fn idle_timeout(settings: &ScaleToZero) -> Duration {
    settings.idle_timeout.map_or(DEFAULT_IDLE_TIMEOUT, |timeout| timeout.0)
}

fn target_kind(kind: ScaleTargetKind) -> Kind {
    match kind {
        ScaleTargetKind::Deployment => DEPLOYMENT,
        ScaleTargetKind::LeaderWorkerSet => LEADER_WORKER_SET,
    }
}
