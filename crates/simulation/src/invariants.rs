//! The invariants of the control plane.

mod desired_state;
mod events;
mod foreign_objects;
mod gangs;
mod gateway;
mod group_order;
mod inputs;
mod orphans;
mod plans;
mod rollouts;
mod single_writer;
mod status;
mod supervision;

pub(crate) use desired_state::DesiredState;
pub(crate) use events::Events;
pub(crate) use foreign_objects::ForeignObjects;
pub(crate) use gangs::Gangs;
pub(crate) use gateway::Gateway;
pub(crate) use group_order::GroupOrder;
pub(crate) use inputs::Inputs;
pub(crate) use orphans::Orphans;
pub(crate) use rollouts::Rollouts;
pub(crate) use single_writer::SingleWriter;
pub(crate) use status::Statuses;
pub(crate) use supervision::Supervision;
