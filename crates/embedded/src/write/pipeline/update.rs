//! An object that changes, through the stages.

use std::sync::Arc;

use apimachinery::apply;
use apimachinery::status::Status;
use serde_json::Value;

use super::Write;
use crate::store::depth;
use crate::write::{
    Face, Outcome, Proposal, Propose, admit, allocate, cel, commit, preconditions, prepare, validate, warnings,
};
use crate::{crd, object};

impl Write<'_> {
    /// `None` when another write came between.
    pub(super) fn modify(&self, name: &str, propose: Propose<'_>) -> Result<Option<Outcome>, Status> {
        let place = self.place(name);
        let Some(stored) = self.server.store().get(&place) else {
            return self.make(name, propose(None)?).map(Some);
        };
        let current = self.filled(&stored);
        let (mut object, applied) = propose(Some(&current))?.into_parts();
        let mut warnings = self.read_over(name, &current, &mut object, applied)?;
        let unchanged = |object, warnings| Ok(Some(Outcome { object, warnings, created: false }));
        // What was applied may be made of null, and be the same once that has its default.
        if object == *stored || applied && apply::is_same_but_for_times(&object, &stored) {
            return unchanged(stored, warnings);
        }
        warnings.extend(self.judge_change(&current, &object)?);
        if self.resource.storage == crd::STORAGE && self.face == Face::Main {
            crd::note_stored(&mut object);
        }
        if self.options.dry_run {
            depth::check(&place.name, &object)?;
            return unchanged(Arc::new(object), warnings);
        }
        let change = commit::Change { place: &place, face: self.face, stored: &stored, current: &current };
        let written = commit::update(self.server, self.resource, &change, object)?;
        Ok(written.map(|object| Outcome { object, warnings, created: false }))
    }

    /// What is written to a name that is free.
    fn make(&self, name: &str, proposal: Proposal) -> Result<Outcome, Status> {
        match proposal {
            Proposal::Applied(object) if self.face == Face::Main => {
                self.server.create_object(self.resource, self.namespace, Proposal::Applied(object), self.options)
            }
            Proposal::Written(mut object) if self.face == Face::Main && self.resource.is_made_by_replacing() => {
                let echo = object.pointer("/metadata/resourceVersion").cloned().filter(|_| self.options.dry_run);
                object::set_metadata(&mut object, "resourceVersion", None);
                let proposal = Proposal::Written(object);
                let mut made = self.server.create_object(self.resource, self.namespace, proposal, self.options)?;
                // Nothing was stored that could have a version of its own.
                if echo.is_some() {
                    object::set_metadata(Arc::make_mut(&mut made.object), "resourceVersion", echo);
                }
                Ok(made)
            }
            _ => Err(Status::not_found(&self.resource.qualified(), name)),
        }
    }

    /// What the client wrote over what there is, with what the server keeps and counts.
    fn read_over(&self, name: &str, current: &Value, object: &mut Value, applied: bool) -> Result<Vec<String>, Status> {
        let (server, resource) = (self.server, self.resource);
        let warnings = self.told(object).map_err(|status| self.options.body.unfit(status))?;
        preconditions::same_version(resource, name, current, object, self.options.body)?;
        prepare::address(resource, self.namespace, object)?;
        preconditions::same_name(current, object)?;
        prepare::keep(self.face, resource, current, object);
        self.shape(object, applied);
        self.track(Some(current), object, applied);
        allocate::to_service(server, resource, Some(current), object)?;
        if self.face == Face::Main {
            admit::mutate_change(resource, object);
        }
        prepare::count_generation(resource, current, object);
        prepare::changed(resource, current, object, server.now());
        Ok(warnings)
    }

    /// Whether it may become this, and under which warnings.
    fn judge_change(&self, current: &Value, object: &Value) -> Result<Vec<String>, Status> {
        let (server, resource) = (self.server, self.resource);
        validate::update(resource, self.face, current, object).map_err(|status| self.options.body.unfit(status))?;
        let mut warnings = warnings::of(resource, Some(current), object);
        cel::check(resource, object, Some(current))?;
        warnings.extend(admit::check(server, resource, "UPDATE", Some(object), Some(current))?);
        Ok(warnings)
    }
}
