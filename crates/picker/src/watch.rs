//! Watches BackendPools, use cases and Pods, updates the datastore, and writes their status.

use std::{sync::Arc, time::Duration};

use cluster::{
    Clock, Condition, Error, Kind, NamespacedName, StatusWriter, Stores, SystemClock, Watches, render_conditions,
};
use serde_json::{Value, json};
use supervisor::TaskFailure;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    datastore::Datastore,
    endpoint::Endpoint,
    index::{self, PoolIndex, WatchedObjects},
    pool::RoutingTable,
};

/// Field manager of the gateway.
const MANAGER: &str = "ostler-picker";

const GROUP: &str = "inference.networking.x-k8s.io";
const BACKEND_POOL: Kind = Kind::namespaced(GROUP, "v1alpha1", "BackendPool", "backendpools");
const USE_CASE_SET: Kind = Kind::namespaced(GROUP, "v1alpha1", "LLMUseCaseSet", "llmusecasesets");
const USE_CASE: Kind = Kind::namespaced(GROUP, "v1alpha1", "LLMUseCase", "llmusecases");
const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");
const KINDS: [Kind; 4] = [BACKEND_POOL, USE_CASE_SET, USE_CASE, POD];

/// Delay before a failed status update is retried.
const STATUS_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Watches BackendPools, use cases and Pods until `shutdown`. A change updates the routing table immediately. Changed
/// statuses are written concurrently, so that an API server that does not respond to writes does not delay the table.
///
/// A task that panics is restarted; until then, the gateway uses the last routing table and its health check fails.
///
/// # Errors
/// Restarts do not help.
pub async fn watch_backend_pools(
    client: kube::Client,
    datastore: Arc<Datastore>,
    shutdown: CancellationToken,
) -> Result<(), TaskFailure> {
    let supervisor = datastore.supervisor.clone();
    // Shared by all runs: the routing table stays complete while a restarted run lists the objects again.
    let stores = Stores::new(MANAGER);
    let stop = shutdown.clone();
    let start = move || update_datastore(client.clone(), stores.clone(), Arc::clone(&datastore), stop.clone());
    supervisor.run_unless_failed(supervisor.supervise("update of the routing table", shutdown, start)).await
}

/// Updates the routing table and the statuses until `shutdown`.
async fn update_datastore(
    client: kube::Client,
    stores: Stores,
    datastore: Arc<Datastore>,
    shutdown: CancellationToken,
) {
    let (indexes, latest_index) = watch::channel(None);
    let writer = StatusWriter::new(client.clone(), stores.clone(), MANAGER);
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = update_routing_table(client, &stores, &datastore, &indexes, &shutdown) => {}
        () = update_statuses(latest_index, &writer, &stores) => {}
    }
}

/// Updates the routing table after each change, and sends the index to `indexes` once the caches are synced.
async fn update_routing_table(
    client: kube::Client,
    stores: &Stores,
    datastore: &Datastore,
    indexes: &watch::Sender<Option<Arc<PoolIndex>>>,
    shutdown: &CancellationToken,
) {
    let supervisor = datastore.supervisor.clone();
    let (mut watches, mut changes) = Watches::new(client, stores.clone(), supervisor, shutdown.clone());
    for kind in KINDS {
        watches.start(kind);
    }
    let unlisted = || -> Vec<String> {
        KINDS.iter().filter(|kind| !stores.has_synced(**kind)).map(Kind::group_resource).collect()
    };
    // After a restart, the lists may contain no changes.
    let mut is_restart = unlisted().is_empty();
    datastore.set_unlisted(&unlisted());
    while std::mem::take(&mut is_restart) || changes.recv().await.is_some() {
        // Build the index once for all pending changes.
        while changes.try_recv().is_ok() {}
        let index = index::build_index(&watched_objects(stores), |address| datastore.load(address));
        let old = datastore.routing_table();
        datastore.replace(index.pools.clone());
        log_changes(&old, &datastore.routing_table());
        // Before the first lists are complete, the status would not include all Pods and pools.
        let unlisted = unlisted();
        if unlisted.is_empty() {
            indexes.send_replace(Some(Arc::new(index)));
        }
        datastore.set_unlisted(&unlisted);
    }
}

