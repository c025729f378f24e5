//! Deletes the custom resources of a definition that is being deleted.

use super::writes::{delete_in_background, remove_finalizer};
use crate::server::Server;
use crate::store::ObjectKey;
use crate::{crd, object};

/// Deletes all custom resources of the definition `name`.
pub(super) fn delete_instances(server: &Server, name: &str) {
    for instance in server.list(name) {
        delete_in_background(server, name, &instance);
    }
    finalize_if_unused(server, name);
}

/// Removes the finalizer of a terminating definition if none of its custom resources remain.
pub(super) fn finalize_if_unused(server: &Server, name: &str) {
    let Some(definition) = server.get(crd::STORAGE, "", name) else { return };
    if object::is_deleting(&definition) && server.list(name).is_empty() {
        let key = ObjectKey { resource: crd::STORAGE.into(), namespace: String::new(), name: name.into() };
        remove_finalizer(server, &key, crd::CLEANUP_FINALIZER);
    }
}
