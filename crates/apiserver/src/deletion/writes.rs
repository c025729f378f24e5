//! Writes of the garbage collector. Errors are logged, because there is no client that could receive them.

use serde_json::{Value, json};

use super::{DeleteOptions, PropagationPolicy};
use crate::object;
use crate::server::Server;
use crate::store::ObjectKey;
use crate::write::{Proposal, Subresource, WriteOptions};

/// Updates an object through the write pipeline.
pub(super) fn update(server: &Server, key: &ObjectKey, edit: impl Fn(&mut Value)) {
    let Some(resource) = server.registry().by_name(&key.resource) else { return };
    let options = WriteOptions { manager: "kube-controller-manager".to_owned(), ..WriteOptions::default() };
    let propose = |current: Option<&Value>| {
        let mut object = current.cloned().unwrap_or_default();
        edit(&mut object);
        Ok(Proposal::Update(object))
    };
    let result = server.modify(&resource, Subresource::Main, &key.namespace, &key.name, &options, &propose);
    if let Err(error) = result
        && error.reason != "NotFound"
    {
        tracing::warn!(resource = key.resource, name = key.name, %error, "failed to update a terminating object");
    }
}

/// Removes a finalizer from an object.
pub(super) fn remove_finalizer(server: &Server, key: &ObjectKey, finalizer: &str) {
    update(server, key, |object| {
        let remaining: Vec<String> =
            object::finalizers(object).into_iter().filter(|name| *name != finalizer).map(str::to_owned).collect();
        object::set_metadata_field(object, "finalizers", (!remaining.is_empty()).then(|| json!(remaining)));
    });
}

/// Deletes an object with background propagation.
pub(super) fn delete_in_background(server: &Server, resource: &str, object: &Value) {
    delete_with_policy(server, resource, object, PropagationPolicy::Background);
}

/// Deletes an object with a propagation policy. The object's UID is a precondition, so that a recreated object is not
/// deleted.
pub(super) fn delete_with_policy(server: &Server, resource: &str, object: &Value, propagation: PropagationPolicy) {
    let Some(resource) = server.registry().by_name(resource) else { return };
    let options = DeleteOptions { propagation, uid: Some(object::uid(object).to_owned()), ..DeleteOptions::default() };
    let result = server.delete_object(&resource, object::namespace(object), object::name(object), &options);
    if let Err(error) = result
        && error.reason != "NotFound"
    {
        tracing::warn!(resource = resource.storage, name = object::name(object), %error, "failed to delete an object");
    }
}
