//! Snapshot of the runtimes, models and classes that services select from, read from the stores once per change and
//! shared by all reconciles.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Document;
use cluster::{Kind, NamespacedName, Stores, is_served};
use decide::Inventory;
use plan::{AutoscalerSupport, Snapshot};
use serde_json::Value;

use crate::invalid_object::InvalidObject;
use crate::inventory::InventoryTracker;
use crate::kinds::{
    ACCELERATOR_CLASS, CLUSTER_SERVING_RUNTIME, NODE, POD, SCALED_OBJECT, SELECTION_KINDS, SERVING_RUNTIME,
};
use crate::pod_group_schema;
use crate::status_inputs::ObjectVersions;

/// Objects that services select from.
#[derive(Clone, Default)]
pub(crate) struct SelectionSnapshot {
    /// The valid objects and the inventory.
    pub(crate) snapshot: Snapshot,
    /// The invalid objects.
    pub(crate) invalid_objects: Vec<InvalidObject>,
    /// Versions of all of these objects.
    pub(crate) versions: Arc<ObjectVersions>,
}

/// Cache of the latest snapshot. Runtimes, models and classes are read again if one of them changes; the inventory of
/// nodes and Pods is replaced separately.
#[derive(Default)]
pub(crate) struct SnapshotCache {
    state: Mutex<CacheState>,
}

/// The cached snapshot and its epoch.
#[derive(Default)]
struct CacheState {
    snapshot: Option<Arc<SelectionSnapshot>>,
    /// Whether the snapshot contains the current inventory.
    has_inventory: bool,
    /// Incremented with every change; a decision is valid within one epoch.
    epoch: u64,
}

// === impl SelectionSnapshot ===

impl SelectionSnapshot {
    /// Reads the objects from the stores.
    fn read(stores: &Stores, inventory: Arc<Inventory>, accelerator_aware: bool) -> SelectionSnapshot {
        let has_keda = is_served(stores, SCALED_OBJECT);
        let mut snapshot = Snapshot {
            inventory,
            accelerator_aware,
            autoscaler_support: if has_keda { AutoscalerSupport::HpaAndKeda } else { AutoscalerSupport::HpaOnly },
            pod_group_schema: pod_group_schema::installed_schema(stores),
            ..Snapshot::default()
        };
        let (mut invalid_objects, mut versions) = (Vec::new(), ObjectVersions::default());
        for kind in SELECTION_KINDS {
            for object in stores.list(kind) {
                versions.insert(kind, &object);
                if let Err(error) = add_object(&mut snapshot, kind, &object) {
                    invalid_objects.push(InvalidObject { kind, key: NamespacedName::from_object(&object), error });
                }
            }
        }
        SelectionSnapshot { snapshot, invalid_objects, versions: Arc::new(versions) }
    }
}

// === impl SnapshotCache ===

impl SnapshotCache {
    /// Returns the current snapshot and its epoch.
    pub(crate) fn current(
        &self,
        stores: &Stores,
        inventory: &InventoryTracker,
        accelerator_aware: bool,
    ) -> (Arc<SelectionSnapshot>, u64) {
        let mut state = self.lock();
        let snapshot = match state.snapshot.take() {
            Some(snapshot) if state.has_inventory => snapshot,
            Some(mut snapshot) => {
                Arc::make_mut(&mut snapshot).snapshot.inventory = inventory.current();
                snapshot
            }
            None => Arc::new(SelectionSnapshot::read(stores, inventory.current(), accelerator_aware)),
        };
        state.has_inventory = true;
        (Arc::clone(state.snapshot.insert(snapshot)), state.epoch)
    }

    /// Drops the snapshot after a runtime, model or class changed.
    pub(crate) fn invalidate(&self) {
        let mut state = self.lock();
        state.snapshot = None;
        state.epoch = state.epoch.wrapping_add(1);
    }

    /// Releases the snapshot's inventory before a node or Pod changes, so that the inventory is updated in place
    /// instead of being copied.
    pub(crate) fn release_inventory(&self) {
        let mut state = self.lock();
        state.epoch = state.epoch.wrapping_add(1);
        if std::mem::take(&mut state.has_inventory)
            && let Some(snapshot) = &mut state.snapshot
        {
            Arc::make_mut(snapshot).snapshot.inventory = Arc::default();
        }
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the kinds that decisions depend on and that are not listed yet, for example for lack of permissions.
pub(crate) fn unlisted_selection_kinds(
    stores: &Stores,
    inventory: &InventoryTracker,
    accelerator_aware: bool,
) -> Vec<String> {
    let custom = SELECTION_KINDS.into_iter().filter(|kind| is_served(stores, *kind));
    // The inventory observes the initial list later than the stores do.
    let is_in_inventory = |kind: Kind| {
        !accelerator_aware || ![NODE, POD, ACCELERATOR_CLASS].contains(&kind) || inventory.has_synced(&[kind])
    };
    let unlisted =
        [POD, NODE].into_iter().chain(custom).filter(|kind| !(stores.has_synced(*kind) && is_in_inventory(*kind)));
    unlisted.map(|kind| kind.group_resource()).collect()
}

/// Adds one object to the snapshot.
///
/// # Errors
/// Returns the invalid field and its error.
fn add_object(snapshot: &mut Snapshot, kind: Kind, object: &Value) -> Result<(), String> {
    let message = |error: api::ManifestError| match &error.path {
        Some(path) => format!("{path}: {}", error.cause),
        None => error.cause.clone(),
    };
    let document = document(kind, object);
    snapshot.add_supply(&document).map_err(message)?;
    if ![SERVING_RUNTIME, CLUSTER_SERVING_RUNTIME].contains(&kind) {
        return Ok(());
    }
    match snapshot.runtimes.iter().rev().find(|runtime| document.name() == runtime.name) {
        Some(runtime) => runtime.parsed().map(drop).map_err(ToString::to_string),
        None => Ok(()),
    }
}

/// Wraps an object as a manifest document.
pub(crate) fn document(kind: Kind, object: &Value) -> Document {
    Document { source: kind.group_resource(), index: 1, value: object.clone() }
}
