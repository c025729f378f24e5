//! The ports of the API server: interfaces to everything outside it. The caller provides the implementations. Each port
//! has its own module.

mod admission;
mod clock;
mod logs;
mod random;

use std::sync::Arc;

pub use admission::{Admission, AdmissionRequest, AdmissionResponse, AdmitAll};
pub use clock::{Clock, SystemClock};
pub use logs::{PodLogOptions, PodLogs};
pub use random::{Random, SystemRandom};

/// The ports of an API server.
#[derive(Clone)]
pub struct ServerPorts {
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Source of UIDs and generated names.
    pub random: Arc<dyn Random>,
    /// Admission of writes.
    pub admission: Arc<dyn Admission>,
}

// === impl ServerPorts ===

impl Default for ServerPorts {
    /// The clock and randomness of the system; every write is admitted.
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), random: Arc::new(SystemRandom), admission: Arc::new(AdmitAll) }
    }
}
