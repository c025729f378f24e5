//! The node agent: the kubelet of all Nodes of the process.
//!
//! Every Pod that is bound to a node gets a loopback address and a worker task ([`pod_worker`]), which runs its
//! containers through the [`ContainerRuntime`](crate::ports::ContainerRuntime), probes them and updates the status of
//! the Pod. A Pod whose containers use the host file system has a directory with its [`volumes`]. Not implemented:
//! ephemeral containers, node leases and node-pressure eviction.

mod agent;
mod container;
mod context;
mod environment;
mod grpc;
mod hooks;
mod image;
mod insecure_tls;
pub(crate) mod logs;
mod pod_ip_allocator;
mod pod_termination;
mod pod_worker;
mod probes;
mod proc;
pub(crate) mod process_runtime;
pub(crate) mod process_tracker;
mod restart;
mod sources;
mod specs;
mod status;
mod status_recovery;
mod termination_message;
mod volume_updates;
mod volumes;

pub use agent::run_node_agent;
pub use context::NodeDirectories;
