//! The models of the control plane.

mod definitions;
mod machines;
mod network;
mod nodes;
mod people;
mod pods;
mod user_objects;

pub(crate) use definitions::Definitions;
pub(crate) use machines::Machines;
pub(crate) use network::Network;
pub(crate) use nodes::Nodes;
pub(crate) use people::{People, SERVICES};
pub(crate) use pods::Pods;
