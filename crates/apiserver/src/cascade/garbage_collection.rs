//! Garbage collection of objects through their owner references.
//!
//! Owners are identified by UID, so an owner recreated with the same name is a different owner.

use apimachinery::object;
use serde_json::{Value, json};

use super::consequence::Consequence;
use super::writes;
use crate::core::Core;
use crate::deletion::{FOREGROUND, ORPHAN, PropagationPolicy};
use crate::store::ObjectKey;
use crate::write::Committed;

/// Returns what follows from an update: if the owner references changed, the object may have lost all owners, and
/// previous owners may no longer have to wait for it.
pub(super) fn owner_changes(key: ObjectKey, old: &Value, new: &Value) -> Vec<Consequence> {
    if old.pointer("/metadata/ownerReferences") == new.pointer("/metadata/ownerReferences") {
        return Vec::new();
    }
    let mut consequences = vec![Consequence::DeleteIfOwnersAbsent { key }];
    consequences.extend(finish_owners_of(old));
    consequences
}

/// Deletes an object if it has owner references and none of the owners exists.
pub(super) fn delete_if_owners_absent(core: &Core, key: &ObjectKey) -> Option<Committed> {
    let object = core.store.get(key)?;
    let are_owners_absent = |object: &Value| {
        let mut owners = object::owner_references(object).peekable();
        owners.peek().is_some() && !owners.any(|owner| owner_exists(core, &key.namespace, owner))
    };
    if !are_owners_absent(&object) {
        return None;
    }
    writes::delete_if(core, &key.resource, &object, PropagationPolicy::Background, are_owners_absent)
}

/// Deletes a dependent of a terminating owner, unless another owner of it exists.
pub(super) fn delete_in_foreground(core: &Core, key: &ObjectKey, owner_uid: &str) -> Option<Committed> {
    let object = core.store.get(key)?;
    let is_owner = |owner: &Value| object::text(owner, "/uid") == owner_uid;
    let depends_on_owner_only = |object: &Value| {
        object::owner_references(object).any(is_owner)
            && !object::owner_references(object)
                .any(|owner| !is_owner(owner) && owner_exists(core, &key.namespace, owner))
    };
    if !depends_on_owner_only(&object) {
        return None;
    }
    writes::delete_if(core, &key.resource, &object, PropagationPolicy::Foreground, depends_on_owner_only)
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
    } else if finalizers.contains(&FOREGROUND) {
        for key in core.store.dependents(uid) {
            consequences.push(Consequence::DeleteInForeground { key, owner_uid: owner_uid() });
        }
        consequences.push(Consequence::FinishForegroundDeletion { owner_uid: owner_uid() });
    }
    consequences
}

/// Deletes the dependents of the removed object that have no other owner, and continues the deletion of owners that
/// were waiting for the removed object.
pub(super) fn release_owners(core: &Core, removed: &Value) -> Vec<Consequence> {
    let dependents = core.store.dependents(object::uid(removed)).into_iter();
    let mut consequences: Vec<Consequence> = dependents.map(|key| Consequence::DeleteIfOwnersAbsent { key }).collect();
    consequences.extend(finish_owners_of(removed));
    consequences
}

/// Removes the finalizer `foregroundDeletion` of a terminating owner if no dependents with `blockOwnerDeletion` remain.
pub(super) fn finish_foreground_deletion(core: &Core, uid: &str) -> Vec<Consequence> {
    let Some((key, owner)) = core.store.get_by_uid(uid) else { return Vec::new() };
    if !object::is_deleting(&owner) || !object::finalizers(&owner).contains(&FOREGROUND) {
        return Vec::new();
    }
    if core.store.has_blocking_dependents(uid) {
        return Vec::new();
    }
    vec![Consequence::RemoveFinalizer { key, uid: uid.to_owned(), finalizer: FOREGROUND }]
}

/// Removes the reference to an owner.
pub(super) fn remove_owner_reference(core: &Core, key: &ObjectKey, owner_uid: &str) -> Option<Committed> {
    let is_owner = |owner: &Value| object::text(owner, "/uid") == owner_uid;
    let is_dependent = |object: &Value| object::owner_references(object).any(is_owner);
    writes::update(core, key, is_dependent, |object| {
        let remaining: Vec<Value> =
            object::owner_references(object).filter(|owner| !is_owner(owner)).cloned().collect();
        object::set_metadata_field(object, "ownerReferences", (!remaining.is_empty()).then(|| json!(remaining)));
    })
}

fn finish_owners_of(object: &Value) -> impl Iterator<Item = Consequence> {
    object::owner_references(object)
        .map(|owner| Consequence::FinishForegroundDeletion { owner_uid: object::text(owner, "/uid").to_owned() })
}

/// Reports whether an owner exists, either in the dependent's namespace or as a cluster-scoped object. As in the
/// garbage collector of Kubernetes, an owner counts as existing if its kind is not served.
fn owner_exists(core: &Core, namespace: &str, owner: &Value) -> bool {
    let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
    if core.registry().by_kind(text("apiVersion"), text("kind")).is_none() {
        return true;
    }
    let found = core.store.get_by_uid(text("uid"));
    found.is_some_and(|(key, _)| key.namespace.is_empty() || key.namespace == namespace)
}
