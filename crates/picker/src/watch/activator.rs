//! Scales the workloads of pools from and to zero, as their requests require.
//!
//! Each gateway scales from zero for its own requests. It records the time of the last request in the status of the pool, so that no
//! gateway scales to zero what another one uses.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::inference::{ScaleTargetKind, ScaleToZero};
use cluster::{Clock, Error, Kind, NamespacedName, Scale, StatusWriter, Stores, rfc3339_seconds, scale};
use futures::stream::{FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    activation::{IdleTimeouts, ScaleChange, selects},
    kinds::{BACKEND_POOL, DEPLOYMENT, LEADER_WORKER_SET},
    scheduler::Scheduler,
    snapshot::Pool,
};

/// Field manager of the time of the last request. All replicas of the gateway are this one manager.
const ACTIVITY_MANAGER: &str = "ostler-pool-activity";

/// Label of the pools that the operator renders, and its value.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const OPERATOR: &str = "ostler";

/// How often pools are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest time between two checks, however many requests arrive.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Delay before a workload is read or scaled again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Timeout for scaling a workload, or for recording the last request.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which a later request is recorded, unless a quarter of the idle timeout is shorter.
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
    /// Whether this process has started a replica that no endpoint has followed yet.
    is_starting: bool,
    /// When the workload may be scaled next, and the last request recorded.
    next_scale: Instant,
    next_record: Instant,
}

/// What is to be written for a pool.
struct Writes<'a> {
    pool: &'a Pool,
    settings: &'a ScaleToZero,
    change: Option<ScaleChange>,
    last_request: Option<Timestamp>,
}

// === impl Activator ===

