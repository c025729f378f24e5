//! Creation of an object.

use std::sync::Arc;

use apimachinery::Status;
use serde_json::Value;

use super::Pipeline;
use crate::store::depth;
use crate::write::{WriteResult, admit, allocate, commit, normalize, prepare, validate, validation_rules, warnings};
use crate::{crd, object, reviews};

impl Pipeline<'_> {
    /// Creates an object.
    ///
    /// # Errors
    /// The errors of the stages, and 409 if an object with this name exists.
    pub(super) fn create(&self, mut object: Value, is_applied: bool) -> Result<WriteResult, Status> {
        let mut warnings = self.prepare_new(&mut object, is_applied)?;
        let created = |object, warnings| Ok(WriteResult { object, warnings, created: true });
        if self.resource.create_only {
            validate::create(self.resource, &object)?;
            reviews::fill_status(self.resource, &mut object);
            return created(Arc::new(object), warnings);
        }
        self.complete_new(&mut object)?;
        warnings.extend(self.validate_new(&mut object)?);
        let key = self.object_key(object::name(&object));
        let already_exists = || Status::already_exists(&self.resource.group_resource(), &key.name);
        if self.server.store().get(&key).is_some() {
            return Err(already_exists());
        }
        warnings.extend(admit::review(self.server, self.resource, "CREATE", Some(&object), None)?);
        if self.resource.storage == crd::STORAGE {
            crd::record_storage_version(&mut object);
        }
        if self.options.dry_run {
            depth::check(&key.name, &object)?;
            return created(Arc::new(object), warnings);
        }
        let object = commit::create(self.server, self.resource, &key, object)?.ok_or_else(already_exists)?;
        created(object, warnings)
    }

    /// Prepares the object that the client wrote and records its field manager. Fields that later stages set have no
    /// field manager.
    fn prepare_new(&self, object: &mut Value, is_applied: bool) -> Result<Vec<String>, Status> {
        prepare::set_type_and_namespace(self.resource, self.namespace, object)?;
        prepare::generate_name(object, self.server.core.random.as_ref());
        let warnings = self.check_fields(object)?;
        self.apply_defaults(object, is_applied);
        prepare::drop_status(self.resource, object);
        self.track_managed_fields(None, object, is_applied);
        Ok(warnings)
    }

    /// Sets the fields owned by the server.
    fn complete_new(&self, object: &mut Value) -> Result<(), Status> {
        prepare::initialize_metadata(self.resource, object, &self.server.core.random.uuid(), self.server.now());
        prepare::prepare_for_create(self.resource, object);
        admit::mutate(self.server, self.resource, object)?;
        normalize::normalize(self.resource, object);
        Ok(())
    }

    /// Validates the object and returns warnings.
    fn validate_new(&self, object: &mut Value) -> Result<Vec<String>, Status> {
        validate::create(self.resource, object)?;
        let warnings = warnings::warnings_for(self.resource, None, object);
        admit::check_namespace(self.server, self.resource, self.namespace, object)?;
        validation_rules::check(self.resource, object, None)?;
        allocate::allocate_for_service(self.server, self.resource, None, object)?;
        Ok(warnings)
    }
}
