//! Counts engines by state for the metrics, at most once per second and only after something has changed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::coordinator::Coordinator;
use crate::metrics::Metrics;
use crate::node::Engine;

/// Time from a change until the engines are counted.
const COUNT_DELAY: Duration = Duration::from_secs(1);

/// The numbers of engines of one term. Dropping it removes them from the metrics.
pub(super) struct EngineGauges {
    metrics: Arc<Metrics>,
    due: Option<Instant>,
}

// === impl EngineGauges ===

impl EngineGauges {
    pub(super) fn new(metrics: Arc<Metrics>) -> EngineGauges {
        EngineGauges { metrics, due: None }
    }

    /// Notes that the state of an engine may have changed.
    pub(super) fn note_change(&mut self) {
        self.due = self.due.or_else(|| Instant::now().checked_add(COUNT_DELAY));
    }

    /// Returns when to call [`Self::update`].
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Counts the engines if they are due.
    pub(super) fn update(&mut self, coordinator: &Coordinator) {
        if self.due.is_some_and(|due| due <= Instant::now()) {
            let engines = coordinator.nodes().flat_map(|node| node.engines.values());
            self.metrics.set_engines(engines.map(Engine::state));
            self.due = None;
        }
    }
}

impl Drop for EngineGauges {
    fn drop(&mut self) {
        self.metrics.remove_engines();
    }
}
