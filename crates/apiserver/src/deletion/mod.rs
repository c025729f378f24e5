//! Deletion of objects, including garbage collection and the cleanup of namespaces and custom resource definitions.
//!
//! In a real cluster, the garbage collector and the namespace controller run asynchronously. Here, their work is part
//! of the write request: [`cascade`] starts [`garbage_collection`], [`namespace_contents`] and [`custom_resources`]
//! after each write.

mod cascade;
mod custom_resources;
mod deletion_timestamp;
mod garbage_collection;
mod namespace_contents;
mod writes;

use std::sync::Arc;

use apimachinery::Status;
use serde_json::Value;

use crate::object;
use crate::resources::Resource;
use crate::server::{Server, object_key};
use crate::store::ObjectKey;
use crate::write::admit;
pub(crate) use cascade::{after_create, after_remove, after_update, resume};

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PropagationPolicy {
    /// Dependents are deleted after their owner.
    #[default]
    Background,
    /// Dependents with `blockOwnerDeletion` are deleted before their owner.
    Foreground,
    /// Dependents are retained, and their reference to the owner is removed.
    Orphan,
}

/// Options of a deletion (`meta/v1` DeleteOptions).
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    /// How the deletion propagates to dependents.
    pub(crate) propagation: PropagationPolicy,
    /// Grace period in seconds, which applies only to Pods.
    pub(crate) grace_period_seconds: Option<i64>,
    /// Precondition: the UID that the object must have.
    pub(crate) uid: Option<String>,
    /// Precondition: the resource version that the object must have.
    pub(crate) resource_version: Option<String>,
    /// Whether to validate the deletion without deleting the object.
    pub(crate) dry_run: bool,
}

/// Result of a deletion.
#[derive(Debug, Clone)]
pub(crate) enum DeleteResult {
    /// The object was removed; the value is its last state.
    Removed(Arc<Value>),
    /// The object is marked for deletion and waits for its finalizers, its grace period or the deletion of its
    /// contents.
    Terminating(Arc<Value>),
}

// === impl Server ===

impl Server {
    /// Deletes an object.
    ///
    /// # Errors
    /// 404 if the object does not exist, 403 if admission rejects the deletion, 409 if a precondition fails.
    pub(crate) fn delete_object(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<DeleteResult, Status> {
        let key = object_key(resource, namespace, name);
        loop {
            if let Some(deleted) = self.try_delete(resource, &key, options)? {
                return Ok(deleted);
            }
        }
    }

    /// Tries to delete an object. Returns `None` on a conflict with a concurrent write.
    fn try_delete(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Option<DeleteResult>, Status> {
        let name = &key.name;
        let current = self.store().get(key).ok_or_else(|| Status::not_found(&resource.group_resource(), name))?;
        check_preconditions(resource, name, &current, options)?;
        admit::check_deletion(self, resource, &current)?;
        let mut object = Value::clone(&current);
        deletion_timestamp::mark_for_deletion(resource, &mut object, options, self.now());
        let can_remove = is_removable(resource, &object);
        if options.dry_run {
            let preview = if can_remove && resource.storage != "pods" { current } else { Arc::new(object) };
            return Ok(Some(if can_remove {
                DeleteResult::Removed(preview)
            } else {
                DeleteResult::Terminating(preview)
            }));
        }
        if !can_remove && object == *current {
            return Ok(Some(DeleteResult::Terminating(current)));
        }
        let written = if can_remove { None } else { Some(object.clone()) };
        let Some(committed) = self.store().try_commit(key, Some(&current), written)? else { return Ok(None) };
        if can_remove {
            after_remove(self, resource, &committed);
            // Except for Pods, an object that is removed immediately is returned without a deletion timestamp.
            let mut object = if resource.storage == "pods" { object } else { Value::clone(&current) };
            object::copy_metadata_field(&mut object, "resourceVersion", &committed);
            return Ok(Some(DeleteResult::Removed(Arc::new(object))));
        }
        cascade::cascade(self, resource, key, &committed);
        Ok(Some(match self.store().get(key) {
            Some(remaining) => DeleteResult::Terminating(remaining),
            None => DeleteResult::Removed(committed),
        }))
    }
}

/// Reports whether a terminating object can be removed, which requires that it has no finalizers and no grace period.
pub(crate) fn is_removable(resource: &Resource, object: &Value) -> bool {
    let has_namespace_finalizers = resource.storage == "namespaces" && object.pointer("/spec/finalizers/0").is_some();
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
    !has_namespace_finalizers && grace == 0 && object::finalizers(object).is_empty()
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
