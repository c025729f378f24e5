//! Deletion of objects. An object with finalizers, a grace period or contents is only marked; what has to happen before
//! it can be removed is up to [`crate::cascade`].

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, reason = "numbers of users enter every computation"))]

mod deletion_timestamp;
mod options;

use std::sync::Arc;

use apimachinery::{Status, object};
use serde_json::Value;

use crate::core::Core;
use crate::resources::Resource;
use crate::store::ObjectKey;
use crate::transaction::{MAX_ATTEMPTS, Transaction};
use crate::write::{Committed, Transition, admit, is_removable};
pub(crate) use options::{DeleteOptions, ORPHAN, PropagationPolicy};

/// Result of a deletion.
#[derive(Debug, Clone)]
pub(crate) enum DeleteResult {
    /// The object was removed; the value is its last state.
    Removed(Arc<Value>),
    /// The object is marked for deletion and waits for its finalizers, its grace period or the deletion of its
    /// contents.
    Terminating(Arc<Value>),
}

/// A deletion request that was carried out.
pub(crate) struct Deletion {
    /// Result for the client.
    pub(crate) result: DeleteResult,
    /// What was stored; `None` for dry runs and repeated requests that change nothing.
    pub(crate) committed: Option<Committed>,
}

/// Reports whether an object may be deleted. It gets the current object, reads other objects through the transaction,
/// and is called again after each conflict.
pub(crate) type DeletionCheck<'a> = &'a dyn Fn(&Transaction<'_>, &Value) -> Result<bool, Status>;

/// How an attempt to delete an object ended.
enum Attempt {
    Done(Deletion),
    /// The check does not allow the deletion.
    NotAllowed,
    /// A concurrent write has changed the object or one that the check has read.
    Conflict,
}

/// Deletes an object.
///
/// # Errors
/// 404 if the object does not exist, 403 if admission rejects the deletion, 409 if a precondition fails.
pub(crate) fn delete(
    core: &Core,
    resource: &Arc<Resource>,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<Deletion, Status> {
    let deletion = delete_if(core, resource, namespace, name, options, &|_, _| Ok(true))?;
    deletion.ok_or_else(|| Status::object_modified(&resource.group_resource(), name))
}

/// Deletes an object if `check` allows it; returns `None` otherwise.
///
/// # Errors
/// Those of [`delete`] and of `check`.
pub(crate) fn delete_if(
    core: &Core,
    resource: &Arc<Resource>,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
    check: DeletionCheck<'_>,
) -> Result<Option<Deletion>, Status> {
    let key = resource.object_key(namespace, name);
    for _ in 0..MAX_ATTEMPTS {
        match try_delete(core, resource, &key, options, check)? {
            Attempt::Done(deletion) => return Ok(Some(deletion)),
            Attempt::NotAllowed => return Ok(None),
            Attempt::Conflict => {}
        }
    }
    Err(Status::object_modified(&resource.group_resource(), name))
}

fn try_delete(
    core: &Core,
    resource: &Arc<Resource>,
    key: &ObjectKey,
    options: &DeleteOptions,
    check: DeletionCheck<'_>,
) -> Result<Attempt, Status> {
    let transaction = Transaction::new(core);
    let name = &key.name;
    let current = core.store.get(key).ok_or_else(|| Status::not_found(&resource.group_resource(), name))?;
    check_preconditions(resource, name, &current, options)?;
    if !check(&transaction, &current)? {
        return Ok(Attempt::NotAllowed);
    }
    admit::check_deletion(core, resource, &current)?;
    let mut object = Value::clone(&current);
    deletion_timestamp::mark_for_deletion(resource, &mut object, options, core.now());
    let can_remove = is_removable(resource, &object);
    if options.dry_run {
        let preview = if can_remove && resource.storage != "pods" { current } else { Arc::new(object) };
        let result = if can_remove { DeleteResult::Removed(preview) } else { DeleteResult::Terminating(preview) };
        return Ok(Attempt::Done(Deletion { result, committed: None }));
    }
    if !can_remove && object == *current {
        return Ok(Attempt::Done(Deletion { result: DeleteResult::Terminating(current), committed: None }));
    }
    let committed = |transition| Some(Committed { resource: Arc::clone(resource), key: key.clone(), transition });
    if !can_remove {
        let Some(new) = transaction.commit(key, Some(&current), Some(object))? else { return Ok(Attempt::Conflict) };
        let result = DeleteResult::Terminating(Arc::clone(&new));
        return Ok(Attempt::Done(Deletion { result, committed: committed(Transition::Terminating { new }) }));
    }
    let Some(removed) = transaction.commit(key, Some(&current), None)? else { return Ok(Attempt::Conflict) };
    // Except for Pods, an object that is removed immediately is returned without a deletion timestamp.
    let mut last_state = if resource.storage == "pods" { object } else { Value::clone(&current) };
    object::copy_metadata_field(&mut last_state, "resourceVersion", &removed);
    let result = DeleteResult::Removed(Arc::new(last_state));
    Ok(Attempt::Done(Deletion { result, committed: committed(Transition::Removed { old: current }) }))
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    current: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let checks = [
        ("UID", "deleted and then recreated", options.uid.as_deref(), object::uid(current)),
        ("ResourceVersion", "modified", options.resource_version.as_deref(), object::resource_version(current)),
    ];
    for (field, event, expected, actual) in checks {
        if let Some(expected) = expected
            && expected != actual
        {
            let message = format!(
                "the {field} in the precondition ({expected}) does not match the {field} in record ({actual}). The object might have been {event}"
            );
            return Err(Status::conflict(&resource.group_kind(), name, &message));
        }
    }
    Ok(())
}
