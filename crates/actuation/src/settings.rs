//! Settings of the controller.

use std::time::Duration;

/// Settings of the controller, the same for all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of sleeping engines per accelerator while another one is awake.
    pub sleeper_limit: usize,
    /// How long a sleeping engine is retained after it was last awake; forever if absent.
    pub sleeper_ttl: Option<Duration>,
    /// How long the requests of an engine may run before it is put to sleep.
    pub drain: Duration,
    /// Wait between the removal of the pool labels and the first poll of the number of requests.
    pub settle: Duration,
    /// Whether an engine that wakes up has to return the same completion as when it was first ready.
    pub verify_completion: bool,
    /// Accelerator memory in MiB that a sleeping engine may retain.
    pub residue_mib: u64,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Settings {
            sleeper_limit: 1,
            sleeper_ttl: None,
            drain: Duration::from_secs(20),
            settle: Duration::from_millis(200),
            verify_completion: false,
            residue_mib: 4096,
        }
    }
}
