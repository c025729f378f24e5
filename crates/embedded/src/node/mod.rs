//! The node agent: one for all Nodes of the process, in the place of their kubelets.
//!
//! Every Pod bound to a node gets a loopback address and a task ([`lifecycle`]) that runs its containers through the
//! [`Runner`](crate::ports::Runner), probes them and writes the Pod's status when it changed. Where containers see files
//! of this machine, the Pod gets a folder with its [`volumes`]. Not done: ephemeral containers, node leases and pressure.

mod addresses;
mod agent;
mod container;
mod ending;
mod environment;
mod grpc;
mod hooks;
mod image;
mod lifecycle;
pub mod logs;
mod mounted;
mod probes;
mod proc;
pub mod process;
pub mod processes;
mod restart;
mod resume;
mod shared;
mod sources;
mod specs;
mod status;
mod termination;
mod unverified;
mod volumes;

pub use agent::run;
pub use shared::Folders;
