//! Runs the stages, again from the start when another write came between.

mod create;
mod update;

use std::sync::Arc;

use apimachinery::status::Status;
use serde_json::Value;

use super::{Face, Options, Outcome, Proposal, Propose, decode, default, owners, prepare, prune, typed};
use crate::object;
use crate::resources::Resource;
use crate::server::{Server, key};
use crate::store::Key;

/// Tries for a free generated name, and against concurrent writers.
const TRIES: usize = 8;

/// One write on its way through the stages.
#[derive(Clone, Copy)]
struct Write<'a> {
    server: &'a Server,
    resource: &'a Resource,
    face: Face,
    /// Empty for cluster scope.
    namespace: &'a str,
    options: &'a Options,
}

// === impl Server ===

impl Server {
    /// Creates what `proposal` holds; a `generateName` gets its suffix here.
    pub(crate) fn create_object(
        &self,
        resource: &Resource,
        namespace: &str,
        proposal: Proposal,
        options: &Options,
    ) -> Result<Outcome, Status> {
        let write = Write { server: self, resource, face: Face::Main, namespace, options };
        let (object, applied) = proposal.into_parts();
        if !object::name(&object).is_empty() {
            return write.create(object, applied);
        }
        let mut last = Status::internal("no name tried");
        for _ in 0..TRIES {
            match write.create(object.clone(), applied) {
                Err(status) if status.reason == "AlreadyExists" => last = status,
                result => return result,
            }
        }
        Err(last)
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
        let write = Write { server: self, resource, face, namespace, options };
        for _ in 0..TRIES {
            if let Some(outcome) = write.modify(name, propose)? {
                return Ok(outcome);
            }
        }
        Err(Status::modified(&resource.qualified(), name))
    }
}

// === impl Write ===

impl Write<'_> {
    fn place(&self, name: &str) -> Key {
        key(self.resource, self.namespace, name)
    }

    /// What a client is told of its object as it was sent.
    fn told(&self, object: &mut Value) -> Result<Vec<String>, Status> {
        decode::fits(self.resource, object)?;
        if self.resource.custom {
            object::whole_numbers(object);
        }
        prune::unknown_fields(self.resource, object, self.options)
    }

    /// Makes an object what the resource says it looks like.
    fn shape(&self, object: &mut Value, applied: bool) {
        // What a status write leaves alone has its defaults already.
        if self.face == Face::Main || self.resource.custom {
            default::fill_written(self.resource, object, applied);
        }
        if self.resource.storage == "pods" {
            prepare::addresses(object);
        }
        typed::form(self.resource, object);
    }

    /// Notes who owns what was written; server-side apply has done that.
    fn track(&self, before: Option<&Value>, object: &mut Value, applied: bool) {
        if !applied {
            owners::track(self.resource, self.face, self.options, self.server.now(), before, object);
        }
    }

    /// The object with the defaults of its schema: what came as one since it was stored counts as written.
    fn filled(&self, stored: &Arc<Value>) -> Arc<Value> {
        if !self.resource.has_defaults {
            return Arc::clone(stored);
        }
        let mut object = Value::clone(stored);
        default::fill(self.resource, &mut object);
        Arc::new(object)
    }
}
