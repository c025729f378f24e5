//! Watches one InferencePool and the Pods of its namespace.
//!
//! Required permissions in the namespace of the pool: `list` and `watch` of `pods`, and of `inferencepools` in the API
//! group of the pool (a rule with the name of this pool in `resourceNames` is sufficient). The watch writes no objects.

use std::{str::FromStr, sync::Arc};

use cluster::{Kind, NamespacedName, Stores, Watches};
use supervisor::TaskFailure;
use tokio_util::sync::CancellationToken;

use super::EndpointPicker;

const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");

/// API group of the InferencePool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PoolGroup {
    /// `inference.networking.k8s.io/v1`
    #[default]
    Stable,
    /// `inference.networking.x-k8s.io/v1alpha2`
    Experimental,
}

impl PoolGroup {
    const GROUPS: [(&str, PoolGroup); 2] =
        [("inference.networking.k8s.io", Self::Stable), ("inference.networking.x-k8s.io", Self::Experimental)];

    fn kind(self) -> Kind {
        match self {
            Self::Stable => Kind::namespaced(Self::GROUPS[0].0, "v1", "InferencePool", "inferencepools"),
            Self::Experimental => Kind::namespaced(Self::GROUPS[1].0, "v1alpha2", "InferencePool", "inferencepools"),
        }
    }
}

impl FromStr for PoolGroup {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let group = Self::GROUPS.iter().find(|(group_name, _)| *group_name == name).map(|(_, group)| *group);
        group.ok_or_else(|| {
            format!("InferencePool is not served in this API group; use {} or {}", Self::GROUPS[0].0, Self::GROUPS[1].0)
        })
    }
}

/// Watches the pool of `picker` and the Pods of its namespace until `shutdown`. A task that panics is restarted; until then,
/// the picker uses the last endpoints and is not ready.
///
/// # Errors
/// Restarts do not help.
pub async fn watch_inference_pool(
    client: kube::Client,
    group: PoolGroup,
    picker: Arc<EndpointPicker>,
    shutdown: CancellationToken,
) -> Result<(), TaskFailure> {
    let supervisor = picker.supervisor.clone();
    let stop = shutdown.clone();
    let start = move || update_endpoints(client.clone(), group, Arc::clone(&picker), stop.clone());
    supervisor.run_unless_failed(supervisor.supervise("update of the endpoints", shutdown, start)).await
}

/// Updates the endpoints of `picker` until `shutdown`.
async fn update_endpoints(
    client: kube::Client,
    group: PoolGroup,
    picker: Arc<EndpointPicker>,
    shutdown: CancellationToken,
) {
    let stores = Stores::new("ostler-endpoint-picker");
    let (mut watches, mut changes) = Watches::new(client, stores.clone(), picker.supervisor.clone(), shutdown.clone());
    let key = NamespacedName::new(&picker.pool.namespace, &picker.pool.name);
    let inference_pool = group.kind();
    watches.start_named(inference_pool, &key);
    watches.start_namespace(POD, &key.namespace);
    let mut last_reported = None;
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            change = changes.recv() => if change.is_none() { return },
        }
        // Update the endpoints once for all pending changes.
        while changes.try_recv().is_ok() {}
        // Before the first lists are complete, endpoints would be missing.
        if [inference_pool, POD].into_iter().all(|kind| stores.has_synced(kind)) {
            let pool = stores.get(inference_pool, &key);
            picker.update(pool.as_deref(), &stores.list(POD));
            if last_reported.replace(pool.is_some()) != Some(pool.is_some()) && pool.is_none() {
                tracing::warn!(pool = %picker.pool, "InferencePool not found, waiting for it");
            }
        }
    }
}
