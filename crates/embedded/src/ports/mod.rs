//! Everything that reaches outside: the caller fills these in, tests and the simulation with their own. A file for each port.

mod admission;
mod clock;
mod logs;
mod network;
mod random;
mod runner;

use std::sync::Arc;

pub use crate::node::logs::LogSink;
pub use admission::{Admission, AdmissionRequest, AdmissionResponse, AdmitAll};
pub use clock::{Clock, SystemClock};
pub use logs::{LogQuery, PodLogs};
pub use network::{Loopback, Network, Stream};
pub use random::{Random, SystemRandom};
pub use runner::{Container, Exit, Mount, Purpose, Runner};

/// The ports of one cluster.
#[derive(Clone)]
pub struct Ports {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub admission: Arc<dyn Admission>,
    pub runner: Arc<dyn Runner>,
    pub network: Arc<dyn Network>,
}