impl Activator {
    /// Checks the pools forever: at once when a pool without endpoints receives a request.
    pub(super) async fn run(&self) {
        let writer = StatusWriter::new(self.client.clone(), self.stores.clone(), ACTIVITY_MANAGER);
        let mut states: BTreeMap<NamespacedName, PoolState> = BTreeMap::new();
        loop {
            let snapshot = self.scheduler.snapshot();
            states.retain(|key, _| snapshot.pools.contains_key(key));
            self.scheduler.demand.retain(|key| snapshot.pools.contains_key(key));
            let pools = snapshot.pools.values();
            let scaled = pools.filter_map(|pool| Some((pool, pool.scale_to_zero.as_ref()?)));
            let writes: FuturesUnordered<_> =
                scaled.map(|(pool, settings)| self.write(&writer, self.check(&mut states, pool, settings))).collect();
            writes.collect::<()>().await;
            tokio::select! {
                // The request is in the queue a moment later.
                () = self.scheduler.demand.unserved.notified() => sleep(MIN_CHECK_INTERVAL).await,
                () = sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    /// Returns what is to be written for a pool now.
    fn check<'a>(
        &self,
        states: &mut BTreeMap<NamespacedName, PoolState>,
        pool: &'a Pool,
        settings: &'a ScaleToZero,
    ) -> Writes<'a> {
        let now = Instant::now();
        let new = PoolState { serving_since: None, is_starting: false, next_scale: now, next_record: now };
        let state = states.entry(pool.key.clone()).or_insert(new);
        state.serving_since = pool.is_serving().then(|| state.serving_since.unwrap_or(now));
        state.is_starting &= !pool.is_serving();
        let activity = self.scheduler.activity(pool, self.idle(pool, state, now));
        if activity.waiting > 0 || self.scheduler.demand.in_progress(&pool.key) > 0 {
            self.scheduler.demand.refresh(&pool.key);
        }
        let is_ours = pool.is_serving() || state.is_starting;
        let required = activity.required_change(timeouts(pool, settings));
        let change = required.filter(|change| now >= state.next_scale && (*change == ScaleChange::FromZero || is_ours));
        if let Some(change) = change {
            state.next_scale = now + RETRY_DELAY;
            state.is_starting = change == ScaleChange::FromZero;
        }
        let last_request = self.unrecorded_request(pool, settings, state, now);
        if last_request.is_some() {
            state.next_record = now + RETRY_DELAY;
        }
        Writes { pool, settings, change, last_request }
    }

    /// Returns the time since a request to any gateway was in progress, at most the time since an endpoint serves requests.
    fn idle(&self, pool: &Pool, state: &PoolState, now: Instant) -> Duration {
        let since = self.scheduler.demand.last_request(&pool.key).into_iter().chain(state.serving_since).max();
        let idle = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let object = self.stores.get(BACKEND_POOL, &pool.key);
        idle.min(object.and_then(|object| recorded_request(&object)).map_or(Duration::MAX, |time| self.age(time)))
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
        let interval = (idle_timeout(settings) / 4).min(MAX_RECORD_INTERVAL);
        let recorded = self.stores.get(BACKEND_POOL, &pool.key).and_then(|object| recorded_request(&object));
        let is_recent = |recorded: Timestamp| time.duration_since(recorded) < interval.try_into().unwrap_or_default();
        (now >= state.next_record && !recorded.is_some_and(is_recent)).then_some(time)
    }

    /// Returns the time since `time`; none for times in the future, from a host with another clock.
    fn age(&self, time: Timestamp) -> Duration {
        self.clock.now().duration_since(time).try_into().unwrap_or_default()
    }

    async fn write(&self, writer: &StatusWriter, writes: Writes<'_>) {
        let Writes { pool, settings, change, last_request } = writes;
        if let Some(change) = change {
            match timeout(WRITE_TIMEOUT, self.scale(pool, settings, change)).await {
                Ok(Err(error)) if !error.is_conflict() => {
                    tracing::warn!(pool = %pool.key, %error, delay = ?RETRY_DELAY, "failed to scale the workload of a pool, retrying");
                }
                Err(_) => tracing::warn!(pool = %pool.key, "scaling the workload of a pool timed out, retrying"),
                Ok(_) => {}
            }
        }
        let live: Option<Arc<Value>> = last_request.and_then(|_| self.stores.get(BACKEND_POOL, &pool.key));
        if let (Some(time), Some(live)) = (last_request, live) {
            let status = json!({"lastRequestTime": rfc3339_seconds(time)});
            match timeout(WRITE_TIMEOUT, writer.publish(BACKEND_POOL, &live, &status)).await {
                // After a conflict, the watch delivers the current version.
                Ok(Err(error)) if !error.is_conflict() => {
                    tracing::warn!(pool = %pool.key, %error, "failed to record the last request");
                }
                Err(_) => tracing::warn!(pool = %pool.key, "recording the last request timed out"),
                Ok(_) => {}
            }
        }
    }

    async fn scale(&self, pool: &Pool, settings: &ScaleToZero, change: ScaleChange) -> Result<(), Error> {
        if change == ScaleChange::ToZero && self.is_used_elsewhere(pool, settings).await? {
            return Ok(());
        }
        let kind = target_kind(settings.target_ref.kind);
        let target = NamespacedName::new(&pool.key.namespace, &settings.target_ref.name);
        let desired = |current: &Scale| {
            // A request may have arrived in between.
            let is_required = || self.scheduler.activity(pool, Duration::MAX).required_change(timeouts(pool, settings));
            let is_still_idle = change == ScaleChange::FromZero || is_required() == Some(change);
            let runs_endpoints =
                || pool.ready_endpoints.iter().any(|endpoint| selects(&current.selector, &endpoint.labels));
            if change == ScaleChange::ToZero && pool.is_serving() && !self.is_rendered(pool) && !runs_endpoints() {
                tracing::warn!(pool = %pool.key, kind = kind.kind, %target, selector = current.selector, "no endpoint of the pool is a Pod of its target, which is not scaled");
                return None;
            }
            change.apply(current).filter(|_| is_still_idle)
        };
        if let Some(replicas) = scale(&self.client, kind, &target, self.manager, desired).await? {
            tracing::info!(pool = %pool.key, kind = kind.kind, %target, replicas, "scaled the workload of a pool");
        }
        Ok(())
    }

    /// Returns whether the operator has rendered the pool, and knows the workload of its Pods: that of dual pods has other Pods.
    fn is_rendered(&self, pool: &Pool) -> bool {
        let object = self.stores.get(BACKEND_POOL, &pool.key);
        object.is_some_and(|object| object["metadata"]["labels"][MANAGED_BY] == OPERATOR)
    }

    /// Returns whether another gateway has recorded a request that the watch has not delivered yet, or the pool was deleted.
    async fn is_used_elsewhere(&self, pool: &Pool, settings: &ScaleToZero) -> Result<bool, Error> {
        let NamespacedName { namespace, name } = &pool.key;
        // A list of one object, for which the gateway has the permission.
        let parameters = ListParams::default().fields(&format!("metadata.name={name}"));
        let found = BACKEND_POOL.api(self.client.clone(), namespace).list(&parameters).await;
        let found = found.map_err(|source| Error::Request {
            action: "read",
            object: format!("{} {}", BACKEND_POOL.kind, pool.key),
            source: Box::new(source),
        })?;
        let Some(object) = found.items.into_iter().next() else { return Ok(true) };
        let recorded = recorded_request(&serde_json::to_value(object).unwrap_or_default());
        Ok(recorded.is_some_and(|time| self.age(time) < idle_timeout(settings)))
    }
}

/// Returns the time of the last request that a gateway has recorded.
fn recorded_request(pool: &Value) -> Option<Timestamp> {
    pool["status"]["lastRequestTime"].as_str()?.parse().ok()
}

fn timeouts(pool: &Pool, settings: &ScaleToZero) -> IdleTimeouts {
    let starting = settings.start_timeout.map_or(pool.queue_limits.timeout, |timeout| timeout.0);
    IdleTimeouts { serving: idle_timeout(settings), starting }
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
