//! Writes the statuses of pools and use cases, in a task of its own: a slow API server does not delay the snapshot.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::inference::ObjectiveStatus;
use cluster::{Clock, Condition, Error, Kind, NamespacedName, StatusWriter, Stores, render_conditions};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

use super::written_statuses::WrittenStatuses;
use crate::{
    http_routes::{GatewayStatus, ParentStatus, RouteStatuses, class_conditions, render_parents},
    index::PoolIndex,
    kinds::{BACKEND_POOL, GATEWAY, GATEWAY_CLASS, HTTP_ROUTE},
    objective_status::ReportedObjectives,
    projection::live_condition,
};

/// Delay before a failed status update is retried.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Statuses to write, the latest of each object.
pub(super) struct Statuses {
    pending: Mutex<BTreeMap<(Kind, NamespacedName), Status>>,
    /// Conditions about target models that no engine serves, by `KIND NAMESPACE/NAME` of the use cases.
    unserved_targets: Mutex<BTreeMap<String, Condition>>,
    /// Measured latencies, by `KIND NAMESPACE/NAME` of the use cases.
    objectives: Mutex<ReportedObjectives>,
    /// Pools with their last statuses, without the conditions of projections.
    pools: Mutex<BTreeMap<NamespacedName, Status>>,
    /// Conditions of the projections of pools.
    projections: Mutex<BTreeMap<NamespacedName, Condition>>,
    /// Notified after all pools were built again.
    pub(super) rebuilt: Notify,
    changed: Notify,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Clone, PartialEq)]
enum Status {
    /// Of a pool, use cases or a GatewayClass.
    Conditions {
        /// Fields other than the conditions.
        fields: Value,
        conditions: Vec<Condition>,
    },
    Gateway(GatewayStatus),
    HttpRoute {
        /// Controller name of the gateway.
        controller_name: String,
        parents: Vec<ParentStatus>,
    },
}

// === impl Statuses ===

