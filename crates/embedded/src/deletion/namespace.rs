//! A namespace that is going takes along what is in it.

use super::writes::{change, delete_quietly};
use crate::object;
use crate::server::Server;
use crate::store::Key;

/// Starts it.
pub(super) fn empty(server: &Server, namespace: &str) {
    for (place, object) in server.store().in_namespace(namespace) {
        delete_quietly(server, &place.resource, &object);
    }
    release(server, namespace);
}

/// Lets a namespace go when it is empty.
pub(super) fn release(server: &Server, namespace: &str) {
    let Some(found) = server.get("namespaces", "", namespace) else { return };
    if !object::is_deleting(&found) || !server.store().in_namespace(namespace).is_empty() {
        return;
    }
    let place = Key { resource: "namespaces".into(), namespace: String::new(), name: namespace.into() };
    change(server, &place, |object| {
        if let Some(spec) = object.get_mut("spec") {
            object::members(spec).remove("finalizers");
        }
    });
}
