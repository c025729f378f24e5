//! Renders data as text. The functions are pure: they neither read nor write anything, and use no command.

pub(crate) mod actuation_demo;
pub(crate) mod demo;
pub(crate) mod errors;
pub(crate) mod explain;
pub(crate) mod names;
pub(crate) mod nodes;
pub(crate) mod plan;
pub(crate) mod plan_diff;
mod ready_message;
pub(crate) mod request_trace;
pub(crate) mod rollout;
pub(crate) mod service_table;
pub(crate) mod settings;
pub(crate) mod table;
pub(crate) mod task_status;
mod tree;
pub(crate) mod usage_error;