/// Writes the statuses of the latest index until the sender is dropped. Failed writes are retried.
async fn update_statuses(
    mut latest_index: watch::Receiver<Option<Arc<PoolIndex>>>,
    writer: &StatusWriter,
    stores: &Stores,
) {
    let mut retry_pending = false;
    loop {
        tokio::select! {
            changed = latest_index.changed() => if changed.is_err() { return },
            () = sleep(STATUS_RETRY_DELAY), if retry_pending => {}
        }
        let Some(index) = latest_index.borrow_and_update().clone() else { continue };
        let result = publish_statuses(writer, stores, &index).await;
        let delay = STATUS_RETRY_DELAY;
        retry_pending = result.is_err();
        // After a conflict, for example with another replica, the watch delivers the current version.
        if let Err(error) = &result
            && !error.is_conflict()
        {
            tracing::warn!(%error, ?delay, "failed to update status, retrying");
        }
    }
}

/// Logs endpoints that became ready or unready.
fn log_changes(old: &RoutingTable, new: &RoutingTable) {
    let endpoints = |table: &RoutingTable, pool: &NamespacedName| -> Vec<Endpoint> {
        table.pools.get(pool).map(|pool| pool.ready_endpoints.clone()).unwrap_or_default()
    };
    let contains = |endpoints: &[Endpoint], endpoint: &Endpoint| {
        endpoints.iter().any(|other| other.address == endpoint.address && other.pod == endpoint.pod)
    };
    for key in old.pools.keys() {
        let remaining = endpoints(new, key);
        for Endpoint { address, pod, .. } in
            endpoints(old, key).iter().filter(|endpoint| !contains(&remaining, endpoint))
        {
            tracing::info!(pool = %key, %address, %pod, "endpoint became unready");
        }
    }
    for key in new.pools.keys() {
        let previous = endpoints(old, key);
        for Endpoint { address, pod, .. } in
            endpoints(new, key).iter().filter(|endpoint| !contains(&previous, endpoint))
        {
            tracing::info!(pool = %key, %address, %pod, "endpoint became ready");
        }
    }
}

fn watched_objects(stores: &Stores) -> WatchedObjects {
    WatchedObjects {
        pools: stores.list(BACKEND_POOL),
        use_case_sets: stores.list(USE_CASE_SET),
        use_cases: stores.list(USE_CASE),
        pods: stores.list(POD),
    }
}

/// Writes all changed statuses. If some writes fail, continues with the others and returns the last error.
async fn publish_statuses(writer: &StatusWriter, stores: &Stores, index: &PoolIndex) -> Result<(), Error> {
    let mut result = Ok(());
    for pool in &index.pools {
        let Some(live) = stores.get(BACKEND_POOL, &pool.key) else { continue };
        let conditions = index.pool_conditions.get(&pool.key).map_or(&[][..], Vec::as_slice);
        let status = json!({
            "endpoints": pool.endpoint_count,
            "readyEndpoints": pool.ready_endpoints.len(),
            "useCases": pool.use_cases.len(),
            "conditions": render_status_conditions(&live, conditions),
        });
        result = writer.publish(BACKEND_POOL, &live, &status).await.map(drop).and(result);
    }
    for (object, conditions) in &index.use_case_conditions {
        let kind = if object["kind"] == USE_CASE.kind { USE_CASE } else { USE_CASE_SET };
        let live = stores.get(kind, &NamespacedName::from_object(object)).unwrap_or_else(|| Arc::clone(object));
        let status = json!({"conditions": render_status_conditions(&live, conditions)});
        result = writer.publish(kind, &live, &status).await.map(drop).and(result);
    }
    result
}

fn render_status_conditions(live: &Value, conditions: &[Condition]) -> Value {
    let generation = live["metadata"]["generation"].as_i64().unwrap_or(1);
    render_conditions(&live["status"]["conditions"], conditions, generation, SystemClock.now())
}
