//! The models of the control plane.

mod deployments;
mod machines;
mod network;
mod nodes;
mod people;

pub(crate) use deployments::Deployments;
pub(crate) use machines::Machines;
pub(crate) use network::Network;
pub(crate) use nodes::{Nodes, add_node};
pub(crate) use people::{MODELS, People, SERVICES, runtime};
