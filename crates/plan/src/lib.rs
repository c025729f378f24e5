//! A decision or roles become a topology, a topology becomes Kubernetes objects; pure.

pub mod labels;
pub mod launch;
pub mod names;
pub mod render;
pub mod template;
pub mod topology;
