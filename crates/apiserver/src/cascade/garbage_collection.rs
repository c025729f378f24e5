//! Garbage collection of objects through their owner references.
//!
//! Owners are identified by UID, so an owner recreated with the same name is a different owner.

use apimachinery::object::{self, FOREGROUND_FINALIZER};
use serde_json::{Value, json};

use super::consequence::Consequence;
use super::owner_cycle::CycleSearch;
use super::writes;
use crate::core::Core;
use crate::deletion::{ORPHAN, PropagationPolicy};
use crate::store::ObjectKey;
use crate::write::Committed;

/// State of an owner for its dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerState {
    /// It does not exist.
    Absent,
    /// It is being deleted in the foreground, so that its dependents are deleted first.
    Waiting,
    /// It exists.
    Remains,
}

/// Returns what follows from an update: if the owner references changed, the object may have lost all owners, and
/// previous owners may no longer have to wait for it.
pub(super) fn owner_changes(key: ObjectKey, old: &Value, new: &Value) -> Vec<Consequence> {
    if old.pointer("/metadata/ownerReferences") == new.pointer("/metadata/ownerReferences") {
        return Vec::new();
    }
    let mut consequences = vec![Consequence::DeleteWithoutOwners { key }];
    consequences.extend(finish_owners_of(old));
    consequences
}

/// Deletes an object if it has owner references and none of the owners remains. If one remains, the object does not block the
/// deletion of the others any more, and neither does an object in a cycle of owners that wait for each other.
pub(super) fn delete_without_owners(core: &Core, key: &ObjectKey) -> (Option<Committed>, Vec<Consequence>) {
    let Some(object) = core.store.get(key) else { return (None, Vec::new()) };
    let states = |object: &Value| -> Vec<OwnerState> {
        object::owner_references(object).map(|owner| owner_state(core, &key.namespace, owner)).collect()
    };
    let current = states(&object);
    let waits = current.contains(&OwnerState::Waiting);
    match current.contains(&OwnerState::Remains) {
        true if waits => return (remove_waiting_owners(core, key), Vec::new()),
        true => return (None, Vec::new()),
        false if current.is_empty() => return (None, Vec::new()),
        false if waits && object::waits_for_dependents(&object) => {
            return (None, CycleSearch::new(core).unblock(key));
        }
        false => {}
    }
    // As in the garbage collector of Kubernetes: without dependents, there is nothing to wait for.
    let propagation = match waits && core.store.has_dependents(object::uid(&object)) {
        true => PropagationPolicy::Foreground,
        false => PropagationPolicy::Background,
    };
    let is_unowned = |object: &Value| {
        let states = states(object);
        !states.is_empty() && !states.contains(&OwnerState::Remains)
    };
    (writes::delete_if(core, &key.resource, &object, propagation, is_unowned), Vec::new())
}

/// Removes the references to owners that wait for their dependents.
fn remove_waiting_owners(core: &Core, key: &ObjectKey) -> Option<Committed> {
    let is_waiting = |owner: &Value| owner_state(core, &key.namespace, owner) == OwnerState::Waiting;
    let has_waiting_owners = |object: &Value| object::owner_references(object).any(is_waiting);
    writes::update(core, key, has_waiting_owners, |object| retain_owners(object, |owner| !is_waiting(owner)))
}

/// Orphans or deletes the dependents of a terminating owner, depending on its finalizers.
pub(super) fn process_dependents(core: &Core, key: ObjectKey, object: &Value) -> Vec<Consequence> {
    let finalizers = object::finalizers(object);
    let uid = object::uid(object);
    let owner_uid = || uid.to_owned();
    let mut consequences = Vec::new();
    if finalizers.contains(&ORPHAN) {
        for key in core.store.dependents(uid) {
            consequences.push(Consequence::RemoveOwnerReference { key, owner_uid: owner_uid() });
        }
        consequences.push(Consequence::RemoveFinalizer { key, uid: owner_uid(), finalizer: ORPHAN });
    } else if finalizers.contains(&FOREGROUND_FINALIZER) {
        for key in core.store.dependents(uid) {
            consequences.push(Consequence::DeleteWithoutOwners { key });
        }
        consequences.push(Consequence::FinishForegroundDeletion { owner_uid: owner_uid() });
    }
    consequences
}

