//! Keeps the endpoints in step with the cluster.

use std::sync::Arc;

use cluster::{Key, Kind, Stores, Watches};
use tokio_util::sync::CancellationToken;

use super::EndpointPicker;

const POOLS: Kind = Kind::namespaced("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools");
const PODS: Kind = Kind::namespaced("", "v1", "Pod", "pods");

/// Watches the picker's pool, and the Pods of its namespace, until `stop`. Nothing is written.
pub async fn watch(client: kube::Client, picker: Arc<EndpointPicker>, stop: CancellationToken) {
    let stores = Stores::new("ostler-endpoint-picker");
    let (mut watches, mut changes) = Watches::new(client, stores.clone(), stop.clone());
    let key = Key::new(&picker.pool.namespace, &picker.pool.name);
    watches.start_one(POOLS, &key);
    watches.start_in(PODS, &key.namespace);
    let mut told = None;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            change = changes.recv() => if change.is_none() { return },
        }
        // Many changes, one look.
        while changes.try_recv().is_ok() {}
        // Before the first lists are complete a choice would be among some of the endpoints only.
        if [POOLS, PODS].into_iter().all(|kind| stores.synced(kind)) {
            let pool = stores.get(POOLS, &key);
            picker.update(pool.as_deref(), &stores.list(PODS));
            if told.replace(pool.is_some()) != Some(pool.is_some()) && pool.is_none() {
                tracing::warn!(pool = %picker.pool, "there is no such InferencePool; waiting for it");
            }
        }
    }
}
