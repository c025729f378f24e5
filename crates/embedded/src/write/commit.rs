//! Runs the stages and writes the result, again from the start when another write came between.

use std::sync::Arc;

use apimachinery::apply::{self, UpdateOptions};
use apimachinery::status::{Cause, Status};
use serde_json::Value;

use super::{
    Face, Options, Outcome, Proposal, Propose, admit, allocate, cel, decode, default, default_pod, metadata, priority,
    prune, typed, validate, warnings,
};
use crate::resources::Resource;
use crate::server::{Server, key};
use crate::{collect, conversion, crd, object, reviews};

/// With the defaults of its schema.
fn filled(resource: &Resource, object: &Value) -> Arc<Value> {
    let mut object = object.clone();
    default::fill(resource, &mut object);
    Arc::new(object)
}

/// What a client is told of its object as it was sent.
fn told(resource: &Resource, object: &mut Value, options: &Options) -> Result<Vec<String>, Status> {
    decode::fits(resource, object)?;
    if resource.custom {
        object::whole_numbers(object);
    }
    prune::unknown_fields(resource, object, options)
}

/// Makes an object what the resource says it looks like.
fn shape(resource: &Resource, face: Face, object: &mut Value, applied: bool) {
    // What a status write leaves alone has its defaults already.
    if face == Face::Main || resource.custom {
        default::fill_written(resource, object, applied);
    }
    if resource.storage == "pods" {
        default_pod::addresses(object);
    }
    typed::form(resource, object);
}

/// Tries for a free generated name, and against concurrent writers.
const TRIES: usize = 8;

impl Server {
    /// Creates what `proposal` holds; a `generateName` gets its suffix here.
    pub(crate) fn create_object(
        &self,
        resource: &Resource,
        namespace: &str,
        proposal: Proposal,
        options: &Options,
    ) -> Result<Outcome, Status> {
        let (object, applied) = proposal.into_parts();
        if !object::name(&object).is_empty() {
            return self.create_once(resource, namespace, object, applied, options);
        }
        let mut last = Status::internal("no name tried");
        for _ in 0..TRIES {
            match self.create_once(resource, namespace, object.clone(), applied, options) {
                Err(status) if status.reason == "AlreadyExists" => last = status,
                result => return result,
            }
        }
        Err(last)
    }

    fn create_once(
        &self,
        resource: &Resource,
        namespace: &str,
        mut object: Value,
        applied: bool,
        options: &Options,
    ) -> Result<Outcome, Status> {
        metadata::address(resource, namespace, &mut object)?;
        metadata::generate_name(&mut object, self.inner.random.as_ref());
        let mut warnings = told(resource, &mut object, options)?;
        shape(resource, Face::Main, &mut object, applied);
        default::no_status(resource, &mut object);
        // What the server adds from here on has no owner.
        if !applied {
            self.track(resource, Face::Main, None, &mut object, options);
        }
        if resource.virtual_only {
            validate::create(resource, &object)?;
            reviews::answer(resource, &mut object);
            return Ok(Outcome { object: Arc::new(object), warnings, created: true });
        }
        metadata::birth(resource, &mut object, &self.inner.random.uuid(), self.now());
        default::born(resource, &mut object);
        priority::admit(self, resource, &mut object)?;
        typed::form(resource, &mut object);
        validate::create(resource, &object)?;
        warnings.extend(warnings::of(resource, None, &object));
        self.namespace_accepts(resource, namespace, &object)?;
        cel::check(resource, &object, None)?;
        allocate::cluster_address(self, resource, None, &mut object)?;
        let place = key(resource, namespace, object::name(&object));
        let taken = || Status::already_exists(&resource.qualified(), &place.name);
        if self.store().get(&place).is_some() {
            return Err(taken());
        }
        warnings.extend(admit::check(self, resource, "CREATE", Some(&object), None)?);
        if resource.storage == crd::STORAGE {
            crd::note_stored(&mut object);
        }
        if options.dry_run {
            return Ok(Outcome { object: Arc::new(object), warnings, created: true });
        }
        let object = self.store().attempt(&place, None, Some(object))?.ok_or_else(taken)?;
        if resource.storage == crd::STORAGE {
            crd::settle(self, &place.name);
        }
        collect::after_create(self, &place, &object);
        Ok(Outcome { object, warnings, created: true })
    }

    /// Changes one object. `propose` sees the current one and may see it again.
    ///
    /// # Errors
    /// 404 unless `propose` makes something of nothing (apply creates), 409, 422, and what `propose` says.
    pub(crate) fn modify(
        &self,
        resource: &Resource,
        face: Face,
        namespace: &str,
        name: &str,
        options: &Options,
        propose: Propose<'_>,
    ) -> Result<Outcome, Status> {
        for _ in 0..TRIES {
            if let Some(outcome) = self.modify_once(resource, face, namespace, name, options, propose)? {
                return Ok(outcome);
            }
        }
        Err(Status::modified(&resource.qualified(), name))
    }

