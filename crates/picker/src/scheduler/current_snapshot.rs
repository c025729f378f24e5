//! The current snapshot of a scheduler.

use std::sync::{Arc, PoisonError, RwLock};

use crate::snapshot::Snapshot;

/// The current snapshot, which the scheduler and its queues share.
#[derive(Debug, Clone, Default)]
pub(super) struct CurrentSnapshot(Arc<RwLock<Arc<Snapshot>>>);

// === impl CurrentSnapshot ===

impl CurrentSnapshot {
    pub(super) fn get(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set(&self, snapshot: Snapshot) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }
}
