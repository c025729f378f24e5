//! Result of a reconcile: the status to write and the events to send.

use cluster::{Condition, Transition, condition_transitions};
use serde_json::Value;

/// Status and events of one object.
#[derive(Clone, Debug)]
pub(crate) struct StatusReport {
    /// The conditions, without transition times.
    pub(crate) conditions: Vec<Condition>,
    /// The complete status that the operator writes.
    pub(crate) status: Value,
    /// Events that are not condition transitions.
    pub(crate) events: Vec<Transition>,
}

// === impl StatusReport ===

impl StatusReport {
    /// Returns the events to send, with each reason once. `events` precede condition transitions because their messages
    /// contain more details.
    pub(crate) fn all_events(&self, object: &Value) -> Vec<Transition> {
        let mut events = self.events.clone();
        for transition in condition_transitions(&object["status"]["conditions"], &self.conditions) {
            if events.iter().all(|event| event.reason != transition.reason) {
                events.push(transition);
            }
        }
        events
    }
}
