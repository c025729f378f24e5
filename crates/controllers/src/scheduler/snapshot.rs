//! The objects that a scheduling cycle reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::{LabelSelector, object};
use serde_json::Value;

/// A consistent snapshot of the objects that scheduling depends on.
#[derive(Debug, Clone, Default)]
pub struct SchedulingSnapshot {
    /// Pods of all namespaces.
    pub pods: Vec<Arc<Value>>,
    /// Nodes.
    pub nodes: Vec<Arc<Value>>,
    /// PodGroups of Volcano.
    pub groups: Vec<Arc<Value>>,
    /// Namespaces, for the `namespaceSelector` of Pod affinity.
    pub namespaces: Vec<Arc<Value>>,
    /// PodDisruptionBudgets, which preemption respects where possible.
    pub budgets: Vec<Arc<Value>>,
    /// Objects that the `VolumeBinding` plugin reads. If `None`, the PersistentVolumeClaims of Pods are ignored.
    pub storage: Option<StorageObjects>,
}

/// The storage objects that the volumes of Pods refer to.
#[derive(Debug, Clone, Default)]
pub struct StorageObjects {
    /// PersistentVolumeClaims.
    pub claims: Vec<Arc<Value>>,
    /// PersistentVolumes.
    pub volumes: Vec<Arc<Value>>,
    /// StorageClasses.
    pub classes: Vec<Arc<Value>>,
}

/// Objects of one kind by namespace and name.
pub(super) type ObjectIndex<'a> = BTreeMap<(&'a str, &'a str), &'a Value>;

/// Indexes objects by namespace and name.
pub(super) fn index_by_name(objects: &[Arc<Value>]) -> ObjectIndex<'_> {
    objects.iter().map(|object| ((object::namespace(object), object::name(object)), object.as_ref())).collect()
}

/// Returns the names of the namespaces whose labels match the selector.
pub(super) fn select_namespaces(namespaces: &[Arc<Value>], selector: &LabelSelector) -> BTreeSet<String> {
    let matching = namespaces.iter().filter(|namespace| selector.matches_object(namespace));
    matching.map(|namespace| object::name(namespace).to_owned()).collect()
}
