//! A single-machine Kubernetes: API server, workload controllers, scheduler and node agent in one process.
//!
//! [`Cluster`] starts everything from [`ports::Ports`] (clock, randomness, admission, container runtime, network) and
//! the Node objects. [`Server`] is the API server: available through function calls, through
//! [`kube::Client`](https://docs.rs/kube) over [`Server::router`], and to kubectl over [`serve`]. Its responses are
//! those of kube-apiserver. It contains no kinds of ostler: custom resources are declared by definitions, as in any
//! cluster.
//!
//! Invariants: objects are JSON values and never pass through generated structs, so no field is lost; only the last
//! stage of a write changes state, and the [`Store`] is the only state; a write without changes has no revision and no
//! event; an idle cluster does no work.

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
