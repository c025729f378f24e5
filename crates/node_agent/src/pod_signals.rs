//! Signals to the worker of a Pod.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Signals from the sync loop to the worker of a Pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodSignals {
    /// The Pod has a deletion timestamp: terminate it within its grace period.
    pub(crate) delete: CancellationToken,
    /// The Pod was removed from the API: kill it.
    pub(crate) removed: CancellationToken,
    /// The agent is shutting down: stop the containers, but do not modify the Pod in the API.
    pub(crate) shutdown: CancellationToken,
    /// The readiness of the node has changed, or change notifications were missed: update the Pod status.
    pub(crate) refresh: Arc<Notify>,
}
