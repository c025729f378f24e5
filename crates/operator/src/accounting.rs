//! Feeds the inventory with what watches deliver, and says which work on classes a change asks for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use cluster::object::meta;
use cluster::{Change, Key, Kind};
use decide::inventory::{Index, node_facts};
use serde::Deserialize as _;
use serde_json::Value;

use crate::kinds::{BASE_SET, CLASS, FLAVORS, NODE, POD};
use crate::wake::{Item, differ, occupies, written};

/// What is known of nodes, Pods and classes at this moment, shared with plans without a copy.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    index: Arc<Index>,
    /// Kinds whose first list has been taken in to its end: numbers before would be wrong.
    complete: BTreeSet<Kind>,
}

// === impl Accounts ===

impl Accounts {
    /// The inventory as it is now.
    pub(crate) fn index(&self) -> Arc<Index> {
        Arc::clone(&self.lock().index)
    }

    /// Whether the first list of every one of `kinds` has been taken in.
    pub(crate) fn complete(&self, kinds: &[Kind]) -> bool {
        let state = self.lock();
        kinds.iter().all(|kind| state.complete.contains(kind))
    }

    /// The first list of `kind` has been taken in.
    pub(crate) fn completed(&self, kind: Kind) -> Vec<Item> {
        let mut state = self.lock();
        state.complete.insert(kind);
        match kind {
            NODE | POD | CLASS => {
                let classes = state.index.numbers().map(|(name, _)| Item::Class(name.to_owned()));
                classes.chain([Item::Discovery, Item::Flavors, Item::BaseSet]).collect()
            }
            BASE_SET => vec![Item::BaseSet],
            _ if FLAVORS.contains(&kind) => vec![Item::Flavors],
            _ => Vec::new(),
        }
    }

    /// `kind` is served no longer.
    pub(crate) fn ended(&self, kind: Kind) {
        self.lock().complete.remove(&kind);
    }

    /// Takes one change in; returns what it asks for. Work on classes comes before what depends on it.
    pub(crate) fn take(&self, change: &Change) -> Vec<Item> {
        let Change::Object { kind, key, old, new } = change else { return Vec::new() };
        let mut state = self.lock();
        let mut asked = match *kind {
            NODE => node(&mut state, key, old.as_deref(), new.as_deref()),
            POD => pod(&mut state, key, old.as_deref(), new.as_deref()),
            CLASS => class(&mut state, key, old.as_deref(), new.as_deref()),
            BASE_SET => vec![Item::BaseSet],
            kind if FLAVORS.contains(&kind) => vec![Item::Flavors],
            _ => return Vec::new(),
        };
        if !state.index.is_settled() {
            let changed = Arc::make_mut(&mut state.index).take_changed();
            asked.extend(changed.into_iter().map(Item::Class));
        }
        asked
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flavor's class takes facts from the nodes that the flavor selects.
fn node(state: &mut State, key: &Key, old: Option<&Value>, new: Option<&Value>) -> Vec<Item> {
    // A heartbeat must not copy an index that an offer shares.
    if !differ(old, new, node_facts) {
        return Vec::new();
    }
    let moved = Arc::make_mut(&mut state.index).set_node(&key.name, new);
    if moved { vec![Item::Discovery, Item::Flavors] } else { Vec::new() }
}

fn pod(state: &mut State, key: &Key, old: Option<&Value>, new: Option<&Value>) -> Vec<Item> {
    if differ(old, new, occupies) {
        Arc::make_mut(&mut state.index).set_pod(&key.namespace, &key.name, new);
    }
    Vec::new()
}

fn class(state: &mut State, key: &Key, old: Option<&Value>, new: Option<&Value>) -> Vec<Item> {
    if !differ(old, new, written) {
        return Vec::new();
    }
    Arc::make_mut(&mut state.index).set_class(&key.name, new.and_then(|class| read(class).ok()));
    vec![Item::Discovery, Item::Flavors, Item::BaseSet]
}

/// The class as accounting sees it.
///
/// # Errors
/// The field that cannot be understood, in words.
pub(crate) fn read(class: &Value) -> Result<decide::Class, String> {
    let typed = api::ome::AcceleratorClass::deserialize(class).map_err(|error| error.to_string())?;
    decide::Class::from_api(&typed, None).map_err(|error| error.to_string())
}

/// Shipped classes as discovery looks them up; one that cannot be read is left out.
pub(crate) fn known(classes: &[Value]) -> Vec<(decide::Class, Value)> {
    let read = |class: &Value| match read(class) {
        Ok(facts) => Some((facts, class.clone())),
        Err(problem) => {
            tracing::warn!(class = meta(class, "name"), problem, "a shipped class cannot be read");
            None
        }
    };
    classes.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn change(kind: Kind, old: Option<&Value>, new: Option<&Value>) -> Change {
        let arc = |value: Option<&Value>| value.cloned().map(Arc::new);
        let key = new.or(old).map(Key::of).unwrap();
        Change::Object { kind, key, old: arc(old), new: arc(new) }
    }

    fn node(beat: &str, free: &str) -> Value {
        json!({"metadata": {"name": "a", "resourceVersion": beat, "labels": {"gpu": "x"}},
            "status": {"allocatable": {"nvidia.com/gpu": free}, "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}]}})
    }

    // spec: ACC-46
    #[test]
    fn only_what_counts_asks_for_work() {
        let accounts = Accounts::default();
        let class = json!({"metadata": {"name": "x"}, "spec": {"discovery": {"nodeSelector": {"gpu": "x"}}, "capabilities": {}}});
        accounts.take(&change(CLASS, None, Some(&class)));
        let joined = accounts.take(&change(NODE, None, Some(&node("1", "8"))));
        assert_eq!(joined, [Item::Discovery, Item::Flavors, Item::Class("x".to_owned())]);
        assert_eq!(accounts.take(&change(NODE, Some(&node("1", "8")), Some(&node("2", "8")))), []);
        let mut counted = class.clone();
        counted["status"] = json!({"availableAccelerators": 8});
        assert_eq!(accounts.take(&change(CLASS, Some(&class), Some(&counted))), []);
        let pod = |phase: &str| {
            json!({"metadata": {"namespace": "n", "name": "p"}, "status": {"phase": phase}, "spec": {"nodeName": "a",
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}})
        };
        let (pending, running, ended) = (pod("Pending"), pod("Running"), pod("Succeeded"));
        assert_eq!(accounts.take(&change(POD, None, Some(&pending))), [Item::Class("x".to_owned())]);
        assert_eq!(accounts.take(&change(POD, Some(&pending), Some(&running))), []);
        assert_eq!(accounts.take(&change(POD, Some(&running), Some(&ended))), [Item::Class("x".to_owned())]);
    }

    #[test]
    fn a_plan_in_progress_keeps_its_view() {
        let accounts = Accounts::default();
        accounts.take(&change(NODE, None, Some(&node("1", "8"))));
        let view = accounts.index();
        accounts.take(&change(NODE, Some(&node("1", "8")), None));
        assert!(view.has_nodes());
        assert!(!accounts.index().has_nodes());
    }
}
