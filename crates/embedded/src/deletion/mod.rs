//! Deletion of one object, and what goes along with it.
//!
//! What a real cluster's garbage collector and namespace controller do a moment later happens here in the same call:
//! [`follow`] says what comes after which write, [`owners`], [`namespace`] and [`definition`] do it.

mod definition;
mod follow;
mod mark;
mod namespace;
mod owners;
mod writes;

use std::sync::Arc;

use apimachinery::status::Status;
use serde_json::Value;

use crate::object;
use crate::resources::Resource;
use crate::server::{Server, key};
use crate::store::Key;
use crate::write::admit;
pub(crate) use follow::{after_create, after_removal, after_update, resume};

/// What becomes of the dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Propagation {
    /// They go after their owner.
    #[default]
    Background,
    /// They go first, as far as they block their owner.
    Foreground,
    /// They stay and lose the reference.
    Orphan,
}

/// What a client asks of a deletion.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    pub propagation: Propagation,
    /// Seconds; only Pods have any.
    pub grace: Option<i64>,
    /// Precondition.
    pub uid: Option<String>,
    /// Precondition.
    pub resource_version: Option<String>,
    pub dry_run: bool,
}

/// What a deletion did.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// It is gone; the last state.
    Gone(Arc<Value>),
    /// Something has to happen first: a finalizer, a grace period, a namespace to empty.
    Going(Arc<Value>),
}

// === impl Server ===

impl Server {
    /// Deletes one object.
    ///
    /// # Errors
    /// 404, 409 for a failed precondition.
    pub fn delete_object(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        let place = key(resource, namespace, name);
        loop {
            if let Some(deleted) = self.delete_once(resource, &place, options)? {
                return Ok(deleted);
            }
        }
    }

    /// `None` when another write came between.
    fn delete_once(
        &self,
        resource: &Resource,
        place: &Key,
        options: &DeleteOptions,
    ) -> Result<Option<Deleted>, Status> {
        let name = &place.name;
        let current = self.store().get(place).ok_or_else(|| Status::not_found(&resource.qualified(), name))?;
        check_preconditions(resource, name, &current, options)?;
        admit::check_deletion(self, resource, &current)?;
        let mut object = Value::clone(&current);
        mark::mark(resource, &mut object, options, self.now());
        let gone = may_go(resource, &object);
        if options.dry_run {
            let shown = if gone && resource.storage != "pods" { current } else { Arc::new(object) };
            return Ok(Some(if gone { Deleted::Gone(shown) } else { Deleted::Going(shown) }));
        }
        if !gone && object == *current {
            return Ok(Some(Deleted::Going(current)));
        }
        let written = if gone { None } else { Some(object.clone()) };
        let Some(committed) = self.store().attempt(place, Some(&current), written)? else { return Ok(None) };
        if gone {
            after_removal(self, resource, &committed);
            // What had no time to go never showed that it was going.
            let mut object = if resource.storage == "pods" { object } else { Value::clone(&current) };
            object::copy_metadata(&mut object, "resourceVersion", &committed);
            return Ok(Some(Deleted::Gone(Arc::new(object))));
        }
        follow::after_mark(self, resource, place, &committed);
        Ok(Some(match self.store().get(place) {
            Some(still) => Deleted::Going(still),
            None => Deleted::Gone(committed),
        }))
    }
}

/// Whether nothing holds back an object that is being deleted.
pub(crate) fn may_go(resource: &Resource, object: &Value) -> bool {
    let held = resource.storage == "namespaces" && object.pointer("/spec/finalizers/0").is_some();
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
    !held && grace == 0 && object::finalizers(object).is_empty()
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
    for (what, happened, wanted, is) in checks {
        if let Some(wanted) = wanted
            && wanted != is
        {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({is}). The object might have been {happened}"
            );
            return Err(Status::conflict(&resource.qualified_kind(), name, &why));
        }
    }
    Ok(())
}
