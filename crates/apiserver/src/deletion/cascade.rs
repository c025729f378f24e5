//! Cascading deletion: starts garbage collection and the cleanup of namespaces and custom resource definitions after
//! the writes that require it.

use serde_json::Value;

use super::{custom_resources, garbage_collection, namespace_contents};
use crate::resources::Resource;
use crate::server::Server;
use crate::store::{CollectionKey, NamespacedName, ObjectKey};
use crate::{crd, object};

/// Deletes a new object if none of its owners exists.
pub(crate) fn after_create(server: &Server, key: &ObjectKey, object: &Value) {
    garbage_collection::delete_if_owners_absent(server, key, object);
}

/// Runs garbage collection for an updated object if its owner references changed.
pub(crate) fn after_update(server: &Server, key: &ObjectKey, old: &Value, new: &Value) {
    if old.pointer("/metadata/ownerReferences") == new.pointer("/metadata/ownerReferences") {
        return;
    }
    garbage_collection::delete_if_owners_absent(server, key, new);
    for owner in object::owner_references(old) {
        garbage_collection::finish_foreground_deletion(server, object::text(owner, "/uid"));
    }
}

/// Continues the deletions that were waiting for the removed object.
pub(crate) fn after_remove(server: &Server, resource: &Resource, removed: &Value) {
    if resource.storage == crd::STORAGE {
        crd::uninstall(server, removed);
        // Names of the removed definition are now available to other definitions.
        for other in server.list(crd::STORAGE) {
            crd::reconcile_status(server, object::name(&other));
        }
    }
    garbage_collection::after_owner_remove(server, removed);
    namespace_contents::finalize_if_empty(server, object::namespace(removed));
    if resource.custom {
        custom_resources::finalize_if_unused(server, &resource.storage);
    }
}

/// Deletes the objects that must be deleted before the terminating `object` can be removed.
pub(super) fn cascade(server: &Server, resource: &Resource, key: &ObjectKey, object: &Value) {
    match resource.storage.as_str() {
        "namespaces" => namespace_contents::delete_contents(server, &key.name),
        crd::STORAGE => custom_resources::delete_instances(server, &key.name),
        _ => garbage_collection::process_dependents(server, key, object),
    }
}

/// Resumes garbage collection and deletions that a restart of the process or a rollback of writes has interrupted.
pub(crate) fn resume(server: &Server) {
    for resource in server.store().resources() {
        let Some(resource) = server.registry().by_name(&resource) else { continue };
        let all_namespaces = CollectionKey { resource: resource.storage.clone(), namespace: None };
        for (key, stored) in server.store().list(&all_namespaces).objects {
            let ((namespace, name), object) = (NamespacedName::clone(&key), stored.value());
            let key = ObjectKey { resource: resource.storage.clone(), namespace, name };
            if object::is_deleting(&object) {
                cascade(server, &resource, &key, &object);
            } else {
                garbage_collection::delete_if_owners_absent(server, &key, &object);
            }
        }
    }
}
