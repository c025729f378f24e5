//! Renders data as text. The functions are pure.

pub(crate) mod demo;
pub(crate) mod errors;
pub(crate) mod explain;
pub(crate) mod plan;
pub(crate) mod rollout;
pub(crate) mod service_table;
mod settings;
pub(crate) mod tree;
pub(crate) mod usage_error;

pub(crate) use settings::settings;
