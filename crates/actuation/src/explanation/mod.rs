//! Explains requesters, providers and nodes from the objects of a cluster, by the same rules as the controller.
//!
//! [`ClusterView`] builds the state of each node like the controller does. What only the controller observes over HTTP is taken from
//! what it recorded: whether an engine sleeps, from a label. Memory usage is not recorded, and therefore not known.
//!
//! Layers, from low to high: `difference` (between an engine and the one that a requester needs), `view` (the state), `engine`,
//! then one file per question: `start` (of a requester) and `gpus` (of a node).

mod difference;
mod engine;
mod gpus;
mod start;
mod view;

pub use difference::Difference;
pub use engine::EngineSummary;
pub use gpus::{GpuExplanation, NodeExplanation};
pub use start::{NearestSleeper, Start, StartExplanation, StartPath};
pub use view::ClusterView;
