//! A single-machine Kubernetes: API server, workload controllers, scheduler and node agent in one process.
//!
//! In: [`ports::Ports`] (clock, randomness, admission, how a container runs, how sockets are opened) and the Node
//! objects. Out: [`server::Server`], reachable by function call, through [`kube::Client`](https://docs.rs/kube) over
//! [`server::Server::router`], and by kubectl over [`serve`]. What it accepts and answers is what a real
//! kube-apiserver would. It knows Kubernetes and no kind of ours: custom resources arrive as definitions, like
//! anywhere else.
//!
//! Invariants: objects are JSON values and never pass through generated structs, so no field is lost; no stage of a write
//! but the last changes anything, and [`store`] is the only state; a write that changes nothing has no revision and no
//! event; a quiet cluster does no work.

mod binding;
pub mod cluster;
mod conversion;
pub mod crd;
pub mod data_directory;
pub mod deletion;
pub mod discovery;
pub mod events;
pub mod http;
pub mod node;
pub mod node_lifecycle;
pub mod object;
pub mod openapi;
pub mod ports;
mod protobuf;
pub mod resources;
mod reviews;
pub mod scheduler;
pub mod serve;
pub mod server;
pub mod store;
pub mod table;
mod types;
pub mod watch;
pub mod workloads;
pub mod write;

pub use server::Server;
