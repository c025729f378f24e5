//! The kinds that the controller watches.

use cluster::{CachePolicy, CachedFields, Kind, Representation};

pub(crate) const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");
pub(crate) const NODE: Kind = Kind::cluster_scoped("", "v1", "Node", "nodes");
pub(crate) const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");
/// Sets that adopt Pods by their labels.
const OWNERS: [Kind; 2] = [
    Kind::namespaced("apps", "v1", "ReplicaSet", "replicasets"),
    Kind::namespaced("apps", "v1", "StatefulSet", "statefulsets"),
];

/// Returns the kinds that a [`Coordinator`](crate::Coordinator) reads from its caches.
#[must_use]
pub fn watched_kinds() -> Vec<Kind> {
    [POD, NODE, CONFIG_MAP].into_iter().chain(OWNERS).collect()
}

/// Returns how the objects of a kind are cached.
#[must_use]
pub fn cache_policy(kind: Kind) -> CachePolicy {
    let fields = if kind == POD { CachedFields::Whole } else { CachedFields::Reduced };
    CachePolicy { representation: Representation::Serialized, fields, ..CachePolicy::default() }
}

/// Whether the objects of the kind own requesters.
pub(super) fn is_owner_kind(kind: Kind) -> bool {
    OWNERS.contains(&kind)
}

/// Returns the kind of an owner reference.
pub(super) fn owner_kind(api_version: &str, kind: &str) -> Option<Kind> {
    OWNERS.into_iter().find(|owner| owner.kind == kind && owner.api_version() == api_version)
}
