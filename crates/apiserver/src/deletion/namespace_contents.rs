//! Deletes the contents of a namespace that is being deleted.

use super::writes::{delete_in_background, update};
use crate::object;
use crate::server::Server;
use crate::store::ObjectKey;

/// Deletes all objects of the namespace.
pub(super) fn delete_contents(server: &Server, namespace: &str) {
    for (key, object) in server.store().list_namespace(namespace) {
        delete_in_background(server, &key.resource, &object);
    }
    finalize_if_empty(server, namespace);
}

/// Removes the finalizer of a terminating namespace if the namespace is empty.
pub(super) fn finalize_if_empty(server: &Server, namespace: &str) {
    let Some(terminating) = server.get("namespaces", "", namespace) else { return };
    if !object::is_deleting(&terminating) || !server.store().list_namespace(namespace).is_empty() {
        return;
    }
    let key = ObjectKey { resource: "namespaces".into(), namespace: String::new(), name: namespace.into() };
    update(server, &key, |object| {
        if let Some(spec) = object.get_mut("spec") {
            object::members(spec).remove("finalizers");
        }
    });
}
