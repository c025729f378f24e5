//! Writes of the garbage collector. Errors are logged, because there is no client that could receive them.

use apimachinery::{Status, object};
use serde_json::{Value, json};

use crate::core::Core;
use crate::deletion::{self, DeleteOptions, PropagationPolicy};
use crate::store::ObjectKey;
use crate::write::{self, Committed, Proposal, Subresource, WriteOptions, WriteRequest};

/// Updates an object through the write pipeline.
pub(super) fn update(core: &Core, key: &ObjectKey, edit: impl Fn(&mut Value)) -> Option<Committed> {
    let resource = core.registry().by_name(&key.resource)?;
    let options = WriteOptions::controller_manager();
    let propose = |current: Option<&Value>| {
        let mut object = current.cloned().unwrap_or_default();
        edit(&mut object);
        Ok(Proposal::Update(object))
    };
    let request = WriteRequest {
        resource: &resource,
        subresource: Subresource::Main,
        namespace: &key.namespace,
        options: &options,
    };
    match write::modify(core, &request, &key.name, &propose) {
        Ok(result) => result.committed,
        Err(error) if is_not_found(&error) => None,
        Err(error) => {
            tracing::warn!(resource = key.resource, name = key.name, %error, "failed to update a terminating object");
            None
        }
    }
}

/// Removes a finalizer from an object.
pub(super) fn remove_finalizer(core: &Core, key: &ObjectKey, finalizer: &str) -> Option<Committed> {
    update(core, key, |object| {
        let remaining: Vec<String> =
            object::finalizers(object).into_iter().filter(|name| *name != finalizer).map(str::to_owned).collect();
        object::set_metadata_field(object, "finalizers", (!remaining.is_empty()).then(|| json!(remaining)));
    })
}

/// Deletes an object with a propagation policy. The object's UID is a precondition, so that a recreated object is not
/// deleted.
pub(super) fn delete(core: &Core, resource: &str, object: &Value, propagation: PropagationPolicy) -> Option<Committed> {
    let resource = core.registry().by_name(resource)?;
    let options = DeleteOptions { propagation, uid: Some(object::uid(object).to_owned()), ..DeleteOptions::default() };
    match deletion::delete(core, &resource, object::namespace(object), object::name(object), &options) {
        Ok(deletion) => deletion.committed,
        Err(error) if is_not_found(&error) => None,
        Err(error) => {
            let name = object::name(object);
            tracing::warn!(resource = resource.storage, name, %error, "failed to delete an object");
            None
        }
    }
}

/// Reports whether the object has been removed concurrently.
fn is_not_found(error: &Status) -> bool {
    error.reason == "NotFound"
}
