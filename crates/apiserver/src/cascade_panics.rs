//! Notifies the retries of [`cascade`](crate::cascade) of steps that panicked.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whether steps panicked since the last retry.
#[derive(Debug, Default)]
pub(crate) struct CascadePanics {
    has_panicked: AtomicBool,
    recorded: Notify,
}

// === impl CascadePanics ===

impl CascadePanics {
    /// Records a panic.
    pub(crate) fn record(&self) {
        self.has_panicked.store(true, Ordering::Release);
        self.recorded.notify_one();
    }

    /// Forgets the panics before a retry.
    pub(crate) fn reset(&self) {
        self.has_panicked.store(false, Ordering::Release);
    }

    /// Returns whether no step panicked since the last reset.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_panicked.load(Ordering::Acquire)
    }

    /// Waits until a step has panicked since the last reset.
    pub(crate) async fn recorded(&self) {
        while self.is_empty() {
            self.recorded.notified().await;
        }
    }
}
