//! Maintains the inventory of nodes, Pods and classes from watch events.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use cluster::{Change, Kind, NamespacedName, metadata_field};
use decide::{Inventory, node_info};
use serde::Deserialize as _;
use serde_json::Value;

use crate::kinds::{ACCELERATOR_CLASS, BASE_SET_CONFIG_MAP, NODE, POD, RESOURCE_FLAVORS};
use crate::triggers::{WorkItem, differ, occupied_node, user_fields};

/// Current inventory, shared with decisions without copying it.
#[derive(Debug, Default)]
pub(crate) struct InventoryTracker {
    state: Mutex<InventoryState>,
}

#[derive(Debug, Default)]
struct InventoryState {
    inventory: Arc<Inventory>,
    /// Kinds whose initial list is complete; counts are wrong until then.
    synced: BTreeSet<Kind>,
}

// === impl InventoryTracker ===

impl InventoryTracker {
    /// Returns the current inventory.
    pub(crate) fn current(&self) -> Arc<Inventory> {
        Arc::clone(&self.lock().inventory)
    }

    /// Returns whether the initial lists of all `kinds` were observed.
    pub(crate) fn has_synced(&self, kinds: &[Kind]) -> bool {
        let state = self.lock();
        kinds.iter().all(|kind| state.synced.contains(kind))
    }

    /// Marks the initial list of `kind` as observed; returns the work items that waited for it.
    pub(crate) fn mark_synced(&self, kind: Kind) -> Vec<WorkItem> {
        let mut state = self.lock();
        state.synced.insert(kind);
        match kind {
            NODE | POD | ACCELERATOR_CLASS => {
                let classes = state.inventory.class_totals().map(|(name, _)| WorkItem::Class(name.to_owned()));
                classes.chain([WorkItem::ClassDiscovery, WorkItem::ResourceFlavors, WorkItem::BaseSet]).collect()
            }
            BASE_SET_CONFIG_MAP => vec![WorkItem::BaseSet],
            _ if RESOURCE_FLAVORS.contains(&kind) => vec![WorkItem::ResourceFlavors],
            _ => Vec::new(),
        }
    }

    /// Marks `kind` as not listed, because it is no longer served.
    pub(crate) fn mark_unsynced(&self, kind: Kind) {
        self.lock().synced.remove(&kind);
    }

