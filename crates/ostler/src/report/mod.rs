//! What people read: pure functions from records to text.

pub mod demo;
pub mod errors;
pub mod explain;
pub mod fleet;
pub mod plan;
