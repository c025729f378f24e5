//! Writes of the garbage collector. Errors are logged, because there is no client that could receive them.

use apimachinery::{Status, object};
use serde_json::{Value, json};

use crate::core::Core;
use crate::deletion::{self, DeleteOptions, PropagationPolicy};
use crate::store::ObjectKey;
use crate::transaction::Transaction;
use crate::write::{self, Committed, Proposal, Subresource, WriteOptions, WriteRequest};

/// Updates an object through the write pipeline, unless `is_target` rejects its current state, because it was recreated
/// with the same name.
pub(super) fn update(
    core: &Core,
    key: &ObjectKey,
    is_target: impl Fn(&Value) -> bool,
    edit: impl Fn(&mut Value),
) -> Option<Committed> {
    let resource = core.registry().by_name(&key.resource)?;
    let options = WriteOptions::controller_manager();
    let propose = |current: Option<&Value>| {
        let mut object = current
            .filter(|current| is_target(current))
            .cloned()
            .ok_or_else(|| Status::not_found(&resource.group_resource(), &key.name))?;
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

/// Removes a finalizer from the object with this UID.
pub(super) fn remove_finalizer(core: &Core, key: &ObjectKey, uid: &str, finalizer: &str) -> Option<Committed> {
    let is_target = |object: &Value| object::uid(object) == uid;
    update(core, key, is_target, |object| {
        let remaining: Vec<String> =
            object::finalizers(object).into_iter().filter(|name| *name != finalizer).map(str::to_owned).collect();
        object::set_metadata_field(object, "finalizers", (!remaining.is_empty()).then(|| json!(remaining)));
    })
}

/// Deletes an object with a propagation policy. The object's UID is a precondition, so that a recreated object is not
/// deleted.
pub(super) fn delete(core: &Core, resource: &str, object: &Value, propagation: PropagationPolicy) -> Option<Committed> {
    delete_if(core, resource, object, propagation, |_| true)
}

/// Deletes an object like [`delete`] if `check` accepts its current state.
pub(super) fn delete_if(
    core: &Core,
    resource: &str,
    object: &Value,
    propagation: PropagationPolicy,
    check: impl Fn(&Value) -> bool,
) -> Option<Committed> {
    let resource = core.registry().by_name(resource)?;
    let options = DeleteOptions { propagation, uid: Some(object::uid(object).to_owned()), ..DeleteOptions::default() };
    let (namespace, name) = (object::namespace(object), object::name(object));
    let check = |_: &Transaction<'_>, current: &Value| Ok(check(current));
    match deletion::delete_if(core, &resource, namespace, name, &options, &check) {
        Ok(deletion) => deletion?.committed,
        Err(error) if is_not_found(&error) => None,
        Err(error) => {
            tracing::warn!(resource = resource.storage, name, %error, "failed to delete an object");
            None
        }
    }
}

/// Reports whether the object has been removed concurrently.
fn is_not_found(error: &Status) -> bool {
    error.reason == "NotFound"
}
