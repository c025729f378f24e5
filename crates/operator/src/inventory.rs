//! Maintains the inventory of nodes, Pods and classes from watch events.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use cluster::{Change, Kind, metadata_field};
use decide::{Inventory, node_info};
use serde::Deserialize as _;
use serde_json::Value;

use crate::kinds::{ACCELERATOR_CLASS, NODE, POD};
use crate::relevant_fields::{differ, occupied_node, user_fields};

/// Current inventory, shared with decisions without copying it.
#[derive(Debug, Default)]
pub(crate) struct InventoryTracker {
    state: Mutex<InventoryState>,
}

/// The inventory, and what it was built from.
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

    /// Returns the names of all classes.
    pub(crate) fn class_names(&self) -> Vec<String> {
        self.lock().inventory.class_totals().map(|(name, _)| name.to_owned()).collect()
    }

    /// Marks the initial list of `kind` as observed.
    pub(crate) fn mark_synced(&self, kind: Kind) {
        self.lock().synced.insert(kind);
    }

    /// Marks `kind` as not listed, because it is no longer served.
    pub(crate) fn mark_unsynced(&self, kind: Kind) {
        self.lock().synced.remove(&kind);
    }

    /// Applies a change of a node, Pod or class; returns the names of the classes whose nodes or free capacity changed.
    pub(crate) fn apply(&self, change: &Change) -> Vec<String> {
        let Change::Object { kind, key, old, new } = change else { return Vec::new() };
        let (old, new) = (old.as_deref(), new.as_deref());
        // An irrelevant change, such as a heartbeat, must not cause a copy of an inventory that a snapshot shares.
        let is_relevant = match *kind {
            NODE => differ(old, new, node_info),
            POD => differ(old, new, occupied_node),
            ACCELERATOR_CLASS => differ(old, new, user_fields),
            _ => false,
        };
        if !is_relevant {
            return Vec::new();
        }
        let mut state = self.lock();
        let inventory = Arc::make_mut(&mut state.inventory);
        match *kind {
            NODE => drop(inventory.set_node(&key.name, new)),
            POD => inventory.set_pod(&key.namespace, &key.name, new),
            _ => inventory.set_class(&key.name, new.and_then(|class| parse_class(class).ok())),
        }
        inventory.take_changed().into_iter().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, InventoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses an AcceleratorClass.
///
/// # Errors
/// Returns the invalid field and its error.
pub(crate) fn parse_class(class: &Value) -> Result<decide::Class, String> {
    let class_object = api::ome::AcceleratorClass::deserialize(class).map_err(|error| error.to_string())?;
    decide::Class::from_api(&class_object, None).map_err(|error| error.to_string())
}

/// Parses the shipped classes for [`decide::discover_classes`]; invalid ones are skipped.
#[must_use]
pub fn parse_known_classes(classes: &[Value]) -> Vec<(decide::Class, Value)> {
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
    use cluster::NamespacedName;
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
    fn only_relevant_changes_affect_classes() {
        let tracker = InventoryTracker::default();
        let class = json!({"metadata": {"name": "x"}, "spec": {"discovery": {"nodeSelector": {"gpu": "x"}}, "capabilities": {}}});
        tracker.apply(&change(ACCELERATOR_CLASS, None, Some(&class)));
        assert_eq!(tracker.apply(&change(NODE, None, Some(&node("1", "8")))), ["x"]);
        assert_eq!(tracker.apply(&change(NODE, Some(&node("1", "8")), Some(&node("2", "8")))), [""; 0]);
        let mut with_status = class.clone();
        with_status["status"] = json!({"availableAccelerators": 8});
        assert_eq!(tracker.apply(&change(ACCELERATOR_CLASS, Some(&class), Some(&with_status))), [""; 0]);
        let pod = |phase: &str| {
            json!({"metadata": {"namespace": "n", "name": "p"}, "status": {"phase": phase}, "spec": {"nodeName": "a",
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}})
        };
        let (pending, running, succeeded) = (pod("Pending"), pod("Running"), pod("Succeeded"));
        assert_eq!(tracker.apply(&change(POD, None, Some(&pending))), ["x"]);
        assert_eq!(tracker.apply(&change(POD, Some(&pending), Some(&running))), [""; 0]);
        assert_eq!(tracker.apply(&change(POD, Some(&running), Some(&succeeded))), ["x"]);
    }

    #[test]
    fn shared_inventory_is_not_modified() {
        let tracker = InventoryTracker::default();
        tracker.apply(&change(NODE, None, Some(&node("1", "8"))));
        let shared_inventory = tracker.current();
        tracker.apply(&change(NODE, Some(&node("1", "8")), None));
        assert!(shared_inventory.has_nodes());
        assert!(!tracker.current().has_nodes());
    }
}
