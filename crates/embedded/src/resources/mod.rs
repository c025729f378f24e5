//! Which resources exist: the built-in kinds and what definitions add.
//!
//! One [`Resource`] is one served version of one kind. Several can share a storage name: versions of a custom
//! resource, and the two faces of events.

mod builtin;
mod registry;
mod resource;

pub use registry::Registry;
pub(crate) use registry::version_rank;
pub(crate) use resource::document_schema;
pub use resource::{Resource, ScalePaths};
