//! A definition that is going takes along the objects that it defined.

use super::writes::{delete_quietly, drop_finalizer};
use crate::server::Server;
use crate::store::Key;
use crate::{crd, object};

/// Starts it.
pub(super) fn empty(server: &Server, name: &str) {
    for instance in server.list(name) {
        delete_quietly(server, name, &instance);
    }
    release(server, name);
}

/// Lets a definition go when its last object is gone.
pub(super) fn release(server: &Server, name: &str) {
    let Some(found) = server.get(crd::STORAGE, "", name) else { return };
    if object::is_deleting(&found) && server.list(name).is_empty() {
        let place = Key { resource: crd::STORAGE.into(), namespace: String::new(), name: name.into() };
        drop_finalizer(server, &place, crd::CLEANUP);
    }
}
