//! What one reconcile has to tell: conditions and status for the object, and what of it is worth an event.

use cluster::Condition;
use cluster::conditions::{Transition, transitions};
use serde_json::Value;

/// Status and events of one record.
#[derive(Clone, Debug)]
pub struct Report {
    /// The conditions, without times.
    pub conditions: Vec<Condition>,
    /// The whole status that the operator writes.
    pub status: Value,
    /// What is worth an event beside conditions that turned.
    pub news: Vec<Transition>,
}

// === impl Report ===

impl Report {
    /// The events, each reason once: news first, since they carry the numbers.
    #[must_use]
    pub fn events(&self, object: &Value) -> Vec<Transition> {
        let mut events = self.news.clone();
        for turned in transitions(&object["status"]["conditions"], &self.conditions) {
            if events.iter().all(|told| told.reason != turned.reason) {
                events.push(turned);
            }
        }
        events
    }
}
