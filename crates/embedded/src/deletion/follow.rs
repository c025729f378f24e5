//! What follows a write: which collector is asked after which one.

use serde_json::Value;

use super::{definition, namespace, owners};
use crate::resources::Resource;
use crate::server::Server;
use crate::store::{Key, Place, Scope};
use crate::{crd, object};

/// An object whose owners are all gone goes too.
pub(crate) fn after_create(server: &Server, place: &Key, object: &Value) {
    owners::collect_if_orphaned(server, place, object);
}

/// A change may drop the last owner, or what an owner waits for.
pub(crate) fn after_update(server: &Server, place: &Key, old: &Value, new: &Value) {
    if old.pointer("/metadata/ownerReferences") == new.pointer("/metadata/ownerReferences") {
        return;
    }
    owners::collect_if_orphaned(server, place, new);
    for owner in object::owner_references(old) {
        owners::release(server, object::text(owner, "/uid"));
    }
}

/// What follows when an object is gone.
pub(crate) fn after_removal(server: &Server, resource: &Resource, last: &Value) {
    if resource.storage == crd::STORAGE {
        crd::uninstall(server, last);
        // Its names are free now.
        for other in server.list(crd::STORAGE) {
            crd::settle(server, object::name(&other));
        }
    }
    owners::after_removal(server, last);
    namespace::release(server, object::namespace(last));
    if resource.custom {
        definition::release(server, &resource.storage);
    }
}

/// What a marked object waits for, started.
pub(super) fn after_mark(server: &Server, resource: &Resource, place: &Key, object: &Value) {
    match resource.storage.as_str() {
        "namespaces" => namespace::empty(server, &place.name),
        crd::STORAGE => definition::empty(server, &place.name),
        _ => owners::after_mark(server, place, object),
    }
}

/// Goes on with what was begun when the process ended, or when a write was undone: owners that are gone, deletions that
/// wait for others.
pub(crate) fn resume(server: &Server) {
    for resource in server.store().resources() {
        let Some(resource) = server.registry().by_name(&resource) else { continue };
        let everywhere = Scope { resource: resource.storage.clone(), namespace: None };
        for (place, kept) in server.store().list(&everywhere).objects {
            let ((namespace, name), object) = (Place::clone(&place), kept.tree());
            let place = Key { resource: resource.storage.clone(), namespace, name };
            if object::is_deleting(&object) {
                after_mark(server, &resource, &place, &object);
            } else {
                owners::collect_if_orphaned(server, &place, &object);
            }
        }
    }
}
