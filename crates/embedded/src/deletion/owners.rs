//! What goes with its owners, and owners that wait for what is theirs.
//!
//! Owners are known by uid, never by name: an owner that was created again under its old name is another one.

use serde_json::{Value, json};

use super::Propagation;
use super::writes::{change, delete_quietly, delete_with, drop_finalizer};
use crate::object;
use crate::server::Server;
use crate::store::Key;

pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

/// An object whose owners are all gone goes too.
pub(super) fn collect_if_orphaned(server: &Server, place: &Key, object: &Value) {
    let mut owners = object::owner_references(object).peekable();
    if owners.peek().is_none() || owners.any(|owner| exists(server, &place.namespace, owner)) {
        return;
    }
    delete_quietly(server, &place.resource, object);
}

/// Starts what an owner that is going waits for.
pub(super) fn after_mark(server: &Server, place: &Key, object: &Value) {
    let finalizers = object::finalizers(object);
    let uid = object::uid(object);
    if finalizers.contains(&ORPHAN) {
        for (dependent, _) in server.store().dependents(uid) {
            drop_reference(server, &dependent, uid);
        }
        drop_finalizer(server, place, ORPHAN);
    } else if finalizers.contains(&FOREGROUND) {
        for (dependent, object) in server.store().dependents(uid) {
            if !has_other_owner(server, &dependent, &object, uid) {
                delete_with(server, &dependent.resource, &object, Propagation::Foreground);
            }
        }
        release(server, uid);
    }
}

/// Takes along what nobody owns any more, and lets go who waited for it.
pub(super) fn after_removal(server: &Server, last: &Value) {
    for (place, dependent) in server.store().dependents(object::uid(last)) {
        collect_if_orphaned(server, &place, &dependent);
    }
    for owner in object::owner_references(last) {
        release(server, object::text(owner, "/uid"));
    }
}

/// Lets an owner go that waited for its dependents, when the last blocking one is gone.
pub(super) fn release(server: &Server, uid: &str) {
    let Some((place, owner)) = server.store().by_uid(uid) else { return };
    if !object::is_deleting(&owner) || !object::finalizers(&owner).contains(&FOREGROUND) {
        return;
    }
    let blocked = server.store().dependents(uid).iter().any(|(_, dependent)| {
        object::owner_references(dependent)
            .any(|reference| object::text(reference, "/uid") == uid && reference["blockOwnerDeletion"] == json!(true))
    });
    if !blocked {
        drop_finalizer(server, &place, FOREGROUND);
    }
}

/// Owners are looked for in the dependent's namespace or in cluster scope. Kinds that are not served right now are
/// given the benefit of the doubt, as the real collector does.
fn exists(server: &Server, namespace: &str, owner: &Value) -> bool {
    let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
    if server.registry().by_kind(text("apiVersion"), text("kind")).is_none() {
        return true;
    }
    let found = server.store().by_uid(text("uid"));
    found.is_some_and(|(place, _)| place.namespace.is_empty() || place.namespace == namespace)
}

fn has_other_owner(server: &Server, place: &Key, object: &Value, uid: &str) -> bool {
    object::owner_references(object)
        .any(|owner| object::text(owner, "/uid") != uid && exists(server, &place.namespace, owner))
}

fn drop_reference(server: &Server, place: &Key, uid: &str) {
    change(server, place, |object| {
        let rest: Vec<Value> =
            object::owner_references(object).filter(|owner| object::text(owner, "/uid") != uid).cloned().collect();
        object::set_metadata(object, "ownerReferences", (!rest.is_empty()).then(|| json!(rest)));
    });
}
