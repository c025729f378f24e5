//! The controllers of a Kubernetes control plane: workload controllers, scheduler and node lifecycle controller.
//!
//! Each `run_…` function takes a [`Server`](apiserver::Server) and runs one controller until it is cancelled: it reads
//! objects, computes a plan with pure functions and writes the result through the API server. [`filter_nodes`] is the
//! scheduler's decision for one Pod without a cluster. The controllers must never change the store directly, start a
//! container or take the times in objects from another clock than the server's.
//!
//! Layers, from the bottom: `toleration`, `due_time`; `workloads`; `scheduler`, which reads the binding state of volume claims from
//! `workloads`; `node_lifecycle`. Inside `workloads`, each controller is a function from objects to a `Plan`, and
//! `controller` is the work queue that calls them.

#![warn(missing_docs)]

mod due_time;
mod node_lifecycle;
mod scheduler;
mod toleration;
mod workloads;

pub use node_lifecycle::run_node_lifecycle_controller;
pub use scheduler::{SchedulingSnapshot, StorageObjects, UnschedulableReason, filter_nodes, run_scheduler};
pub use workloads::{run_workload_controllers, standard_storage_class};
