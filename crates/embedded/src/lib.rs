//! A Kubernetes cluster in one process: API server, workload controllers, scheduler and node agent.
//!
//! [`Cluster`] assembles the crates `apiserver`, `controllers` and `node_agent` from the ports in [`ports`] and the Node
//! objects; [`DataDirectory`] stores its state between processes. This crate re-exports what users of a cluster need,
//! so that they depend on it alone. It must never contain a rule of Kubernetes: each belongs to one of the three crates.
//! An idle cluster does no work.

#![warn(missing_docs)]

mod cluster;
mod data_directory;
mod failure;
pub mod ports;

pub use apiserver::{
    Change, Credentials, CredentialsError, DEFAULT_HISTORY_SIZE, Lagged, ServeError, Server, StorageFailure, Store,
    StoreOpenError, StoreSettings, Subscription, kubeconfig, router, serve, write_kubeconfig,
};
pub use cluster::Cluster;
pub use controllers::{
    SchedulingSnapshot, StorageObjects, UnschedulableReason, filter_nodes, run_node_lifecycle_controller,
    run_scheduler, run_workload_controllers,
};
pub use data_directory::{DataDirectory, DirectoryLock, DirectoryLockError, create_durable_dir};
pub use failure::{ClusterFailure, NodeRegistrationError};
pub use node_agent::{NodeDirectories, OrphanedProcesses, ProcessRuntime, ProcessTracker, run_node_agent};
pub use supervisor::{TaskFailure, TaskId, TaskState, TaskStatus, TaskStatuses};