impl Statuses {
    /// Creates an empty collection. `clock` is the source of the times in its statuses.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            pending: Mutex::default(),
            unserved_targets: Mutex::default(),
            objectives: Mutex::default(),
            pools: Mutex::default(),
            projections: Mutex::default(),
            rebuilt: Notify::new(),
            changed: Notify::new(),
            clock,
        }
    }

    /// Adds the statuses of all pools and use cases.
    pub(super) fn add_all(&self, index: &PoolIndex) {
        self.lock_pools().retain(|pool, _| index.position(pool).is_some());
        self.add_pools(index, 0..index.pools.len());
        self.rebuilt.notify_one();
        self.add_use_cases(&index.use_case_conditions);
        self.add_routes(&index.route_statuses, |_, _| true);
    }

    /// Adds the status of one object.
    pub(super) fn add(&self, index: &PoolIndex, kind: Kind, key: &NamespacedName) {
        if kind == BACKEND_POOL {
            self.add_pools(index, index.position(key));
        } else if [GATEWAY_CLASS, GATEWAY, HTTP_ROUTE].contains(&kind) {
            self.add_routes(&index.route_statuses, |other, name| other == kind && name == key);
        } else {
            self.add_use_cases(index.use_case_conditions.get_key_value(&(kind, key.clone())));
        }
    }

    /// Adds the statuses of GatewayClasses, Gateways and HTTPRoutes for which `is_added` is true.
    fn add_routes(&self, statuses: &RouteStatuses, is_added: impl Fn(Kind, &NamespacedName) -> bool) {
        let mut pending = self.lock();
        for key in statuses.classes.iter().map(|name| NamespacedName::new("", name)) {
            if is_added(GATEWAY_CLASS, &key) {
                let conditions = class_conditions(&statuses.controller_name);
                pending.insert((GATEWAY_CLASS, key), Status::Conditions { fields: json!({}), conditions });
            }
        }
        for (key, status) in statuses.gateways.iter().filter(|(key, _)| is_added(GATEWAY, key)) {
            pending.insert((GATEWAY, key.clone()), Status::Gateway(status.clone()));
        }
        for (key, parents) in statuses.routes.iter().filter(|(key, _)| is_added(HTTP_ROUTE, key)) {
            let (controller_name, parents) = (statuses.controller_name.clone(), parents.clone());
            pending.insert((HTTP_ROUTE, key.clone()), Status::HttpRoute { controller_name, parents });
        }
        drop(pending);
        self.changed.notify_one();
    }

    /// Adds the statuses of LLMUseCaseSets and LLMUseCases.
    fn add_use_cases<'a>(&self, use_cases: impl IntoIterator<Item = (&'a (Kind, NamespacedName), &'a Vec<Condition>)>) {
        let unserved = self.unserved_targets.lock().unwrap_or_else(PoisonError::into_inner);
        let objectives = self.objectives.lock().unwrap_or_else(PoisonError::into_inner);
        let status = |(kind, key): &(Kind, NamespacedName), conditions: &Vec<Condition>| {
            let object = format!("{} {key}", kind.kind);
            let fields = match objectives.of(&object) {
                [] => json!({}),
                objectives => json!({"objectives": objectives}),
            };
            let conditions = conditions.iter().chain(unserved.get(&object)).cloned().collect();
            Status::Conditions { fields, conditions }
        };
        let use_cases = use_cases.into_iter().map(|(key, conditions)| (key.clone(), status(key, conditions)));
        self.lock().extend(use_cases);
        self.changed.notify_one();
    }

    /// Replaces the conditions about target models that no engine serves, and adds the statuses of the use cases that this concerns.
    pub(super) fn set_unserved_targets(&self, new: BTreeMap<String, Condition>, index: &PoolIndex) {
        let old = {
            let mut unserved = self.unserved_targets.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *unserved, new.clone())
        };
        if old != new {
            let has_changed = |(kind, key): &(Kind, NamespacedName)| {
                let object = format!("{} {key}", kind.kind);
                old.get(&object) != new.get(&object)
            };
            self.add_use_cases(index.use_case_conditions.iter().filter(|(key, _)| has_changed(key)));
        }
    }

    /// Adds the statuses of the use cases whose measured latencies changed, if the last update is long enough ago.
    pub(super) fn set_objectives(&self, current: BTreeMap<String, Vec<ObjectiveStatus>>, index: &PoolIndex) {
        let changed = {
            let mut objectives = self.objectives.lock().unwrap_or_else(PoisonError::into_inner);
            objectives.update(current, Instant::now())
        };
        if !changed.is_empty() {
            let has_changed = |(kind, key): &(Kind, NamespacedName)| changed.contains(&format!("{} {key}", kind.kind));
            self.add_use_cases(index.use_case_conditions.iter().filter(|(key, _)| has_changed(key)));
        }
    }

    /// Adds the statuses of the pools at these positions.
    pub(super) fn add_pools(&self, index: &PoolIndex, positions: impl IntoIterator<Item = usize>) {
        let mut pending = self.lock();
        for position in positions {
            let Some(pool) = index.pools.get(position) else { continue };
            let fields = json!({
                "endpoints": pool.endpoint_count,
                "readyEndpoints": pool.ready_endpoints.len(),
                "useCases": pool.use_cases.values().filter(|use_case| !use_case.is_rewrite).count(),
            });
            let status = Status::Conditions { fields, conditions: index.pool_conditions(position) };
            self.lock_pools().insert(pool.key.clone(), status.clone());
            pending.insert((BACKEND_POOL, pool.key.clone()), status);
        }
        drop(pending);
        self.changed.notify_one();
    }

    /// Sets the condition of the projection of a pool, and adds its status if the condition changed.
    pub(super) fn set_projection(&self, pool: NamespacedName, condition: Condition) {
        let old = self.lock_projections().insert(pool.clone(), condition.clone());
        if old.as_ref() == Some(&condition) {
            return;
        }
        // In the order of `add_pools`, which would otherwise add a newer status in between.
        let mut pending = self.lock();
        let status = self.lock_pools().get(&pool).cloned();
        if let Some(status) = status {
            pending.entry((BACKEND_POOL, pool)).or_insert(status);
            drop(pending);
            self.changed.notify_one();
        }
    }

    /// Drops the conditions of the projections of other pools.
    pub(super) fn retain_projections(&self, is_retained: impl Fn(&NamespacedName) -> bool) {
        self.lock_projections().retain(|pool, _| is_retained(pool));
    }

    fn lock_pools(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, Status>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_projections(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, Condition>> {
        self.projections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the statuses that have changed, forever. Failed writes are retried, and those that another client replaced are restored
    /// after [`super::written_statuses::RESTORE_DELAY`].
    pub(super) async fn write(&self, writer: &StatusWriter, stores: &Stores) {
        let mut retry_pending = false;
        let mut written = WrittenStatuses::default();
        loop {
            let next = written.next_due();
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = sleep(RETRY_DELAY), if retry_pending => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
            retry_pending = false;
            let mut pending = std::mem::take(&mut *self.lock());
            for (object, status) in written.take_due(Instant::now()) {
                pending.entry(object).or_insert(status);
            }
            for ((kind, key), status) in pending {
                let result = self.publish(writer, stores, (kind, key.clone()), &status, &mut written).await;
                let Err(error) = result else { continue };
                retry_pending = true;
                // After a conflict, for example with another replica, the watch delivers the current version.
                if !error.is_conflict() {
                    tracing::warn!(%error, delay = ?RETRY_DELAY, "failed to update status, retrying");
                }
                // A newer status replaces the one that failed.
                self.lock().entry((kind, key)).or_insert(status);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Kind, NamespacedName), Status>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the status of an object if it differs, unless it is restored later.
    async fn publish(
        &self,
        writer: &StatusWriter,
        stores: &Stores,
        object: (Kind, NamespacedName),
        status: &Status,
        written: &mut WrittenStatuses<Status>,
    ) -> Result<(), Error> {
        let (kind, key) = &object;
        let kind = *kind;
        let Some(live) = stores.get(kind, key) else {
            written.remove(&object);
            return Ok(());
        };
        let status = match kind == BACKEND_POOL {
            // Until the projection was checked after a start, its last condition remains.
            true => {
                let projection = self.lock_projections().get(key).cloned();
                status.clone().with_condition(projection.or_else(|| live_condition(&live)))
            }
            false => status.clone(),
        };
        let Some(rendered) = status.render(&live, self.clock.now()) else { return Ok(()) };
        if !writer.is_published(kind, &live, &rendered) {
            if written.is_postponed(&object, &live, &status, Instant::now()) {
                return Ok(());
            }
            writer.publish(kind, &live, &rendered).await?;
        }
        written.record(object, &live, status);
        Ok(())
    }
}

// === impl Status ===

impl Status {
    /// Returns the status with this condition instead of one of its type.
    fn with_condition(self, condition: Option<Condition>) -> Self {
        match self {
            Self::Conditions { fields, mut conditions } => {
                conditions.retain(|other| condition.as_ref().is_none_or(|condition| condition.type_ != other.type_));
                conditions.extend(condition);
                Self::Conditions { fields, conditions }
            }
            other => other,
        }
    }

    /// Returns the status of `live` as JSON; `None` if nothing has to be written.
    fn render(&self, live: &Value, now: Timestamp) -> Option<Value> {
        match self {
            Self::Conditions { fields, conditions } => {
                let mut status = fields.clone();
                let generation = live["metadata"]["generation"].as_i64().unwrap_or(1);
                status["conditions"] = render_conditions(&live["status"]["conditions"], conditions, generation, now);
                Some(status)
            }
            Self::Gateway(status) => Some(status.render(live, now)),
            Self::HttpRoute { controller_name, parents } => render_parents(controller_name, parents, live, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A restored status has the condition of the projection already.
    #[test]
    fn condition_replaces_the_one_of_its_type() {
        let condition = |reason| Condition::with_reason("Projected", false, reason, "");
        let other = Condition::with_reason("Ready", true, "Ready", "");
        let status = Status::Conditions { fields: json!({}), conditions: vec![condition("NameTaken"), other.clone()] };
        assert_eq!(status.clone().with_condition(None), status);
        let expect = Status::Conditions { fields: json!({}), conditions: vec![other, condition("NoEndpointPicker")] };
        assert_eq!(status.with_condition(Some(condition("NoEndpointPicker"))), expect);
    }
}