/// Continues all deletions in the foreground after an interruption. Instead of a search from each dependent, one search
/// finds all cycles of owners.
pub(super) fn resume_foreground_deletions(core: &Core) -> Vec<Consequence> {
    let (mut search, mut consequences) = (CycleSearch::new(core), Vec::new());
    for key in core.store.waiting_objects() {
        consequences.extend(search.unblock(&key));
    }
    consequences
}

/// Stops the terminating object with this UID from blocking the deletion of some of its owners.
pub(super) fn unblock_owners(core: &Core, key: &ObjectKey, uid: &str, owner_uids: &[String]) -> Option<Committed> {
    let is_same = |object: &Value| object::uid(object) == uid;
    writes::update(core, key, is_same, |object| {
        let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten() {
            if owner_uids.iter().any(|uid| uid == object::text(owner, "/uid")) {
                object::members(owner).insert("blockOwnerDeletion".to_owned(), json!(false));
            }
        }
    })
}

/// Deletes the dependents of the removed object that have no other owner, and continues the deletion of owners that
/// were waiting for the removed object.
pub(super) fn release_owners(core: &Core, removed: &Value) -> Vec<Consequence> {
    let dependents = core.store.dependents(object::uid(removed)).into_iter();
    let mut consequences: Vec<Consequence> = dependents.map(|key| Consequence::DeleteWithoutOwners { key }).collect();
    consequences.extend(finish_owners_of(removed));
    consequences
}

/// Removes the finalizer `foregroundDeletion` of a terminating owner if no dependents with `blockOwnerDeletion` remain.
pub(super) fn finish_foreground_deletion(core: &Core, uid: &str) -> Vec<Consequence> {
    match core.store.find_by_uid(uid) {
        Some(owner) if owner.waits_for_dependents && !core.store.has_blocking_dependents(uid) => {
            vec![Consequence::RemoveFinalizer { key: owner.key, uid: uid.to_owned(), finalizer: FOREGROUND_FINALIZER }]
        }
        _ => Vec::new(),
    }
}

/// Removes the reference to an owner.
pub(super) fn remove_owner_reference(core: &Core, key: &ObjectKey, owner_uid: &str) -> Option<Committed> {
    let is_owner = |owner: &Value| object::text(owner, "/uid") == owner_uid;
    let is_dependent = |object: &Value| object::owner_references(object).any(is_owner);
    writes::update(core, key, is_dependent, |object| retain_owners(object, |owner| !is_owner(owner)))
}

/// Removes the references to owners for which `is_retained` is false.
fn retain_owners(object: &mut Value, is_retained: impl Fn(&Value) -> bool) {
    let remaining: Vec<Value> = object::owner_references(object).filter(|owner| is_retained(owner)).cloned().collect();
    object::set_metadata_field(object, "ownerReferences", (!remaining.is_empty()).then(|| json!(remaining)));
}

fn finish_owners_of(object: &Value) -> impl Iterator<Item = Consequence> {
    object::owner_references(object)
        .map(|owner| Consequence::FinishForegroundDeletion { owner_uid: object::text(owner, "/uid").to_owned() })
}

/// Returns the state of an owner, which is in the namespace of the dependent or cluster-scoped. As in the garbage collector of
/// Kubernetes, an owner that is not found remains as long as its kind is not served.
fn owner_state(core: &Core, namespace: &str, owner: &Value) -> OwnerState {
    let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
    match core.store.find_by_uid(text("uid")) {
        Some(owner) if !owner.key.namespace.is_empty() && owner.key.namespace != namespace => OwnerState::Absent,
        Some(owner) if owner.waits_for_dependents => OwnerState::Waiting,
        Some(_) => OwnerState::Remains,
        None if core.registry().by_kind(text("apiVersion"), text("kind")).is_none() => OwnerState::Remains,
        None => OwnerState::Absent,
    }
}
