//! The models of the control plane.

mod definitions;
mod machines;
mod network;
mod nodes;
mod people;
mod pods;
mod user_objects;
mod user_services;

pub(crate) use definitions::Definitions;
pub(crate) use machines::Machines;
pub(crate) use network::Network;
pub(crate) use nodes::Nodes;
pub(crate) use people::People;
pub(crate) use pods::Pods;
