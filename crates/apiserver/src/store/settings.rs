//! Settings of a store.

use std::time::Duration;

/// Default number of events in the history, which limits how far a watch may fall behind. An event contains its object
/// as JSON text. This number of events covers hours in a busy small cluster; clients renew their watches within ten
/// minutes.
pub const DEFAULT_HISTORY_SIZE: usize = 50_000;

/// Default limit of the memory that the history needs in addition to the current objects, in bytes: about 15,000 updates
/// of Pods, or 120 of an object of 1 MiB.
pub(super) const DEFAULT_HISTORY_BYTES: usize = 128 * 1024 * 1024;

/// Settings of a store.
#[derive(Debug, Clone, Copy)]
pub struct StoreSettings {
    /// Maximum number of events in the history.
    pub history_size: usize,
    /// Maximum memory that the history needs in addition to the current objects, in bytes.
    pub history_bytes: usize,
    /// Minimum size in bytes of the writes after a checkpoint before a new journal file is written. If the checkpoint
    /// is larger, its size applies instead.
    pub checkpoint_after: u64,
    /// Delay of the first retry after a write failure; it doubles with each retry.
    pub retry_delay: Duration,
}

// === impl StoreSettings ===

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            history_size: DEFAULT_HISTORY_SIZE,
            history_bytes: DEFAULT_HISTORY_BYTES,
            checkpoint_after: 8 * 1024 * 1024,
            retry_delay: Duration::from_secs(1),
        }
    }
}
