//! What people read: pure functions from records to text.

pub(crate) mod demo;
pub(crate) mod errors;
pub(crate) mod explain;
pub(crate) mod fleet;
pub(crate) mod plan;
pub(crate) mod rollout;
mod settings;
pub(crate) mod tree;
pub(crate) mod usage;

pub(crate) use settings::settings;
