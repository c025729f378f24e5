//! Garbage collection of objects through their owner references.
//!
//! Owners are identified by UID, so an owner recreated with the same name is a different owner.

use serde_json::{Value, json};

use super::PropagationPolicy;
use super::writes::{delete_in_background, delete_with_policy, remove_finalizer, update};
use crate::object;
use crate::server::Server;
use crate::store::ObjectKey;

pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

/// Deletes an object if it has owner references and none of the owners exists.
pub(super) fn delete_if_owners_absent(server: &Server, key: &ObjectKey, object: &Value) {
    let mut owners = object::owner_references(object).peekable();
    if owners.peek().is_none() || owners.any(|owner| owner_exists(server, &key.namespace, owner)) {
        return;
    }
    delete_in_background(server, &key.resource, object);
}

/// Orphans or deletes the dependents of a terminating owner, depending on its finalizers.
pub(super) fn process_dependents(server: &Server, key: &ObjectKey, object: &Value) {
    let finalizers = object::finalizers(object);
    let uid = object::uid(object);
    if finalizers.contains(&ORPHAN) {
        for (dependent, _) in server.store().dependents(uid) {
            remove_owner_reference(server, &dependent, uid);
        }
        remove_finalizer(server, key, ORPHAN);
    } else if finalizers.contains(&FOREGROUND) {
        for (dependent, object) in server.store().dependents(uid) {
            if !has_other_owner(server, &dependent, &object, uid) {
                delete_with_policy(server, &dependent.resource, &object, PropagationPolicy::Foreground);
            }
        }
        finish_foreground_deletion(server, uid);
    }
}

/// Deletes the dependents of the removed object that have no other owner, and continues the deletion of owners that
/// were waiting for the removed object.
pub(super) fn after_owner_remove(server: &Server, removed: &Value) {
    for (key, dependent) in server.store().dependents(object::uid(removed)) {
        delete_if_owners_absent(server, &key, &dependent);
    }
    for owner in object::owner_references(removed) {
        finish_foreground_deletion(server, object::text(owner, "/uid"));
    }
}

/// Removes the finalizer `foregroundDeletion` of a terminating owner if no dependents with `blockOwnerDeletion` remain.
pub(super) fn finish_foreground_deletion(server: &Server, uid: &str) {
    let Some((key, owner)) = server.store().get_by_uid(uid) else { return };
    if !object::is_deleting(&owner) || !object::finalizers(&owner).contains(&FOREGROUND) {
        return;
    }
    let has_blocking_dependents = server.store().dependents(uid).iter().any(|(_, dependent)| {
        object::owner_references(dependent)
            .any(|reference| object::text(reference, "/uid") == uid && reference["blockOwnerDeletion"] == json!(true))
    });
    if !has_blocking_dependents {
        remove_finalizer(server, &key, FOREGROUND);
    }
}

/// Reports whether an owner exists, either in the dependent's namespace or as a cluster-scoped object. As in the
/// garbage collector of Kubernetes, an owner counts as existing if its kind is not served.
fn owner_exists(server: &Server, namespace: &str, owner: &Value) -> bool {
    let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
    if server.registry().by_kind(text("apiVersion"), text("kind")).is_none() {
        return true;
    }
    let found = server.store().get_by_uid(text("uid"));
    found.is_some_and(|(key, _)| key.namespace.is_empty() || key.namespace == namespace)
}

fn has_other_owner(server: &Server, key: &ObjectKey, object: &Value, uid: &str) -> bool {
    object::owner_references(object)
        .any(|owner| object::text(owner, "/uid") != uid && owner_exists(server, &key.namespace, owner))
}

fn remove_owner_reference(server: &Server, key: &ObjectKey, uid: &str) {
    update(server, key, |object| {
        let remaining: Vec<Value> =
            object::owner_references(object).filter(|owner| object::text(owner, "/uid") != uid).cloned().collect();
        object::set_metadata_field(object, "ownerReferences", (!remaining.is_empty()).then(|| json!(remaining)));
    });
}
