//! The ports of the cluster: interfaces to everything outside it. The caller provides the implementations.

use std::sync::Arc;

pub use apiserver::ports::{
    Admission, AdmissionRequest, AdmissionResponse, AdmitAll, Clock, PodLogOptions, PodLogs, Random, ServerPorts,
    SystemClock, SystemRandom,
};
pub use node_agent::{
    ContainerConfig, ContainerExit, ContainerPurpose, ContainerRuntime, Devices, LogSink, Mount, Network,
    NetworkStream, NoDevices, TcpNetwork,
};

/// The ports of a cluster.
#[derive(Clone)]
pub struct Ports {
    /// The ports of the API server; all components use its clock and randomness.
    pub server: ServerPorts,
    /// Runs containers.
    pub runtime: Arc<dyn ContainerRuntime>,
    /// Connects to Pods.
    pub network: Arc<dyn Network>,
    /// Lists the devices of nodes.
    pub devices: Arc<dyn Devices>,
}
