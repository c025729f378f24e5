//! State derived from watch events, updated one change at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::{Change, Kind, NamespacedName, Stores};
use jiff::Timestamp;
use serde_json::Value;

use crate::claims::Claims;
use crate::crash_tracker::CrashTracker;
use crate::decision_cache::DecisionCache;
use crate::internal_errors::InternalErrors;
use crate::inventory::InventoryTracker;
use crate::kinds::{OME_SERVICE, POD, SERVICES};
use crate::owning_service::service_of_pod;
use crate::retained_objects::RetainedObjects;
use crate::selection_snapshot::SnapshotCache;
use crate::service_index::ServiceIndex;

/// Indexes and caches over the stores.
#[derive(Default)]
pub(crate) struct ClusterState {
    /// All services, by the facts that determine which of them to enqueue.
    service_index: Mutex<ServiceIndex>,
    /// Nodes, Pods and classes; empty if the feature gate is off.
    pub(crate) inventory: InventoryTracker,
    /// Accelerators that services claim.
    pub(crate) claims: Claims,
    /// Crashed Pods that were replaced.
    pub(crate) crash_tracker: CrashTracker,
    /// Objects that services select from.
    pub(crate) snapshot_cache: SnapshotCache,
    /// Recent selections.
    pub(crate) decision_cache: DecisionCache,
    /// Obsolete objects that are not deleted.
    pub(crate) retained_objects: RetainedObjects,
    /// Panics to report on services.
    pub(crate) internal_errors: InternalErrors,
    /// Feature gate `AcceleratorAwareScheduling`.
    accelerator_aware: bool,
}

// === impl ClusterState ===

impl ClusterState {
    /// Returns an empty state.
    pub(crate) fn new(accelerator_aware: bool) -> ClusterState {
        ClusterState { accelerator_aware, ..ClusterState::default() }
    }

    /// Applies a change that `stores` already contain; returns the names of the classes whose nodes or free capacity
    /// changed.
    pub(crate) fn apply(&self, change: &Change, stores: &Stores, now: Timestamp) -> Vec<String> {
        let (kind, key, old, new) = match change {
            Change::Synced(kind) => {
                self.inventory.mark_synced(*kind);
                return Vec::new();
            }
            Change::Object { kind, key, old, new } => (*kind, key, old.as_deref(), new.as_deref()),
        };
        self.crash_tracker.apply(change, now);
        if SERVICES.contains(&kind) {
            self.apply_service(kind, key, stores.get(kind, key).as_deref());
        }
        if kind == OME_SERVICE && new.is_none() {
            self.decision_cache.remove(key);
        }
        let affected_classes = if self.accelerator_aware { self.inventory.apply(change) } else { Vec::new() };
        if kind == POD {
            self.apply_pod(old, new);
        }
        affected_classes
    }

    /// Applies the latest version of a service, which may be a status that the operator wrote and that no watch event
    /// has delivered yet; `None` if the service was deleted.
    pub(crate) fn apply_service(&self, kind: Kind, key: &NamespacedName, service: Option<&Value>) {
        self.service_index().apply(kind, key, service);
        if kind == OME_SERVICE {
            self.claims.observe(key, service, &self.inventory.current());
        }
    }

    /// Updates the claims of the services of a Pod. The inventory already contains the change.
    fn apply_pod(&self, old: Option<&Value>, new: Option<&Value>) {
        for (kind, key) in [old, new].into_iter().flatten().filter_map(service_of_pod) {
            if kind == OME_SERVICE {
                self.claims.update_pending(&key, &self.inventory.current());
            }
        }
    }

    /// Returns the index of all services.
    pub(crate) fn service_index(&self) -> MutexGuard<'_, ServiceIndex> {
        self.service_index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
