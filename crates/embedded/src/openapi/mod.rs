//! Schemas of the built-in kinds, and the OpenAPI documents that kubectl reads.

mod document;
mod typed;
pub(crate) mod v2;

pub(crate) use document::{group_version, index};
pub(crate) use typed::{definitions, generate};
