//! What a controller wants done, as data.

use std::sync::Arc;

use apimachinery::status::Status;
use jiff::Timestamp;
use serde_json::Value;

use crate::Server;
use crate::object;

/// One write, or one event. Objects name their own namespace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Create { resource: &'static str, object: Value },
    Update { resource: &'static str, object: Value },
    Status { resource: &'static str, object: Value },
    Delete { resource: &'static str, object: Arc<Value> },
    Event { about: Value, kind: &'static str, reason: &'static str, message: String },
}

/// What one look at an object led to.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Plan {
    /// In order; the first that fails ends the turn.
    pub(crate) actions: Vec<Action>,
    /// Look again at this time, though nothing changes before.
    pub(crate) wake: Option<Timestamp>,
}

// === impl Plan ===

impl Plan {
    pub(crate) fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(crate) fn event(&mut self, about: &Value, reason: &'static str, message: String) {
        self.push(Action::Event { about: about.clone(), kind: "Normal", reason, message });
    }

    /// Look again at `at`, or earlier if that was already wanted.
    pub(crate) fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |before| before.min(at)));
    }

    /// Writes `status` unless the object already has it.
    pub(crate) fn status(&mut self, resource: &'static str, object: &Value, status: Value) {
        if object.get("status") == Some(&status) {
            return;
        }
        let mut object = object.clone();
        object::members(&mut object).insert("status".to_owned(), status);
        self.push(Action::Status { resource, object });
    }
}

// === impl Action ===

impl Action {
    /// Does it. `component` is the reporting component of events.
    ///
    /// # Errors
    /// What the API server answers; a conflict means that the object is newer than the plan.
    pub(crate) fn perform(self, server: &Server, component: &str) -> Result<(), Status> {
        match self {
            Self::Create { resource, object } => server.create(resource, object).map(drop),
            Self::Update { resource, object } => server.update(resource, object).map(drop),
            Self::Status { resource, object } => server.update_status(resource, object).map(drop),
            Self::Delete { resource, object } => {
                server.delete(resource, object::namespace(&object), object::name(&object), Some(object::uid(&object)))
            }
            Self::Event { about, kind, reason, message } => {
                server.event(&about, kind, reason, &message, component);
                Ok(())
            }
        }
    }
}