    /// Observes a change; returns the work items to enqueue. Items that write classes precede items that write the
    /// status of classes.
    pub(crate) fn observe(&self, change: &Change) -> Vec<WorkItem> {
        let Change::Object { kind, key, old, new } = change else { return Vec::new() };
        let mut state = self.lock();
        let mut items = match *kind {
            NODE => observe_node(&mut state, key, old.as_deref(), new.as_deref()),
            POD => observe_pod(&mut state, key, old.as_deref(), new.as_deref()),
            ACCELERATOR_CLASS => observe_class(&mut state, key, old.as_deref(), new.as_deref()),
            BASE_SET_CONFIG_MAP => vec![WorkItem::BaseSet],
            kind if RESOURCE_FLAVORS.contains(&kind) => vec![WorkItem::ResourceFlavors],
            _ => return Vec::new(),
        };
        if !state.inventory.is_unchanged() {
            let changed = Arc::make_mut(&mut state.inventory).take_changed();
            items.extend(changed.into_iter().map(WorkItem::Class));
        }
        items
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, InventoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Updates a node. ResourceFlavors are enqueued too because a class created from a flavor contains facts about its
/// nodes.
fn observe_node(
    state: &mut InventoryState,
    key: &NamespacedName,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Vec<WorkItem> {
    // A node heartbeat must not cause a copy of an inventory that is shared with a snapshot.
    if !differ(old, new, node_info) {
        return Vec::new();
    }
    let has_changed = Arc::make_mut(&mut state.inventory).set_node(&key.name, new);
    if has_changed { vec![WorkItem::ClassDiscovery, WorkItem::ResourceFlavors] } else { Vec::new() }
}

fn observe_pod(
    state: &mut InventoryState,
    key: &NamespacedName,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Vec<WorkItem> {
    if differ(old, new, occupied_node) {
        Arc::make_mut(&mut state.inventory).set_pod(&key.namespace, &key.name, new);
    }
    Vec::new()
}

fn observe_class(
    state: &mut InventoryState,
    key: &NamespacedName,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Vec<WorkItem> {
    if !differ(old, new, user_fields) {
        return Vec::new();
    }
    Arc::make_mut(&mut state.inventory).set_class(&key.name, new.and_then(|class| parse_class(class).ok()));
    vec![WorkItem::ClassDiscovery, WorkItem::ResourceFlavors, WorkItem::BaseSet]
}

/// Parses an AcceleratorClass.
///
/// # Errors
/// Returns the invalid field and its error.
pub(crate) fn parse_class(class: &Value) -> Result<decide::Class, String> {
    let class_object = api::ome::AcceleratorClass::deserialize(class).map_err(|error| error.to_string())?;
    decide::Class::from_api(&class_object, None).map_err(|error| error.to_string())
}

/// Parses the shipped classes for discovery; invalid ones are skipped.
pub(crate) fn parse_known_classes(classes: &[Value]) -> Vec<(decide::Class, Value)> {
    let parse = |class: &Value| match parse_class(class) {
        Ok(parsed) => Some((parsed, class.clone())),
        Err(error) => {
            tracing::warn!(name = metadata_field(class, "name"), error, "ignoring an invalid shipped class");
            None
        }
    };
    classes.iter().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn change(kind: Kind, old: Option<&Value>, new: Option<&Value>) -> Change {
        let to_arc = |value: Option<&Value>| value.cloned().map(Arc::new);
        let key = new.or(old).map(NamespacedName::from_object).unwrap();
        Change::Object { kind, key, old: to_arc(old), new: to_arc(new) }
    }

    fn node(heartbeat: &str, allocatable: &str) -> Value {
        json!({"metadata": {"name": "a", "resourceVersion": heartbeat, "labels": {"gpu": "x"}},
            "status": {"allocatable": {"nvidia.com/gpu": allocatable}, "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]}})
    }

    // spec: ACC-46
    #[test]
    fn enqueues_items_only_for_relevant_changes() {
        let tracker = InventoryTracker::default();
        let class = json!({"metadata": {"name": "x"}, "spec": {"discovery": {"nodeSelector": {"gpu": "x"}}, "capabilities": {}}});
        tracker.observe(&change(ACCELERATOR_CLASS, None, Some(&class)));
        let items = tracker.observe(&change(NODE, None, Some(&node("1", "8"))));
        assert_eq!(items, [WorkItem::ClassDiscovery, WorkItem::ResourceFlavors, WorkItem::Class("x".to_owned())]);
        assert_eq!(tracker.observe(&change(NODE, Some(&node("1", "8")), Some(&node("2", "8")))), []);
        let mut with_status = class.clone();
        with_status["status"] = json!({"availableAccelerators": 8});
        assert_eq!(tracker.observe(&change(ACCELERATOR_CLASS, Some(&class), Some(&with_status))), []);
        let pod = |phase: &str| {
            json!({"metadata": {"namespace": "n", "name": "p"}, "status": {"phase": phase}, "spec": {"nodeName": "a",
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}})
        };
        let (pending, running, succeeded) = (pod("Pending"), pod("Running"), pod("Succeeded"));
        assert_eq!(tracker.observe(&change(POD, None, Some(&pending))), [WorkItem::Class("x".to_owned())]);
        assert_eq!(tracker.observe(&change(POD, Some(&pending), Some(&running))), []);
        assert_eq!(tracker.observe(&change(POD, Some(&running), Some(&succeeded))), [WorkItem::Class("x".to_owned())]);
    }

    #[test]
    fn shared_inventory_is_not_modified() {
        let tracker = InventoryTracker::default();
        tracker.observe(&change(NODE, None, Some(&node("1", "8"))));
        let shared_inventory = tracker.current();
        tracker.observe(&change(NODE, Some(&node("1", "8")), None));
        assert!(shared_inventory.has_nodes());
        assert!(!tracker.current().has_nodes());
    }
}
