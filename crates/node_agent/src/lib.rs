//! The node agent: the kubelet of all Nodes of the process.
//!
//! [`run_node_agent`] takes a [`Server`](apiserver::Server), a [`ContainerRuntime`], a [`Network`] and the [`Devices`] of the nodes. Every Pod that is
//! bound to a node gets a loopback address and a worker task, which runs its containers through the runtime, probes
//! them and updates the status of the Pod. A Pod whose containers use the host file system has a directory with its
//! volumes. [`ProcessRuntime`] runs containers as processes of the host. The agent must never schedule Pods or act on
//! behalf of a controller. Not implemented: ephemeral containers, node leases and node-pressure eviction.
//!
//! Layers, from the bottom: `logs`, `network`, `runtime` and `devices` (the ports); `environment`, `volumes`, `probes`, `status` and
//! `device_manager` (what a Pod asks for and reports); `context` (what all workers share); `restart` and `image` (when to start and to pull
//! again); `container` (one container), `pod_worker` (the containers of a Pod), `pod_termination`, `pod_lifecycle`, `pod_admission`;
//! `agent` (all Pods).

#![warn(missing_docs)]

mod agent;
mod container;
mod container_output;
mod context;
mod device_manager;
mod device_status;
mod devices;
mod environment;
mod grpc;
mod hooks;
mod image;
mod insecure_tls;
mod logs;
mod network;
mod pod_admission;
mod pod_ip_allocator;
mod pod_lifecycle;
mod pod_signals;
mod pod_termination;
mod pod_worker;
mod private_directory;
mod probes;
mod proc;
mod process_runtime;
mod process_tracker;
mod restart;
mod runtime;
mod sources;
mod specs;
mod status;
mod status_recovery;
mod termination_message;
mod volume_updates;
mod volumes;

pub use agent::run_node_agent;
pub use context::NodeDirectories;
pub use devices::{Devices, NoDevices};
pub use logs::LogSink;
pub use network::{Network, NetworkStream, TcpNetwork};
pub use private_directory::create_private_dir;
pub use process_runtime::ProcessRuntime;
pub use process_tracker::{OrphanedProcesses, ProcessTracker};
pub use runtime::{ContainerConfig, ContainerExit, ContainerPurpose, ContainerRuntime, Mount};
