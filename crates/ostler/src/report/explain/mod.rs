//! Explains the state of an object: a headline, a tree of reasons, and changes that would help.
//!
//! Pure functions from the objects of a cluster to text. An explanation does not repeat a message.

pub(crate) mod actuation;
pub(crate) mod class;
mod conditions;
mod decision;
mod deletions;
mod dual_pods;
mod explanation;
mod fewer_replicas;
mod fields;
pub(crate) mod model;
mod node_remedies;
mod placement;
mod pod_problems;
pub(crate) mod pool;
mod quota;
pub(crate) mod runtime;
mod scale_down;
pub(crate) mod service;
mod service_pods;
mod simulated_nodes;
mod trial;

pub(crate) use explanation::{Explanation, render};
pub(crate) use service_pods::service_pods;

#[cfg(test)]
mod tests;
