//! Signals to the worker of a Pod.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Signals from the sync loop to the worker of a Pod.
#[derive(Debug, Clone)]
pub(crate) struct PodSignals {
    /// The grace period if the Pod has a deletion timestamp: terminate it within this time. A repeated deletion with a
    /// shorter grace period changes it.
    deletion: watch::Sender<Option<Duration>>,
    /// The Pod was removed from the API: kill it.
    pub(crate) removed: CancellationToken,
    /// The agent is shutting down: stop the containers, but do not modify the Pod in the API.
    pub(crate) shutdown: CancellationToken,
    /// The readiness of the node has changed, or change notifications were missed: update the Pod status.
    pub(crate) refresh: Arc<Notify>,
}

// === impl PodSignals ===

impl PodSignals {
    /// Returns the signals of a new worker, which ends when `shutdown` is cancelled.
    pub(crate) fn new(shutdown: CancellationToken) -> Self {
        Self {
            deletion: watch::Sender::default(),
            removed: CancellationToken::new(),
            shutdown,
            refresh: Arc::default(),
        }
    }

    /// Notifies the worker of the grace period of a deleted Pod, unless the worker knows it.
    pub(crate) fn delete(&self, grace: Duration) {
        self.deletion.send_if_modified(|deletion| deletion.replace(grace) != Some(grace));
    }

    /// Whether the Pod has a deletion timestamp.
    pub(crate) fn is_deleted(&self) -> bool {
        self.deletion.borrow().is_some()
    }

    /// Waits until the Pod has a deletion timestamp, and returns its grace period.
    pub(crate) async fn deleted(&self) -> Duration {
        let mut deletion = self.deletion.subscribe();
        loop {
            if let Some(grace) = *deletion.borrow_and_update() {
                return grace;
            }
            // It fails only without a sender, but `self` is one.
            let _ = deletion.changed().await;
        }
    }

    /// Waits until `grace` has passed, or the grace period of a deletion. As in the kubelet, the grace period of a
    /// repeated deletion begins when the worker is notified; it cannot extend an earlier one.
    pub(crate) async fn grace_period_passed(&self, grace: Duration) {
        let mut deletion = self.deletion.subscribe();
        deletion.mark_changed();
        let mut end = Box::pin(tokio::time::sleep(grace));
        loop {
            tokio::select! {
                () = &mut end => return,
                Ok(()) = deletion.changed() => {
                    let new_end = (*deletion.borrow_and_update()).map(tokio::time::sleep);
                    if let Some(new_end) = new_end.filter(|new_end| new_end.deadline() < end.deadline()) {
                        end.set(new_end);
                    }
                }
            }
        }
    }
}