    /// `None` when another write came between.
    fn modify_once(
        &self,
        resource: &Resource,
        face: Face,
        namespace: &str,
        name: &str,
        options: &Options,
        propose: Propose<'_>,
    ) -> Result<Option<Outcome>, Status> {
        let place = key(resource, namespace, name);
        let Some(stored) = self.store().get(&place) else {
            return match propose(None)? {
                Proposal::Applied(object) if face == Face::Main => {
                    self.create_object(resource, namespace, Proposal::Applied(object), options).map(Some)
                }
                Proposal::Written(mut object) if face == Face::Main && resource.is_made_by_replacing() => {
                    let echo = object.pointer("/metadata/resourceVersion").cloned().filter(|_| options.dry_run);
                    object::set_metadata(&mut object, "resourceVersion", None);
                    let mut made = self.create_object(resource, namespace, Proposal::Written(object), options)?;
                    // Nothing was stored that could have a version of its own.
                    if echo.is_some() {
                        object::set_metadata(Arc::make_mut(&mut made.object), "resourceVersion", echo);
                    }
                    Ok(Some(made))
                }
                _ => Err(Status::not_found(&resource.qualified(), name)),
            };
        };
        // What came as a default since then counts as written.
        let current = if resource.has_defaults { filled(resource, &stored) } else { Arc::clone(&stored) };
        let (mut object, applied) = propose(Some(&current))?.into_parts();
        let unfit = |status| options.body.unfit(status);
        let mut warnings = told(resource, &mut object, options).map_err(unfit)?;
        metadata::preconditions(resource, name, &current, &object)?;
        metadata::address(resource, namespace, &mut object)?;
        metadata::same_name(&current, &object)?;
        metadata::keep(face, resource, &current, &mut object);
        shape(resource, face, &mut object, applied);
        if !applied {
            self.track(resource, face, Some(&current), &mut object, options);
        }
        allocate::cluster_address(self, resource, Some(&current), &mut object)?;
        metadata::count_generation(resource, &current, &mut object);
        default::changed(resource, &current, &mut object, self.now());
        // What was applied may be made of null, and be the same once that has its default.
        if object == *stored || applied && apply::is_same_but_for_times(&object, &stored) {
            return Ok(Some(Outcome { object: stored, warnings, created: false }));
        }
        validate::update(resource, face, &current, &object).map_err(unfit)?;
        warnings.extend(warnings::of(resource, Some(&current), &object));
        cel::check(resource, &object, Some(&current))?;
        warnings.extend(admit::check(self, resource, "UPDATE", Some(&object), Some(&current))?);
        if resource.storage == crd::STORAGE && face == Face::Main {
            crd::note_stored(&mut object);
        }
        if options.dry_run {
            return Ok(Some(Outcome { object: Arc::new(object), warnings, created: false }));
        }
        let finished = object::is_deleting(&object) && collect::may_go(resource, &object);
        let last = finished.then(|| Arc::new(object.clone()));
        let written = if finished { None } else { Some(object) };
        let Some(object) = self.store().attempt(&place, Some(&stored), written)? else { return Ok(None) };
        if finished {
            collect::after_removal(self, resource, &object);
        } else if resource.storage == crd::STORAGE && face == Face::Main {
            crd::settle(self, &place.name);
        } else {
            collect::after_update(self, &place, &current, &object);
        }
        Ok(Some(Outcome { object: last.unwrap_or(object), warnings, created: false }))
    }

    fn track(&self, resource: &Resource, face: Face, before: Option<&Value>, after: &mut Value, options: &Options) {
        let face = options.subresource.map(str::to_owned).or_else(|| face.subresource());
        let written_as = options.written_as.clone();
        let resource = written_as.as_deref().unwrap_or(resource);
        let options = UpdateOptions {
            manager: if options.manager.is_empty() { "unknown".to_owned() } else { options.manager.clone() },
            api_version: resource.api_version(),
            subresource: face,
            now: object::time(self.now()),
            blank: typed::blank(resource),
        };
        let Some(mut shown) = conversion::shown(resource, after) else {
            return apply::track_update(&resource.structure, before, after, &options);
        };
        typed::form(resource, &mut shown);
        let before = before.and_then(|before| conversion::shown(resource, before)).map(|mut before| {
            typed::form(resource, &mut before);
            before
        });
        apply::track_update(&resource.structure, before.as_ref(), &mut shown, &options);
        object::copy_metadata(after, "managedFields", &shown);
    }

    /// 404 for a namespace that is not there, 403 for one that is going.
    fn namespace_accepts(&self, resource: &Resource, namespace: &str, object: &Value) -> Result<(), Status> {
        if !resource.namespaced {
            return Ok(());
        }
        let found = self.get("namespaces", "", namespace);
        let Some(found) = found else { return Err(Status::not_found("namespaces", namespace)) };
        if !object::is_deleting(&found) {
            return Ok(());
        }
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = Status::forbidden(&resource.qualified(), object::name(object), &why);
        if let Some(details) = status.details.as_mut().and_then(Value::as_object_mut) {
            let cause = Cause::new(
                "metadata.namespace",
                "NamespaceTerminating",
                format!("namespace {namespace} is being terminated"),
            );
            details.insert(
                "causes".to_owned(),
                serde_json::json!([{"reason": cause.reason, "message": cause.message, "field": cause.field}]),
            );
        }
        Err(status)
    }
}
