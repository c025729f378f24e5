//! Runs the stages of a write and retries after conflicts.

mod create;
mod update;

use std::sync::Arc;

use apimachinery::Status;
use serde_json::Value;

use super::{
    Proposal, ProposeFn, Subresource, WriteOptions, WriteResult, decode, default, managed_fields, normalize, prepare,
    prune,
};
use crate::object;
use crate::resources::Resource;
use crate::server::{Server, object_key};
use crate::store::ObjectKey;

/// Maximum number of attempts, after name collisions of `generateName` or after conflicts with concurrent writes.
const MAX_ATTEMPTS: usize = 8;

/// Parameters of a write.
#[derive(Clone, Copy)]
struct Pipeline<'a> {
    server: &'a Server,
    resource: &'a Resource,
    subresource: Subresource,
    /// Empty for cluster-scoped objects.
    namespace: &'a str,
    options: &'a WriteOptions,
}

// === impl Server ===

impl Server {
    /// Creates an object. If only `generateName` is set, the server generates the name.
    pub(crate) fn create_object(
        &self,
        resource: &Resource,
        namespace: &str,
        proposal: Proposal,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        let pipeline = Pipeline { server: self, resource, subresource: Subresource::Main, namespace, options };
        let (object, is_applied) = proposal.into_parts();
        if !object::name(&object).is_empty() {
            return pipeline.create(object, is_applied);
        }
        let mut last_error = Status::internal_error("no name was generated");
        for _ in 0..MAX_ATTEMPTS {
            match pipeline.create(object.clone(), is_applied) {
                Err(status) if status.reason == "AlreadyExists" => last_error = status,
                result => return result,
            }
        }
        Err(last_error)
    }

    /// Updates an object. `propose` computes the new object and is called again after a conflict.
    ///
    /// # Errors
    /// 404 if the object does not exist and the write does not create it, 409 on a conflict, 422 if the object is
    /// invalid, and the errors of `propose`.
    pub(crate) fn modify(
        &self,
        resource: &Resource,
        subresource: Subresource,
        namespace: &str,
        name: &str,
        options: &WriteOptions,
        propose: ProposeFn<'_>,
    ) -> Result<WriteResult, Status> {
        let pipeline = Pipeline { server: self, resource, subresource, namespace, options };
        for _ in 0..MAX_ATTEMPTS {
            if let Some(result) = pipeline.modify(name, propose)? {
                return Ok(result);
            }
        }
        Err(Status::object_modified(&resource.group_resource(), name))
    }
}

// === impl Pipeline ===

impl Pipeline<'_> {
    fn object_key(&self, name: &str) -> ObjectKey {
        object_key(self.resource, self.namespace, name)
    }

    /// Checks the object that the client sent for type mismatches and unknown fields. Returns warnings.
    fn check_fields(&self, object: &mut Value) -> Result<Vec<String>, Status> {
        decode::check_field_types(self.resource, object)?;
        if self.resource.custom {
            object::normalize_integers(object);
        }
        prune::prune_unknown_fields(self.resource, object, self.options)
    }

    /// Applies defaults and normalizes the object.
    fn apply_defaults(&self, object: &mut Value, is_applied: bool) {
        // No field in the status of a built-in kind has a default.
        if self.subresource == Subresource::Main || self.resource.custom {
            default::apply_request_defaults(self.resource, object, is_applied);
        }
        if self.resource.storage == "pods" {
            prepare::default_pod_ips(object);
        }
        normalize::normalize(self.resource, object);
    }

    /// Records the field manager. For server-side apply, it is already recorded.
    fn track_managed_fields(&self, old: Option<&Value>, object: &mut Value, is_applied: bool) {
        if !is_applied {
            managed_fields::record_manager(
                self.resource,
                self.subresource,
                self.options,
                self.server.now(),
                old,
                object,
            );
        }
    }

    /// Returns a stored object with the defaults of the current schema, which may have been added after the object was
    /// stored.
    fn with_schema_defaults(&self, stored: &Arc<Value>) -> Arc<Value> {
        if !self.resource.has_defaults {
            return Arc::clone(stored);
        }
        let mut object = Value::clone(stored);
        default::apply_defaults(self.resource, &mut object);
        Arc::new(object)
    }
}
