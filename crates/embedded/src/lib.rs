//! A Kubernetes cluster in one process: API server, workload controllers, scheduler and node agent.
//!
//! [`Cluster`] starts everything from [`ports::Ports`] (clock, randomness, admission, container runtime, network) and
//! the Node objects. [`Server`] is the API server: callers in the process use its methods or a
//! [`kube::Client`](https://docs.rs/kube) over [`Server::router`], and kubectl connects through [`serve`]. Its
//! responses match those of kube-apiserver. It has no built-in ostler kinds: they are installed as
//! CustomResourceDefinitions, as in any cluster.
//!
//! Invariants: objects are JSON values and are never converted to generated structs, so no field is lost; the [`Store`]
//! holds all state, and only the last stage of a write changes it; a write without changes creates neither a revision
//! nor a watch event; an idle cluster does no work.

#![warn(missing_docs)]

mod api_types;
mod binding;
mod cluster;
mod conversion;
mod crd;
mod data_directory;
mod deletion;
mod discovery;
mod events;
mod http;
mod node;
mod node_lifecycle;
mod object;
mod openapi;
pub mod ports;
mod protobuf;
mod resources;
mod reviews;
mod scheduler;
mod secure_serving;
mod server;
mod store;
mod table;
mod watch;
mod workloads;
mod write;

pub use cluster::Cluster;
pub use data_directory::{DataDirectory, DirectoryLock, DirectoryLockError};
pub use node::process_runtime::ProcessRuntime;
pub use node::process_tracker::{OrphanedProcesses, ProcessTracker};
pub use node::{NodeDirectories, run_node_agent};
pub use node_lifecycle::run_node_lifecycle_controller;
pub use scheduler::{SchedulingSnapshot, StorageObjects, UnschedulableReason, filter_nodes, run_scheduler};
pub use secure_serving::credentials_file::CredentialsError;
pub use secure_serving::{Credentials, ServeError, kubeconfig, serve, write_kubeconfig};
pub use server::Server;
pub use store::{DEFAULT_HISTORY_SIZE, Store, StoreOpenError, StoreSettings};
pub use watch::{Change, Lagged, Subscription};
pub use workloads::run_workload_controllers;
