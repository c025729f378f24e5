//! A new object through the stages.

use std::sync::Arc;

use apimachinery::status::Status;
use serde_json::Value;

use super::Write;
use crate::store::depth;
use crate::write::{Outcome, admit, allocate, cel, commit, prepare, typed, validate, warnings};
use crate::{crd, object, reviews};

impl Write<'_> {
    /// # Errors
    /// What some stage refuses, 409 for a name that is taken.
    pub(super) fn create(&self, mut object: Value, applied: bool) -> Result<Outcome, Status> {
        let mut warnings = self.read(&mut object, applied)?;
        let made = |object, warnings| Ok(Outcome { object, warnings, created: true });
        if self.resource.virtual_only {
            validate::create(self.resource, &object)?;
            reviews::answer(self.resource, &mut object);
            return made(Arc::new(object), warnings);
        }
        self.complete(&mut object)?;
        warnings.extend(self.judge(&mut object)?);
        let place = self.place(object::name(&object));
        let taken = || Status::already_exists(&self.resource.qualified(), &place.name);
        if self.server.store().get(&place).is_some() {
            return Err(taken());
        }
        warnings.extend(admit::check(self.server, self.resource, "CREATE", Some(&object), None)?);
        if self.resource.storage == crd::STORAGE {
            crd::note_stored(&mut object);
        }
        if self.options.dry_run {
            depth::check(&place.name, &object)?;
            return made(Arc::new(object), warnings);
        }
        let object = commit::create(self.server, self.resource, &place, object)?.ok_or_else(taken)?;
        made(object, warnings)
    }

    /// What the client wrote, in the form of its type. What the server adds from here on has no owner.
    fn read(&self, object: &mut Value, applied: bool) -> Result<Vec<String>, Status> {
        prepare::address(self.resource, self.namespace, object)?;
        prepare::generate_name(object, self.server.inner.random.as_ref());
        let warnings = self.told(object)?;
        self.shape(object, applied);
        prepare::no_status(self.resource, object);
        self.track(None, object, applied);
        Ok(warnings)
    }

    /// What the server adds to it.
    fn complete(&self, object: &mut Value) -> Result<(), Status> {
        prepare::birth(self.resource, object, &self.server.inner.random.uuid(), self.server.now());
        prepare::born(self.resource, object);
        admit::mutate(self.server, self.resource, object)?;
        typed::form(self.resource, object);
        Ok(())
    }

    /// Whether it may be, and under which warnings.
    fn judge(&self, object: &mut Value) -> Result<Vec<String>, Status> {
        validate::create(self.resource, object)?;
        let warnings = warnings::of(self.resource, None, object);
        admit::accepts(self.server, self.resource, self.namespace, object)?;
        cel::check(self.resource, object, None)?;
        allocate::to_service(self.server, self.resource, None, object)?;
        Ok(warnings)
    }
}
