//! The writes and events of a controller, as data.

use std::sync::Arc;

use apimachinery::{Status, object};
use apiserver::Server;
use jiff::Timestamp;
use serde_json::Value;

/// One write or Event. The namespace is that of the object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Fails if an object with the name exists.
    Create { resource: &'static str, object: Value },
    /// Fails if the object has changed since it was read.
    Update { resource: &'static str, object: Value },
    /// Replaces nothing but the status; fails like `Update`.
    UpdateStatus { resource: &'static str, object: Value },
    /// Fails if the object was replaced by another one with the same name.
    Delete { resource: &'static str, object: Arc<Value> },
    /// Increments the count if the same Event exists; never fails.
    Event { involved_object: Value, type_: &'static str, reason: &'static str, message: String },
}

/// The result of reconciling one object.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Plan {
    /// Executed in order; the first failure ends the execution, so that a rejected burst costs one request.
    pub(crate) actions: Vec<Action>,
    /// When to reconcile the object again even if it does not change.
    pub(crate) requeue_at: Option<Timestamp>,
    /// Number of Pods that the actions create or delete.
    pod_writes: usize,
}

/// Maximum number of Pods that one plan creates or deletes (`BurstReplicas` of ReplicaSets, `MaxPodCreateDeletePerSync`
/// of Jobs). The changes of these Pods enqueue their controller again, and its next plan continues.
pub(crate) const BURST_REPLICAS: usize = 500;

// === impl Plan ===

impl Plan {
    /// Appends an action.
    pub(crate) fn push(&mut self, action: Action) {
        if matches!(action, Action::Create { resource: "pods", .. } | Action::Delete { resource: "pods", .. }) {
            self.pod_writes += 1;
        }
        self.actions.push(action);
    }

    /// Whether the plan must not create or delete further Pods.
    pub(crate) fn is_burst_complete(&self) -> bool {
        self.pod_writes >= BURST_REPLICAS
    }

    /// Appends an event of type `Normal`.
    pub(crate) fn normal_event(&mut self, involved_object: &Value, reason: &'static str, message: String) {
        self.push(Action::Event { involved_object: involved_object.clone(), type_: "Normal", reason, message });
    }

    /// Requeues the object at `at`, or earlier when an earlier time is set.
    pub(crate) fn requeue_at(&mut self, at: Timestamp) {
        self.requeue_at = Some(self.requeue_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Updates the status unless the object already has this status.
    pub(crate) fn update_status(&mut self, resource: &'static str, object: &Value, status: Value) {
        if object.get("status") == Some(&status) {
            return;
        }
        let mut object = object.clone();
        object::members(&mut object).insert("status".to_owned(), status);
        self.push(Action::UpdateStatus { resource, object });
    }
}

// === impl Action ===

impl Action {
    /// Executes the action. `component` is the reporting component of events.
    ///
    /// # Errors
    /// The error of the API server. A conflict means that the object has changed since the plan was made.
    pub(crate) fn execute(self, server: &Server, component: &str) -> Result<(), Status> {
        match self {
            Self::Create { resource, object } => server.create(resource, object).map(drop),
            Self::Update { resource, object } => server.update(resource, object).map(drop),
            Self::UpdateStatus { resource, object } => server.update_status(resource, object).map(drop),
            Self::Delete { resource, object } => {
                server.delete(resource, object::namespace(&object), object::name(&object), Some(object::uid(&object)))
            }
            Self::Event { involved_object, type_, reason, message } => {
                server.record_event(&involved_object, type_, reason, &message, component);
                Ok(())
            }
        }
    }
}
