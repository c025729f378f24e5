//! The ports of the cluster: interfaces to everything outside the cluster core. The caller provides the
//! implementations. Each port has its own module.

mod admission;
mod clock;
mod logs;
mod network;
mod random;
mod runtime;

use std::sync::Arc;

pub use crate::node::logs::LogSink;
pub use admission::{Admission, AdmissionRequest, AdmissionResponse, AdmitAll};
pub use clock::{Clock, SystemClock};
pub use logs::{PodLogOptions, PodLogs};
pub use network::{Network, NetworkStream, TcpNetwork};
pub use random::{Random, SystemRandom};
pub use runtime::{ContainerConfig, ContainerExit, ContainerPurpose, ContainerRuntime, Mount};

/// The ports of one cluster.
#[derive(Clone)]
pub struct Ports {
    /// The current time.
    pub clock: Arc<dyn Clock>,
    /// Random UIDs and name suffixes.
    pub random: Arc<dyn Random>,
    /// Admission of writes.
    pub admission: Arc<dyn Admission>,
    /// Runs containers.
    pub runtime: Arc<dyn ContainerRuntime>,
    /// Connects to Pods.
    pub network: Arc<dyn Network>,
}
