//! What the scheduler looks at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::selector::LabelSelector;
use serde_json::Value;

use crate::object;

/// The objects of one moment.
#[derive(Debug, Clone, Default)]
pub struct World {
    pub pods: Vec<Arc<Value>>,
    pub nodes: Vec<Arc<Value>>,
    /// Volcano's PodGroups.
    pub groups: Vec<Arc<Value>>,
    /// For the `namespaceSelector` of Pod affinity.
    pub namespaces: Vec<Arc<Value>>,
    /// PodDisruptionBudgets, which preemption keeps where it can.
    pub budgets: Vec<Arc<Value>>,
    /// Without it, claims of Pods are not looked at.
    pub storage: Option<Storage>,
}

/// What the volumes of Pods refer to: PersistentVolumeClaims, PersistentVolumes, StorageClasses.
#[derive(Debug, Clone, Default)]
pub struct Storage {
    pub claims: Vec<Arc<Value>>,
    pub volumes: Vec<Arc<Value>>,
    pub classes: Vec<Arc<Value>>,
}

/// Objects of one kind by namespace and name.
pub(super) type ByName<'a> = BTreeMap<(&'a str, &'a str), &'a Value>;

pub(super) fn by_name(objects: &[Arc<Value>]) -> ByName<'_> {
    objects.iter().map(|one| ((object::namespace(one), object::name(one)), one.as_ref())).collect()
}

/// The names of the namespaces that a selector selects.
pub(super) fn selected(namespaces: &[Arc<Value>], selector: &LabelSelector) -> BTreeSet<String> {
    let chosen = namespaces.iter().filter(|namespace| selector.matches_object(namespace));
    chosen.map(|namespace| object::name(namespace).to_owned()).collect()
}
