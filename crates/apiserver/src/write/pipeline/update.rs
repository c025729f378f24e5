//! Update of an object.

use std::sync::Arc;

use apimachinery::{Status, equal_ignoring_timestamps};
use serde_json::Value;

use super::Pipeline;
use crate::store::depth;
use crate::write::{
    Proposal, ProposeFn, Subresource, WriteResult, admit, allocate, commit, preconditions, prepare, validate,
    validation_rules, warnings,
};
use crate::{crd, object};

impl Pipeline<'_> {
    /// Tries to update an object. Returns `None` on a conflict with a concurrent write.
    pub(super) fn modify(&self, name: &str, propose: ProposeFn<'_>) -> Result<Option<WriteResult>, Status> {
        let key = self.object_key(name);
        let Some(stored) = self.server.store().get(&key) else {
            return self.create_on_update(name, propose(None)?).map(Some);
        };
        let current = self.with_schema_defaults(&stored);
        let (mut object, is_applied) = propose(Some(&current))?.into_parts();
        let mut warnings = self.prepare_update(name, &current, &mut object, is_applied)?;
        let result_without_write = |object, warnings| Ok(Some(WriteResult { object, warnings, created: false }));
        // Skip writes that change nothing. An applied object may equal the stored one only after defaulting.
        if object == *stored || is_applied && equal_ignoring_timestamps(&object, &stored) {
            return result_without_write(stored, warnings);
        }
        warnings.extend(self.validate_update(&current, &object)?);
        if self.resource.storage == crd::STORAGE && self.subresource == Subresource::Main {
            crd::record_storage_version(&mut object);
        }
        if self.options.dry_run {
            depth::check(&key.name, &object)?;
            return result_without_write(Arc::new(object), warnings);
        }
        let update =
            commit::PendingUpdate { key: &key, subresource: self.subresource, stored: &stored, current: &current };
        let stored_object = commit::update(self.server, self.resource, &update, object)?;
        Ok(stored_object.map(|object| WriteResult { object, warnings, created: false }))
    }

    /// Creates an object through PUT or server-side apply.
    fn create_on_update(&self, name: &str, proposal: Proposal) -> Result<WriteResult, Status> {
        match proposal {
            Proposal::Apply(object) if self.subresource == Subresource::Main => {
                self.server.create_object(self.resource, self.namespace, Proposal::Apply(object), self.options)
            }
            Proposal::Update(mut object)
                if self.subresource == Subresource::Main && self.resource.allows_create_on_update() =>
            {
                let requested_version =
                    object.pointer("/metadata/resourceVersion").cloned().filter(|_| self.options.dry_run);
                object::set_metadata_field(&mut object, "resourceVersion", None);
                let proposal = Proposal::Update(object);
                let mut result = self.server.create_object(self.resource, self.namespace, proposal, self.options)?;
                // Dry runs do not assign a resource version.
                if requested_version.is_some() {
                    object::set_metadata_field(Arc::make_mut(&mut result.object), "resourceVersion", requested_version);
                }
                Ok(result)
            }
            _ => Err(Status::not_found(&self.resource.group_resource(), name)),
        }
    }

    /// Prepares the object that the client wrote: checks preconditions, restores the fields owned by the server and
    /// applies defaults. Returns warnings.
    fn prepare_update(
        &self,
        name: &str,
        current: &Value,
        object: &mut Value,
        is_applied: bool,
    ) -> Result<Vec<String>, Status> {
        let (server, resource) = (self.server, self.resource);
        let warnings = self.check_fields(object).map_err(|status| self.options.body.type_error(status))?;
        preconditions::check_version(resource, name, current, object, self.options.body)?;
        prepare::set_type_and_namespace(resource, self.namespace, object)?;
        preconditions::check_name(current, object)?;
        prepare::retain_server_fields(self.subresource, resource, current, object);
        self.apply_defaults(object, is_applied);
        self.track_managed_fields(Some(current), object, is_applied);
        allocate::allocate_for_service(server, resource, Some(current), object)?;
        if self.subresource == Subresource::Main {
            admit::mutate_update(resource, object);
        }
        prepare::update_generation(resource, current, object);
        prepare::prepare_for_update(resource, current, object, server.now());
        Ok(warnings)
    }

    /// Validates the update and returns warnings.
    fn validate_update(&self, current: &Value, object: &Value) -> Result<Vec<String>, Status> {
        let (server, resource) = (self.server, self.resource);
        validate::update(resource, self.subresource, current, object)
            .map_err(|status| self.options.body.type_error(status))?;
        let mut warnings = warnings::warnings_for(resource, Some(current), object);
        validation_rules::check(resource, object, Some(current))?;
        warnings.extend(admit::review(server, resource, "UPDATE", Some(object), Some(current))?);
        Ok(warnings)
    }
}
