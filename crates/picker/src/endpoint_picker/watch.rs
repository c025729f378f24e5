//! Keeps the endpoints in step with the cluster.
//!
//! Least rights, all in the pool's namespace: `list` and `watch` of `pods`, and of `inferencepools` in the pool's group
//! (a rule with `resourceNames` of that one pool is enough). Nothing is written.

use std::{str::FromStr, sync::Arc};

use cluster::{Key, Kind, Stores, Watches};
use tokio_util::sync::CancellationToken;

use super::EndpointPicker;

const PODS: Kind = Kind::namespaced("", "v1", "Pod", "pods");

/// The API group that an InferencePool is read in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PoolGroup {
    /// `inference.networking.k8s.io/v1`
    #[default]
    Stable,
    /// `inference.networking.x-k8s.io/v1alpha2`
    Experimental,
}

impl PoolGroup {
    const NAMES: [(&str, PoolGroup); 2] =
        [("inference.networking.k8s.io", Self::Stable), ("inference.networking.x-k8s.io", Self::Experimental)];

    fn kind(self) -> Kind {
        match self {
            Self::Stable => Kind::namespaced(Self::NAMES[0].0, "v1", "InferencePool", "inferencepools"),
            Self::Experimental => Kind::namespaced(Self::NAMES[1].0, "v1alpha2", "InferencePool", "inferencepools"),
        }
    }
}

impl FromStr for PoolGroup {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, group)| *group);
        found.ok_or_else(|| format!("InferencePools are in {} or {}", Self::NAMES[0].0, Self::NAMES[1].0))
    }
}

/// Watches the picker's pool, and the Pods of its namespace, until `stop`. Nothing is written.
pub async fn watch(client: kube::Client, group: PoolGroup, picker: Arc<EndpointPicker>, stop: CancellationToken) {
    let stores = Stores::new("ostler-endpoint-picker");
    let (mut watches, mut changes) = Watches::new(client, stores.clone(), stop.clone());
    let key = Key::new(&picker.pool.namespace, &picker.pool.name);
    let pools = group.kind();
    watches.start_one(pools, &key);
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
        if [pools, PODS].into_iter().all(|kind| stores.synced(kind)) {
            let pool = stores.get(pools, &key);
            picker.update(pool.as_deref(), &stores.list(PODS));
            if told.replace(pool.is_some()) != Some(pool.is_some()) && pool.is_none() {
                tracing::warn!(pool = %picker.pool, "there is no such InferencePool; waiting for it");
            }
        }
    }
}
